//! The `wool` command.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    server::command::main(server::cli::Cli::parse())
}
