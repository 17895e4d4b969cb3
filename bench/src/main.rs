//! Measures a figure: `cargo run --release -p bench -- sock_fig14`, or `make bench FIG=sock_fig14`.
//!
//! ```text
//!   experiments/  one file for each figure: arms, levels, rounds, what is compared
//!   baselines/    what others do, on the same base layer
//!   worker, functions, stage    the real worker, its functions, both put in place
//!   guests/       programs in C and Python, as processes and in machines: started, cloned, forked, reset
//!   libraries, wheel, index    the libraries of the paper's figures, packages made here, and where they are installed from
//!   load, http, cpu, calls, observed    calls, what they cost, and what functions say of them
//!   sample, run, environment, meminfo, plot, evidence    what is said of it, and what is kept
//! ```

#![forbid(unsafe_code)]

mod backed;
mod baselines;
mod calls;
mod cpu;
mod environment;
mod evidence;
mod experiments;
mod functions;
mod guests;
mod http;
mod index;
mod libraries;
mod load;
mod meminfo;
mod observed;
mod plot;
mod run;
mod sample;
mod stage;
mod wheel;
mod worker;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Parser;

use crate::environment::Environment;
use crate::experiments::EXPERIMENTS;
use crate::stage::Stage;

/// Measure one of the figures beside real baselines.
#[derive(Debug, Parser)]
struct Arguments {
    /// Which; without one, they are listed
    figure: Option<String>,
    /// Tiny amounts, to see that everything works: the numbers mean nothing and go to target/bench/quick
    #[arg(long)]
    quick: bool,
    /// The Python of the base layer, such as 3.12 [default: as the worker chooses]
    #[arg(long)]
    python: Option<String>,
    /// Where runs are kept
    #[arg(long, default_value_os_t = Path::new(env!("CARGO_MANIFEST_DIR")).join("runs"))]
    runs: PathBuf,
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(guests::ROLE) {
        return guests::monitor(words);
    }
    measure(Arguments::parse())
}

// One thread: the generator takes no more than one processor from what it measures.
#[tokio::main(flavor = "current_thread")]
async fn measure(arguments: Arguments) -> Result<()> {
    let Some(wanted) = arguments.figure.as_deref().filter(|name| !name.is_empty()) else {
        for experiment in EXPERIMENTS {
            eprintln!("{:14} {}", experiment.figure, experiment.title);
        }
        bail!("say which: make bench FIG=sock_fig14");
    };
    let experiment = EXPERIMENTS.iter().find(|experiment| experiment.figure == wanted);
    let experiment =
        experiment.with_context(|| format!("no figure {wanted}: without one, they are listed"))?;
    let stage = Stage::set(arguments.quick, arguments.python.as_deref()).await?;
    let environment = Environment::look(&stage.rootfs.version, arguments.quick).await;
    for warning in environment.warnings() {
        eprintln!("warning: {warning}");
    }
    let mut measured = (experiment.measure)(&stage).await?;
    measured.run.python = arguments.python;
    measured.run.tell_failures();
    let into = if arguments.quick { stage.work().join("quick") } else { arguments.runs };
    let dir = measured.run.write(&into, &environment, &measured.plots)?;
    eprintln!("{}", dir.join("README.md").display());
    Ok(())
}
