//! Running an installer, uv or pip: its words are passed on as they come, and kept for the error.
//!
//! They go to the client that deploys, so credentials, the worker's directories and options that
//! only the worker can give are taken out first.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, ExitStatus};

use layers::child::{self, Unfinished};
use layers::patience::Over;
use layers::{Patience, Progress};

/// Most bytes of an installer's words that an error keeps: the last ones.
const KEPT: usize = 16 << 10;

/// An installer that came to its end.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    /// Its standard output.
    pub(crate) output: String,
    /// What it wrote to its standard error.
    pub(crate) words: String,
}

/// Runs it to its end, or to that of `patience`. Its standard error is told line by line; its
/// standard output too when `chatty`.
pub(crate) fn run(
    command: &mut Command,
    chatty: bool,
    patience: &Patience,
    progress: &dyn Progress,
) -> Result<Finished, Unfinished> {
    run_watched(command, chatty, patience, progress, || false)
}

/// The same, and ends it as soon as `excessive` says so, which is asked again and again.
pub(crate) fn run_watched(
    command: &mut Command,
    chatty: bool,
    patience: &Patience,
    progress: &dyn Progress,
    excessive: impl Fn() -> bool,
) -> Result<Finished, Unfinished> {
    let places = places(command);
    let output = |pipe| lines(pipe, &places, chatty.then_some(progress));
    let over = || patience.over().or_else(|| excessive().then_some(Over::Excessive));
    let words = |pipe| lines(pipe, &places, Some(progress));
    let (status, output, words) = child::run(command, over, output, words)?;
    Ok(Finished { status, output, words: tail(words) })
}

fn lines(pipe: impl Read, places: &[(String, &str)], progress: Option<&dyn Progress>) -> String {
    let mut text = String::new();
    let mut reader = BufReader::new(pipe);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let mut told = without_options(&redacted(&String::from_utf8_lossy(&line)));
        for (path, name) in places {
            told = told.replace(path, name);
        }
        if let (Some(progress), false) = (progress, told.trim().is_empty()) {
            progress.line(told.trim_end());
        }
        text.push_str(&told);
        line.clear();
    }
    text
}

/// Directories of the worker's that the program knows, and what stands for each in its words: where
/// a worker keeps its state is no business of its clients.
fn places(command: &Command) -> Vec<(String, &'static str)> {
    let after = |name: &str| {
        let mut arguments = command.get_args().skip_while(|argument| *argument != name).skip(1);
        arguments.next().map(Path::new)
    };
    let cache = after("--cache-dir");
    let state = cache.filter(|path| path.ends_with("uv/cache"));
    let state = state.and_then(|path| path.parent()?.parent());
    // Those further down first: they begin with the others.
    [
        (command.get_current_dir(), "the project"),
        (after("--target"), "the packages"),
        (cache, "the cache"),
        (state, "the worker's state"),
    ]
    .into_iter()
    .filter_map(|(path, name)| Some((path?.to_str()?.to_owned(), name)))
    .filter(|(path, _)| path.len() > 1)
    .collect()
}

/// Without names and passwords in addresses: an index's credentials go no further.
fn redacted(line: &str) -> String {
    let mut pieces = line.split("://");
    let mut told = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(['/', ' ', '`', '\'', '"', ')', '\n']).unwrap_or(piece.len());
        let (authority, rest) = piece.split_at(end);
        let host = authority.rsplit_once('@').map(|(_, host)| host);
        told.push_str("://");
        if host.is_some() {
            told.push_str("****@");
        }
        told.push_str(host.unwrap_or(authority));
        told.push_str(rest);
    }
    told
}

/// Without the installer's options: the worker chose them, and its users cannot give any. A remark
/// in parentheses that names one goes, and so does a sentence of a hint.
fn without_options(line: &str) -> String {
    const OPTION: &str = "`--";
    if !line.contains(OPTION) {
        return line.to_owned();
    }
    let mut told = String::new();
    let mut rest = line;
    while let Some((before, inside)) = rest.split_once(" (") {
        let Some((remark, after)) = inside.split_once(')') else { break };
        told.push_str(before);
        if !remark.contains(OPTION) {
            told.push_str(&format!(" ({remark})"));
        }
        rest = after;
    }
    told.push_str(rest);
    if !told.trim_start().starts_with("hint:") || !told.contains(OPTION) {
        return told;
    }
    let end = if told.ends_with('\n') { "\n" } else { "" };
    let sentences = told.trim_end().split_inclusive(". ");
    let kept: String = sentences.filter(|sentence| !sentence.contains(OPTION)).collect();
    format!("{}{end}", kept.trim_end())
}

