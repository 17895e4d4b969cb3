//! `make compatibility`: popular libraries and frameworks do a little work in every way in which an instance is made.
//!
//! ```text
//!   programs ── libraries/, frameworks/, bench/libraries/: each has a `work` that asserts what is right
//!      │   under a plain Python of the host: a program that is wrong there is left out for that version
//!      └── for each Python: two workers ── deploy ── two calls in each way ──► Outcome ──► one table
//! ```
//! A program says of itself, by a line `# machines: WORDS` or `# forks: WORDS`, that machines, or forks of a zygote, cannot
//! do what it needs, and what its failure then has in it: a documented limit. Any other failure is a fault, and so is a limit that is gone.

#![expect(clippy::print_stdout, reason = "a program for people: its table is what it is for")]

mod outcome;
mod plain;
mod program;
mod table;
mod trial;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

use clap::Parser;
use e2e::{Everywhere, Way, can_run};

use crate::outcome::Cell;
use crate::plain::Plain;
use crate::program::Program;
use crate::table::Table;

/// Runs libraries and frameworks in every way in which an instance is made.
#[derive(Debug, Parser)]
struct Arguments {
    /// The Pythons; each must be on this host.
    #[arg(long, default_values = ["3.11", "3.12", "3.13"])]
    on: Vec<String>,
    /// Only programs whose names have this in them; several: any of them.
    #[arg(long)]
    only: Vec<String>,
    /// Where to write the table and its summary.
    #[arg(long)]
    into: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let programs: Vec<Program> = Program::all()
        .into_iter()
        .filter(|program| {
            arguments.only.is_empty()
                || arguments.only.iter().any(|part| program.name.contains(part.as_str()))
        })
        .collect();
    if !can_run() {
        return ExitCode::SUCCESS;
    }
    let table = Mutex::new(Table::begin(&programs, &arguments.on));
    // One after the other, most of the time would be waiting for the index.
    std::thread::scope(|scope| {
        for python in &arguments.on {
            scope.spawn(|| run_on(python, &programs, &table, arguments.into.as_deref()));
        }
    });
    let table = table.into_inner().unwrap();
    table.print();
    if table.has_faults() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs all programs on one Python.
fn run_on(python: &str, programs: &[Program], table: &Mutex<Table>, into: Option<&Path>) {
    let Some(ways) = Everywhere::with(&[("WOOL_PYTHON", python)]) else { return };
    let plain = Plain::of(python, ways.worker(Way::Fork).site());
    for (number, program) in programs.iter().enumerate() {
        // What is wrong under a plain Python says nothing about this project.
        let left_out = plain.run(program);
        for way in ways.ways() {
            let outcome = left_out.clone().unwrap_or_else(|| trial::run(&ways, way, program));
            println!("{python} {:5} {:24} {outcome}", way.name(), program.name);
            let cell = Cell { python: python.to_owned(), way, outcome };
            table.lock().unwrap().add(number, cell);
        }
        // It takes long, and may be ended before its end.
        if let Some(directory) = into {
            table.lock().unwrap().write(directory);
        }
    }
}
