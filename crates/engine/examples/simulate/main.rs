//! `make sim TRACE=directory`: the import cache's policies on recorded requirement sets and costs.
//!
//! The engine's own policy code runs on fake zygotes in virtual time. Each policy is warmed with the training half, then
//! judged on the other; all have one memory model (`workload`), begin with nothing, and pay for a zygote with the time
//! that its imports take and 20 ms (SOCK's while its call waits, the others' beside the calls, one at a time). What is built is
//! charged to the start during or after which it was, and once to one that waited for it.

#![expect(clippy::print_stdout, reason = "what it is for")]

mod bound;
mod elsewhere;
mod forklift;
mod protocol;
mod splits;
mod statistics;
mod workload;
mod world;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Parser;

/// Judges the import cache's policies on a trace.
#[derive(Debug, Parser)]
struct Options {
    /// Where `trial0_train_test.json.gz` and the cost files are; for `elsewhere`, `library_costs.json`.
    trace: PathBuf,
    /// The split and order of starts to judge.
    #[arg(long, value_enum, default_value = "given")]
    protocol: splits::Protocol,
    /// Memory of all zygotes, in megabytes.
    #[arg(long, value_delimiter = ',', default_value = "250,1000,3000")]
    budgets: Vec<u64>,
    /// Starts after which one counts half.
    #[arg(long)]
    half_life: Option<f64>,
    /// A tree in Forklift's format to judge, too.
    #[arg(long)]
    tree: Option<PathBuf>,
    /// Writes the tree that the first budget allows for the training half, in Forklift's format, and judges nothing.
    #[arg(long)]
    write_tree: Option<PathBuf>,
    /// Where to write all results as JSON.
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let workload = match options.protocol {
        splits::Protocol::Elsewhere => elsewhere::workload(&options.trace)?,
        _ => workload::Workload::read(&options.trace)?,
    };
    if let Some(path) = &options.write_tree {
        return write_tree(&workload, options.budgets[0], path);
    }
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

fn write_tree(workload: &workload::Workload, budget_mb: u64, path: &Path) -> Result<()> {
    let functions: Vec<&workload::Function> = workload.train.iter().collect();
    let tree = forklift::tree(workload, &functions, budget_mb * 1_000_000);
    println!("{} zygotes, {budget_mb} MB by the model", tree.nodes());
    std::fs::write(path, serde_json::to_string_pretty(&tree)? + "\n")?;
    Ok(())
}
