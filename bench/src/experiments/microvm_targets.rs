//! The table of targets for micro-VMs: calls to fresh clones and to machines that are reset, memory of a clone.
//!
//! The functions do the same in all arms: they take JSON apart and put it together again, or multiply matrices.

use anyhow::Result;

use super::density::Cost;
use super::{Measured, at_most, density, on_kvm, shares, take_turns};
use crate::functions::{self, Function, Kind};
use crate::guests::{Frozen, Point, Program, build};
use crate::load::{Pending, Shot, Target, open};
use crate::run::Run;
use crate::sample::Mode;
use crate::stage::{NOTHING_KEPT, Stage};
use crate::worker::Worker;

pub(super) const FIGURE: &str = "microvm_targets";
pub(super) const TITLE: &str = "Calls through HTTP to micro-VMs: fresh clones, machines reset after each call, memory of a clone";

const EVENT: &str = "{\"words\": [\"a\", \"b\", \"c\"], \"numbers\": [1, 2.5, 3]}";
const CLONE: &str = "fresh clone";
const RESET: &str = "reset after each call";
const CONTAINER: &str = "container, forked";
const NUMPY_CLONE: &str = "numpy, fresh clone";
const NUMPY_RESET: &str = "numpy, reset after each call";
/// Calls a second of the open loops: few enough that every call finds a clone that was made ahead.
const OPEN_RATE: f64 = 20.0;

/// What the functions of an arm are.
#[derive(Clone, Copy, Debug)]
struct Machines {
    name: &'static str,
    settings: &'static str,
    head: &'static str,
    body: &'static str,
}

const JSON: &str = "import json\n\n\ndef handler(event, context):\n    \
    return json.loads(json.dumps({'got': event, 'squares': [n * n for n in range(50)]}))\n";
const NUMPY: &str = "import numpy\n\n\ndef handler(event, context):\n    \
    matrix = numpy.arange(10_000.0).reshape(100, 100)\n    return float((matrix @ matrix).sum())\n";
/// The smallest guest there is of an unmodified program.
const HELLO: &str = "#include <unistd.h>\n\
    int main(void) { char c; while (read(3, &c, 1) == 1) write(3, \"x\", 1); return 0; }\n";
const NEEDS_NUMPY: &str = "# dependencies = [\"numpy==2.2.6\"]\n";

const CLONES: Machines = Machines {
    name: "microvm-json",
    settings: "# isolation = \"microvm\"\n",
    head: "",
    body: JSON,
};
const RESETS: Machines = Machines {
    name: "microvm-json-reset",
    settings: "# isolation = \"microvm\"\n# reset = \"always\"\n",
    ..CLONES
};
const CONTAINERS: Machines = Machines { name: "container-json", settings: "", ..CLONES };
const NUMPY_CLONES: Machines =
    Machines { name: "microvm-numpy", head: NEEDS_NUMPY, body: NUMPY, ..CLONES };
const NUMPY_RESETS: Machines =
    Machines { name: "microvm-numpy-reset", head: NEEDS_NUMPY, body: NUMPY, ..RESETS };

impl Kind for Machines {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn function(&self, number: usize) -> Result<Function> {
        let Self { settings, head, body, .. } = self;
        let source =
            format!("# /// script\n{head}# [tool.lambswool]\n{settings}# ///\n# {number}\n{body}");
        Ok(Function { name: functions::name(number), source })
    }
}

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let mut run = Run::new(FIGURE, TITLE);
    on_kvm(&mut run);
    run.method = vec![
        format!(
            "`{CLONE}`: `handler_cache = false`: each call has a clone of its own, which loads the code; clones are kept ready that have touched what a call touches, and making them is in the processor time"
        ),
        format!(
            "`{RESET}`: `reset = \"always\"`: one machine, put back after each call to where its code had been loaded; the reset is done when the next call is answered, or it waits for it"
        ),
        format!("`{CONTAINER}`: the same function in containers, `handler_cache = false`"),
        format!("closed loop: the next call is sent when the last was answered, so that making clones competes with calls; open loop: {OPEN_RATE} calls a second, latency from when a call was due"),
        "memory: `MemAvailable` over the number of live clones that have answered, least squares; with it the proportional set size of the monitor, page tables and the kernel's other parts; raw/memory*.csv"
            .to_owned(),
        "Python's clones are kept by a worker; those of a program in C that says one byte by the load generator itself".to_owned(),
    ];
    let mut workers = Vec::new();
    for (name, kind, settings) in [
        (CLONE, CLONES, &[NOTHING_KEPT][..]),
        (RESET, RESETS, &[]),
        (CONTAINER, CONTAINERS, &[NOTHING_KEPT]),
        (NUMPY_CLONE, NUMPY_CLONES, &[NOTHING_KEPT]),
        (NUMPY_RESET, NUMPY_RESETS, &[]),
    ] {
        match start(stage, name, kind, settings).await {
            Ok(worker) => workers.push(worker),
            Err(error) if kind.head.is_empty() => return Err(error),
            Err(error) => run.warnings.push(format!("{name}: not measured: {error:#}")),
        }
    }
    stage.rest(&mut run).await?;
    let (rounds, calls) = stage.amount((5, 200), (2, 10));
    let arms: Vec<_> = workers.iter().map(|arm| (arm as &dyn Target, calls)).collect();
    take_turns(&mut run, &arms, rounds).await?;
    for arm in &workers {
        if [CLONE, CONTAINER, NUMPY_CLONE].contains(&arm.name()) {
            run.add(open(arm, 0, OPEN_RATE, calls).await?);
        }
    }
    for Again(worker) in workers {
        worker.stop().await?;
    }
    let template = stage.template(&CLONES, stage.amount(200, 20)).await?;
    let worker = stage.worker_on(&template, CLONE, &[], 1).await?;
    let (clones, step) = stage.amount((150, 15), (10, 5));
    let cost = density::measure(&worker, &worker, &mut run, "memory", (clones, step)).await?;
    worker.stop().await?;
    let dir = stage.scratch().join("hello");
    build(&dir, HELLO, &[])?;
    let hello = Frozen::make(&Program::built(&dir, &[]), Point::Rehearsed)?.learned()?;
    let mut kept = Vec::new();
    let keep = || {
        kept.push(hello.clone_that_answered()?);
        Ok(())
    };
    let hello_cost = density::measure_here(keep, &mut run, "memory-hello", (clones, step))?;
    compare(&mut run, cost, hello_cost);
    let arms = [CLONE, RESET, CONTAINER, NUMPY_CLONE, NUMPY_RESET];
    let mut plot = shares(&run, arms, 1.2);
    plot.x = format!("latency, ms ({})", run.here);
    Ok(Measured { run, plots: vec![("plot", plot)] })
}

