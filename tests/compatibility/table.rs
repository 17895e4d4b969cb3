//! The table of all programs, Pythons and ways.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use e2e::{Value, Way, json};

use crate::outcome::{Cell, Outcome};
use crate::program::Program;

/// What came of each program, in the order in which they ran.
#[derive(Debug)]
pub(crate) struct Table {
    begun: Instant,
    date: String,
    commit: String,
    pythons: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    name: String,
    kind: &'static str,
    requires: String,
    cells: Vec<Cell>,
}

impl Table {
    /// One without cells; the run's time counts from here.
    pub(crate) fn begin(programs: &[Program], pythons: &[String]) -> Self {
        let date = output("date", &["--utc", "+%Y-%m-%d %H:%M UTC"]);
        let row = |program: &Program| Row {
            name: program.name.clone(),
            kind: program.kind,
            requires: program.requires.clone(),
            cells: Vec::new(),
        };
        let rows = programs.iter().map(row).collect();
        Self { begun: Instant::now(), date, commit: commit(), pythons: pythons.to_vec(), rows }
    }

    /// Adds what came of the program of this number at one place.
    pub(crate) fn add(&mut self, number: usize, cell: Cell) {
        let cells = &mut self.rows[number].cells;
        cells.push(cell);
        // Pythons run beside each other, the ways of one in order.
        cells.sort_by_key(|cell| self.pythons.iter().position(|python| *python == cell.python));
    }

    /// All cells.
    fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.rows.iter().flat_map(|row| &row.cells)
    }

    /// Whether any program was wrong anywhere.
    pub(crate) fn has_faults(&self) -> bool {
        self.cells().any(|cell| matches!(cell.outcome, Outcome::Wrong(_)))
    }

    /// Prints it.
    pub(crate) fn print(&self) {
        println!("{}", self.markdown());
    }

    /// Writes `README.md` and `summary.json` into a directory.
    pub(crate) fn write(&self, directory: &Path) {
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join("README.md"), self.markdown()).unwrap();
        let summary = serde_json::to_string_pretty(&self.summary()).unwrap();
        fs::write(directory.join("summary.json"), summary + "\n").unwrap();
    }

    fn markdown(&self) -> String {
        let mut text =
            "# Libraries and frameworks in every way of making an instance\n\n".to_owned();
        let [right, limit, wrong, left_out] = self.counts();
        let sum = format!(
            "`make compatibility` at {}, begun {}, {} minutes; {}.\n\n\
             **{right} right, {limit} at a documented limit, {wrong} wrong, {left_out} left out** of {} places: \
             programs × Pythons × ways. Each place is a deploy and two calls of one instance; each program was right under a \
             plain Python of the host before, or is left out.\n\n",
            self.commit,
            self.date,
            self.begun.elapsed().as_secs() / 60,
            machine(),
            self.cells().count(),
        );
        text.push_str(&sum);
        let places: Vec<(&str, Way)> = self
            .pythons
            .iter()
            .flat_map(|python| Way::ALL.map(|way| (python.as_str(), way)))
            .filter(|place| self.cells().any(|cell| (cell.python.as_str(), cell.way) == *place))
            .collect();
        let heads = places.iter().map(|(python, way)| format!(" {python} {} |", way.name()));
        let _ = writeln!(text, "| program |{}", heads.collect::<String>());
        let _ = writeln!(text, "| --- |{}", " --- |".repeat(places.len()));
        for row in &self.rows {
            let word = |place: &(&str, Way)| {
                let cell = row.cells.iter().find(|cell| (cell.python.as_str(), cell.way) == *place);
                format!(" {} |", cell.map_or("not run", |cell| cell.outcome.word()))
            };
            let _ =
                writeln!(text, "| {} |{}", row.name, places.iter().map(word).collect::<String>());
        }
        text.push_str("\nWhat is not right, by its first line:\n\n");
        for row in &self.rows {
            let mut lines: Vec<(&Outcome, Vec<String>)> = Vec::new();
            for cell in row.cells.iter().filter(|cell| cell.outcome.line().is_some()) {
                let place = format!("{} {}", cell.python, cell.way.name());
                match lines.iter_mut().find(|(outcome, _)| **outcome == cell.outcome) {
                    Some((_, places)) => places.push(place),
                    None => lines.push((&cell.outcome, vec![place])),
                }
            }
            for (outcome, places) in lines {
                let line = outcome.line().unwrap_or_default().replace('`', "'");
                let _ = writeln!(
                    text,
                    "- {} ({}), {}: `{line}`",
                    row.name,
                    places.join(", "),
                    outcome.word()
                );
            }
        }
        self.put_late(&mut text);
        text.push_str("\nWhat each program requires:\n\n");
        for row in &self.rows {
            let _ = writeln!(text, "- {} ({}): {}", row.name, row.kind, row.requires);
        }
        text
    }

    /// Right, but imported by the instance itself where a zygote or a reference machine could have done it.
    fn put_late(&self, text: &mut String) {
        let late = |cell: &&Cell| {
            cell.way != Way::Fresh && cell.outcome == Outcome::Right { ahead: false }
        };
        let rows = self.rows.iter().map(|row| (row, row.cells.iter().filter(late).count()));
        let rows: Vec<String> = rows
            .filter(|(_, count)| *count > 0)
            .map(|(row, count)| format!("{} ({count})", row.name))
            .collect();
        if !rows.is_empty() {
            let _ = writeln!(
                text,
                "\nRight, but nothing had been imported before the function was loaded, at so many places: {}.",
                rows.join(", ")
            );
        }
    }

    fn counts(&self) -> [usize; 4] {
        ["right", "limit", "WRONG", "left out"]
            .map(|word| self.cells().filter(|cell| cell.outcome.word() == word).count())
    }

    fn summary(&self) -> Value {
        let [right, limit, wrong, left_out] = self.counts();
        let not_right: Vec<Value> = self
            .rows
            .iter()
            .flat_map(|row| row.cells.iter().map(move |cell| (row, cell)))
            .filter(|(_, cell)| !matches!(cell.outcome, Outcome::Right { .. }))
            .map(|(row, cell)| {
                json!({
                    "program": row.name, "python": cell.python, "way": cell.way.name(),
                    "outcome": cell.outcome.word(), "line": cell.outcome.line(),
                })
            })
            .collect();
        json!({
            "commit": self.commit, "begun": self.date, "seconds": self.begun.elapsed().as_secs(), "machine": machine(),
            "programs": self.rows.len(), "right": right, "limit": limit, "wrong": wrong, "left_out": left_out,
            "not_right": not_right,
        })
    }
}

fn commit() -> String {
    let short = output("git", &["rev-parse", "--short", "HEAD"]);
    let changed = !output("git", &["status", "--porcelain", "--untracked-files=no"]).is_empty();
    format!("commit {short}{}", if changed { " with changes" } else { "" })
}

/// The processor's maker and the kernel.
fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let vendor = info.lines().find_map(|line| line.strip_prefix("vendor_id\t: ")).unwrap_or("?");
    let processors = info.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = output("uname", &["-r"]);
    let kernel = kernel.split('-').next().unwrap_or_default().to_owned();
    format!("{processors} processors ({vendor}), Linux {kernel}")
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}
