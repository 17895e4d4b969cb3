//! What people see on stderr: progress, complaints, tables.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use super::write_out;
use crate::client::ClientError;
use doors::error::ErrorDetail;
use platform::deploy::progress::{Event, Progress};

/// Shows progress: a bar on a terminal, plain lines elsewhere, nothing when told to be quiet.
#[derive(Debug)]
pub(super) struct Display {
    bar: Option<ProgressBar>,
    step: Mutex<String>,
}

impl Display {
    pub(super) fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner().with_style(spinner());
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        Self { bar, step: Mutex::default() }
    }

    /// Shows an event of a worker's deploy.
    pub(super) fn show(&self, event: &Event) {
        match event {
            Event::Progress(text) => self.step(text),
            Event::Line(text) => self.line(text),
            Event::Bytes(done, total) => self.bytes(*done, *total),
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Progress for Display {
    fn step(&self, text: &str) {
        text.clone_into(&mut self.step.lock().unwrap_or_else(PoisonError::into_inner));
        match &self.bar {
            Some(bar) => {
                bar.set_style(spinner());
                bar.set_message(text.to_owned());
            }
            None => say(text),
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(format!("  {}", tame(text))),
            None => say(&format!("  {text}")),
        }
    }

    fn bytes(&self, done: u64, total: Option<u64>) {
        match &self.bar {
            Some(bar) => {
                bar.set_style(if total.is_some() { sized() } else { counted() });
                bar.set_length(total.unwrap_or(done));
                bar.set_position(done);
            }
            // Without a terminal one line at the end tells as much.
            None if Some(done) == total => {
                #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
                let megabytes = done as f64 / 1e6;
                let step = self.step.lock().unwrap_or_else(PoisonError::into_inner).clone();
                say(&format!("  {step}: {megabytes:.1} MB"));
            }
            None => {}
        }
    }
}

fn spinner() -> ProgressStyle {
    style("{spinner} {msg} {elapsed}")
}

fn sized() -> ProgressStyle {
    style("{spinner} {msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
}

fn counted() -> ProgressStyle {
    style("{spinner} {msg} {bytes} {bytes_per_sec}")
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

/// Writes a line to stderr.
pub(super) fn say(text: &str) {
    let mut stderr = io::stderr().lock();
    let text = if stderr.is_terminal() { tame(text) } else { text.into() };
    // Where stderr is closed, nothing can be told.
    drop(writeln!(stderr, "{text}"));
}

/// Writes what a function, a package or an index may have said to stdout.
pub(super) fn pass_on(bytes: &[u8]) -> Result<()> {
    if !io::stdout().is_terminal() {
        return write_out(bytes);
    }
    write_out(tame(&String::from_utf8_lossy(bytes)).as_bytes())
}

/// Text for a terminal: control characters are shown and have no effect. Lines and tabs stay.
fn tame(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(obeyed) {
        return text.into();
    }
    let mut shown = String::new();
    for c in text.chars() {
        match obeyed(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown.into()
}

/// Says why a command failed, with the function's own traceback when it raised.
pub(super) fn complain(error: &anyhow::Error) {
    if let Some(ClientError::Refused { detail, .. }) = error.downcast_ref()
        && !detail.traceback.is_empty()
    {
        return say(&told(detail));
    }
    say(&format!("wool: {error:#}"));
}

/// A function's own failure, as Python tells it: the last line is the exception itself. Where the lines do not say so (an
/// exception that cannot be formatted, lines left out), type and message stand behind them.
fn told(detail: &ErrorDetail) -> String {
    let lines = detail.traceback.join("\n");
    let lines = lines.trim_end();
    let name = detail.r#type.rsplit('.').next().unwrap_or_default();
    let first = detail.message.lines().next().unwrap_or_default();
    if lines.contains(name) && lines.contains(first) {
        return lines.to_owned();
    }
    format!("{lines}\n{}: {}", detail.r#type, detail.message)
}

/// Rows as aligned columns. Control characters, which names may hold, are shown and not sent to the terminal.
pub(super) fn columns(rows: &[Vec<String>]) -> String {
    let plain = |cell: &String| match cell.contains(char::is_control) {
        true => cell.escape_debug().to_string(),
        false => cell.clone(),
    };
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(plain).collect()).collect();
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|c| c.chars().count()).max()
    };
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        assert_eq!(tame("ä\tone\ntwo"), "ä\tone\ntwo");
        assert_eq!(tame("\u{1b}]0;x\u{7}\r\u{9b}2K"), "\\u{1b}]0;x\\u{7}\\r\\u{9b}2K");
    }

    #[test]
    fn a_failure_always_tells_type_and_message() {
        let failed = |message: &str, traceback: &[&str]| {
            told(&ErrorDetail {
                r#type: "main.Sorry".to_owned(),
                message: message.to_owned(),
                traceback: traceback.iter().map(|line| (*line).to_owned()).collect(),
            })
        };
        let whole = ["Traceback (most recent call last):", "main.Sorry: no"];
        assert_eq!(failed("no", &whole), whole.join("\n"));
        let without = ["<no traceback>"];
        assert_eq!(failed("no", &without), "<no traceback>\nmain.Sorry: no");
        assert_eq!(
            failed("no; more `memory`", &whole),
            "Traceback (most recent call last):\nmain.Sorry: no\nmain.Sorry: no; more `memory`"
        );
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        let rows = [row(&["NAME", "VERSION"]), row(&["ä-long-name", "1"]), row(&["b", ""])];
        assert_eq!(columns(&rows), "NAME         VERSION\nä-long-name  1\nb\n");
        let forged = [row(&["x\n2026  root", "\u{1b}[2J"])];
        assert_eq!(columns(&forged), "x\\n2026  root  \\u{1b}[2J\n");
    }
}