/// A worker with one function of a kind, called until nothing is made for the first time any more.
async fn start(
    stage: &Stage,
    name: &str,
    kind: Machines,
    settings: &[(&str, &str)],
) -> Result<Again> {
    let template = stage.template(&kind, 1).await?;
    let worker = Again(stage.worker_on(&template, name, settings, 1).await?);
    for _ in 0..5 {
        worker.shoot(0).await?;
        worker.0.settle().await?;
    }
    Ok(worker)
}

/// A worker whose first function is called again and again.
struct Again(Worker);

impl Target for Again {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn shoot(&self, _client: usize) -> Pending<'_, Shot> {
        Box::pin(async move { Ok(self.0.ask(&functions::name(0), EVENT).await?.0) })
    }

    fn group(&self) -> Option<&crate::cpu::CpuGroup> {
        self.0.group()
    }
}

fn compare(run: &mut Run, cost: Cost, hello: Cost) {
    let median_at = |arm: &str, mode: Mode, load: f64| {
        let row = run.row(arm, mode, load);
        row.latency_ms.map_or(f64::NAN, |latency| latency.p50)
    };
    let median = |arm: &str| median_at(arm, Mode::Closed, 1.0);
    let steady = |arm: &str| median_at(arm, Mode::Open, OPEN_RATE);
    let mib = f64::from(1 << 20);
    let mut comparisons = vec![
        at_most(
            "Python, JSON: fresh clone, p50 (zeroboot's page says ~8 ms)",
            median(CLONE),
            " ms",
            4.0,
        ),
        at_most("the same at 20 calls a second", steady(CLONE), " ms", 4.0),
        at_most("Python, JSON: reset after each call, p50", median(RESET), " ms", 0.7),
        at_most("numpy: fresh clone, p50", median(NUMPY_CLONE), " ms", 7.0),
        at_most("the same at 20 calls a second", steady(NUMPY_CLONE), " ms", 7.0),
        at_most("numpy: reset after each call, p50", median(NUMPY_RESET), " ms", 1.2),
    ];
    let charged = "memory of a live clone, Python, as its family's cgroup counts it";
    comparisons.push(at_most(charged, cost.cgroup / mib, " MiB", 2.0));
    for (what, cost, target) in [("Python", cost, 2.0), ("hello", hello, 1.2)] {
        let Cost { available: (available, error), monitors, page_tables, kernel, .. } = cost;
        // More than was taken before: others have given memory back meanwhile.
        let available = if available > 0.0 { available / mib } else { f64::NAN };
        let by_host =
            format!("memory of a live clone, {what}, by `MemAvailable` (± {:.2})", error / mib);
        comparisons.push(at_most(&by_host, available, " MiB", target));
        let by_parts = format!(
            "the same by its parts: the monitor's PSS {:.2}, page tables {:.2}, other kernel {:.2}",
            monitors / mib,
            page_tables / mib,
            kernel / mib
        );
        comparisons.push(at_most(
            &by_parts,
            (monitors + page_tables + kernel) / mib,
            " MiB",
            target,
        ));
    }
    run.comparisons = comparisons;
}
