//! The `wool` command.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    wool::command::main(wool::cli::Cli::parse())
}
