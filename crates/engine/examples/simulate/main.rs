//! `make sim TRACE=directory`: the import cache's policies on recorded requirement sets and costs.
//!
//! The engine's own policy code runs on fake zygotes in virtual time. Each policy is warmed with the training half, then
//! judged on the other; all have one memory model (`workload`), begin with nothing, and pay for a zygote with the time
//! that its imports take (SOCK's while its call waits, the others' beside the calls, one at a time).

#![expect(clippy::print_stdout, reason = "what it is for")]

mod forklift;
mod protocol;
mod statistics;
mod workload;
mod world;

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;

/// Judges the import cache's policies on a trace.
#[derive(Debug, Parser)]
struct Options {
    /// Where `trial0_train_test.json.gz` and the cost files are.
    trace: PathBuf,
    /// What to run.
    #[arg(long, value_enum, default_value = "given")]
    protocol: protocol::Protocol,
    /// Memory of all zygotes, in megabytes.
    #[arg(long, value_delimiter = ',', default_value = "250,1000,3000")]
    budgets: Vec<u64>,
    /// Starts after which one counts half.
    #[arg(long)]
    half_life: Option<f64>,
    /// A tree in Forklift's format to judge, too.
    #[arg(long)]
    tree: Option<PathBuf>,
    /// Where to write all results as JSON.
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let workload = workload::Workload::read(&options.trace)?;
    let tree: Option<engine::ZygoteTree> = match &options.tree {
        Some(path) => Some(serde_json::from_slice(&std::fs::read(path)?)?),
        None => None,
    };
    let results = protocol::judge(
        &workload,
        options.protocol,
        &options.budgets,
        options.half_life,
        tree.as_ref(),
    )?;
    if let Some(out) = options.out {
        std::fs::write(out, serde_json::to_string_pretty(&results)?)?;
    }
    Ok(())
}
