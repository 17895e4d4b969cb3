//! `make soak`: a real worker under a mixed load, while things are broken around it and inside it.
//!
//! ```text
//!   clients ── gate ──► worker ◄── faults: at each stage of a call, or at any time
//!      │ judge each answer           │ ended and replaced: the registry is intact
//!      └──► history ◄── census: budgets, descriptors, sandboxes ◄─┘
//!   at the end: no call began twice (the logs), nothing is left (the site), one table
//! ```
//! What is done is chosen by the seed, when it is done by the machine: a seed repeats the mixture, not the moment.

#![expect(clippy::print_stdout, reason = "a program for people: its table is what it is for")]

mod census;
mod client;
mod epoch;
mod exchange;
mod function;
mod growth;
mod history;
mod hold;
mod life;
mod own;
mod service;
mod starts;
mod summary;
mod trouble;
mod verdict;
mod victim;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Parser;
use e2e::machine;
use fastrand::Rng;

use crate::census::Census;
use crate::client::Load;
use crate::exchange::Request;
use crate::function::{FUNCTIONS, Function};
use crate::hold::Holds;
use crate::life::Life;
use crate::trouble::Trouble;

/// Breaks things around a worker under load, and tells which promises were not kept.
#[derive(Debug, Parser)]
struct Arguments {
    /// How long, at most.
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// How many calls, at most.
    #[arg(long, default_value_t = u64::MAX)]
    calls: u64,
    /// Repeats a mixture of load and faults.
    #[arg(long)]
    seed: Option<u64>,
    /// Calls at a time.
    #[arg(long, default_value_t = 8)]
    clients: u32,
}

/// The last part of a run, in which the worker lives on: whether anything grows is seen there.
const EVEN: f64 = 0.25;

/// Calm points in it.
const CALM_POINTS: u32 = 8;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if !machine::can_run() {
        return ExitCode::SUCCESS;
    }
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(0..1_000_000));
    println!("seed {seed}");
    let holds = tempfile::tempdir().expect("a directory can be made");
    let mut life = Life::begin(Holds::in_dir(holds.path()));
    let load = Arc::new(Load::new(functions(&life)));
    let told = Arc::clone(&load);
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        default(panic);
        eprintln!("seed {seed}; what came last:\n{}", told.history.last_events());
        told.gate.end();
    }));
    let census = Census::of(life.worker().site());
    std::thread::scope(|scope| {
        for function in &load.functions {
            load.deploy(function, life.epoch());
            if function.is_connected() {
                load.tell_secret(function, life.epoch());
            }
        }
        assert_eq!(load.history.failures().0, 0, "not all functions could be deployed");
        for number in 0..arguments.clients {
            let rng = Rng::with_seed(seed.wrapping_mul(1000) + u64::from(number));
            let load = &load;
            scope.spawn(move || load.client(number, rng));
        }
        scope.spawn(|| census.watch(&load));
        run(&arguments, &mut life, &load, &census, Trouble::new(Rng::with_seed(seed)));
        load.gate.end();
    });
    census.check_growth(life.epoch().number, &load);
    life.finish(&load);
    if summary::print(&load, &census, seed) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Faults of all kinds; then an even stretch with light ones and calm points.
fn run(arguments: &Arguments, life: &mut Life, load: &Load, census: &Census, mut trouble: Trouble) {
    let begun = Instant::now();
    let time = Duration::from_secs_f64(arguments.minutes * 60.0);
    let part = || {
        let by_time = begun.elapsed().as_secs_f64() / time.as_secs_f64();
        by_time.max(load.calls.load(Ordering::Relaxed) as f64 / arguments.calls as f64)
    };
    load.gate.open(Arc::clone(life.epoch()));
    while part() < 1.0 - EVEN {
        trouble.strike(life, load, true);
    }
    for point in 1..=CALM_POINTS {
        census.calm(life, load);
        while part() < 1.0 - EVEN + EVEN * f64::from(point) / f64::from(CALM_POINTS) {
            trouble.strike(life, load, false);
        }
    }
    census.calm(life, load);
}

/// All functions, but those with packages where none can be fetched, and those in micro-VMs where there are none.
fn functions(life: &Life) -> Vec<&'static Function> {
    let packaged = FUNCTIONS.iter().find(|function| function.needs_packages());
    let fetch = packaged.map(|function| Request::deploy(function.name, &function.source(0)));
    let way = life.epoch().way(true);
    let refused =
        fetch.and_then(|request| way.exchange(&request).ok()).filter(|answer| answer.status == 503);
    if let Some(refused) = &refused {
        machine::skip("network", &refused.text());
    }
    let machines = std::fs::exists("/dev/kvm").unwrap_or(false);
    if !machines {
        machine::skip("kvm", "functions in micro-VMs need KVM");
    }
    FUNCTIONS
        .iter()
        .filter(|function| refused.is_none() || !function.needs_packages())
        .filter(|function| machines || !function.is_machine())
        .collect()
}