fn tail(text: String) -> String {
    let text = text.trim();
    let mut start = text.len().saturating_sub(KEPT);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text[start..].to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Progress for Heard {
        fn step(&self, _: &str) {}
        fn line(&self, text: &str) {
            self.0.lock().unwrap().push(text.to_owned());
        }
        fn bytes(&self, _: u64, _: Option<u64>) {}
    }

    #[test]
    fn words_are_told_and_kept_and_output_is_not_told() {
        let heard = Heard::default();
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo one >&2; echo two >&2; exit 3"]);
        let finished = run(&mut command, false, &Patience::endless(), &heard).unwrap();
        assert_eq!(finished.status.code(), Some(3));
        assert_eq!((finished.output.as_str(), finished.words.as_str()), ("out\n", "one\ntwo"));
        assert_eq!(*heard.0.lock().unwrap(), ["one", "two"]);
    }

    #[test]
    fn credentials_in_addresses_are_not_passed_on() {
        let heard = Heard::default();
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'at `https://me:hunter2@a.org/s` and http://b.org/@' >&2"]);
        let finished = run(&mut command, false, &Patience::endless(), &heard).unwrap();
        assert_eq!(finished.words, "at `https://****@a.org/s` and http://b.org/@");
        assert_eq!(*heard.0.lock().unwrap(), [finished.words]);
    }

    #[test]
    fn options_of_the_installer_are_not_passed_on() {
        let told =
            without_options("hint: Wheels are off for `x` (i.e., with `--no-binary-package x`)\n");
        assert_eq!(told, "hint: Wheels are off for `x`\n");
        let told = without_options(
            "hint: `x` (1.0) is on another index (e.g., 2.0). If you trust all, use `--index-strategy y` to see it. Ask (them).",
        );
        assert_eq!(told, "hint: `x` (1.0) is on another index (e.g., 2.0). Ask (them).");
        assert_eq!(without_options("hint: use `--all` for it\n"), "\n");
        for whole in
            ["cause: (a) b (c)\n", "error: unexpected argument `--x` (y", "hint: a - b -- c"]
        {
            assert_eq!(without_options(whole), whole);
        }
    }

    #[test]
    fn an_installer_that_does_too_much_is_ended() {
        let room = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "touch here; exec sleep 600"]).current_dir(room.path());
        let excessive = || room.path().join("here").exists();
        let ended =
            run_watched(&mut command, false, &Patience::endless(), &layers::Silent, excessive);
        assert!(matches!(ended, Err(Unfinished::Excessive)), "{ended:?}");
    }

    #[test]
    fn no_directory_of_the_workers_is_told() {
        let mut command = Command::new("uv");
        command.args([
            "pip",
            "--cache-dir",
            "/srv/state/uv/cache",
            "--target",
            "/srv/state/layers/x",
        ]);
        command.current_dir("/srv/state/run/project-1");
        let words = "failed in /srv/state/run/project-1/a, /srv/state/uv/cache/b and /srv/state/c for /srv/state/layers/x\n";
        let told = lines(words.as_bytes(), &places(&command), None);
        assert_eq!(
            told,
            "failed in the project/a, the cache/b and the worker's state/c for the packages\n"
        );
        assert_eq!(places(&Command::new("uv")), []);
    }

    #[test]
    fn an_installer_that_fills_both_pipes_comes_to_its_end() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "yes | head -c 300000 >&2; yes | head -c 300000; yes | head -c 300000 >&2",
        ]);
        let finished = run(&mut command, false, &Patience::endless(), &layers::Silent).unwrap();
        assert!(finished.status.success());
        assert_eq!((finished.output.len(), finished.words.len() <= KEPT), (300_000, true));
    }
}
