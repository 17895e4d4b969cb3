//! The table of targets: cold calls, calls to paused instances, memory.
//!
//! *Cold*: a distinct function, never called since its worker started, its code loaded nowhere. Each phase therefore has
//! workers of its own, and no phase calls more functions than there are. All work done ahead of calls and after them is
//! in the processor time and in the throughput.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::resumes::{Frozen, Resumes};
use super::{Measured, at_least, at_most, density};
use crate::baselines::fresh_interpreter::FreshInterpreter;
use crate::baselines::os_fork::OsFork;
use crate::load::{Target, Until, closed, open};
use crate::plot::{Line, Plot};
use crate::run::Run;
use crate::sample::{Mode, float};
use crate::stage::{NO_ZYGOTE, NOTHING_KEPT, Stage};
use crate::worker::Worker;

pub(super) const FIGURE: &str = "cold_targets";
pub(super) const TITLE: &str =
    "Cold calls through HTTP to 2000 distinct functions, calls to paused instances, memory";

const COLD: &str = "cold";
const DESTROYED: &str = "cold, destroyed after the call";
const NO_ZYGOTES: &str = "cold, no zygote";
const BACK_TO_BACK: &str = "paused, back to back";
const IDLE: &str = "paused, 100 ms idle";
const OPEN_RATE: f64 = 1.0;

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let mut run = Run::new(FIGURE, TITLE);
    run.method = vec![
        format!("`{COLD}`: the worker as it comes: the instance is paused and kept after its call, and the oldest are destroyed once 1024 are kept"),
        format!("`{DESTROYED}`: the same with `handler_cache = false`"),
        "both call 2000 distinct functions one at a time, and 2000 ten at a time, the worker started anew between".to_owned(),
        "open: a distinct function each second after five seconds of nothing; latency from when the call was due".to_owned(),
        "paused: before each call the freezer of the instance reads frozen; waiting for that is not part of the call".to_owned(),
        "memory: `MemAvailable` over the number of paused instances, least squares; raw/memory.csv".to_owned(),
    ];
    let fork = OsFork::start(&stage.rootfs)?;
    let fresh = FreshInterpreter::new(&stage.rootfs);
    for arm in [&fork as &dyn Target, &fresh] {
        arm.shoot(0).await?;
    }
    one_at_a_time(stage, &mut run, &fork, &fresh).await?;
    ten_at_a_time(stage, &mut run).await?;
    slowly(stage, &mut run).await?;
    let cost = kept(stage, &mut run).await?;
    compare(&mut run, cost);
    let plot = plot(&run);
    Ok(Measured { run, plots: vec![("plot", plot)] })
}

async fn workers(stage: &Stage, clients: usize) -> Result<(Worker, Worker)> {
    let kept = stage.worker(COLD, &[], clients).await?;
    Ok((kept, stage.worker(DESTROYED, &[NOTHING_KEPT], clients).await?))
}

async fn one_at_a_time(
    stage: &Stage,
    run: &mut Run,
    fork: &OsFork,
    fresh: &FreshInterpreter,
) -> Result<()> {
    let (kept, destroyed) = workers(stage, 1).await?;
    let without = stage.worker(NO_ZYGOTES, &[NO_ZYGOTE], 1).await?;
    stage.rest(run).await?;
    let (rounds, few, many) = stage.amount((5, 100, 400), (2, 5, 20));
    for round in 0..rounds {
        let mut arms: [(&dyn Target, usize); 5] =
            [(&kept, many), (&destroyed, many), (&without, few), (fork, many), (fresh, few)];
        arms.rotate_left(round as usize % 5);
        for (arm, calls) in arms {
            run.add(closed(arm, round, 1, Until::Calls(calls)).await?);
        }
    }
    for worker in [kept, destroyed, without] {
        never_twice(&worker)?;
        worker.stop().await?;
    }
    Ok(())
}

async fn ten_at_a_time(stage: &Stage, run: &mut Run) -> Result<()> {
    let (kept, destroyed) = workers(stage, 10).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (rounds, calls) = stage.amount((4, 500), (2, 30));
    for round in 0..rounds {
        let mut arms = [&kept, &destroyed];
        arms.rotate_left(round as usize % 2);
        for arm in arms {
            run.add(closed(arm, round, 10, Until::Calls(calls)).await?);
        }
    }
    for worker in [kept, destroyed] {
        never_twice(&worker)?;
        worker.stop().await?;
    }
    Ok(())
}

async fn slowly(stage: &Stage, run: &mut Run) -> Result<()> {
    let worker = stage.worker(COLD, &[], 1).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    run.add(open(&worker, 0, OPEN_RATE, stage.amount(150, 5)).await?);
    never_twice(&worker)?;
    worker.stop().await
}

async fn kept(stage: &Stage, run: &mut Run) -> Result<density::Cost> {
    let worker = stage.worker(COLD, &[], 1).await?;
    let (back_to_back, idle) = stage.amount((2000, 200), (20, 5));
    let pause = Duration::from_millis(100);
    for (name, idle_for, number, calls) in
        [(BACK_TO_BACK, Duration::ZERO, 0, back_to_back), (IDLE, pause, 1, idle)]
    {
        let resumes = Resumes::prepare(&worker, name, number, 1, idle_for).await?;
        for round in 0..2 {
            run.add(closed(&Frozen(&resumes), round, 1, Until::Calls(calls / 2)).await?);
        }
        run.method.push(resumes.proof());
    }
    worker.stop().await?;
    let worker = stage.worker(COLD, &[], 1).await?;
    let (instances, step) = stage.amount((500, 25), (20, 5));
    let cost = density::measure(&worker, &worker, run, "memory", (instances, step)).await?;
    worker.stop().await?;
    Ok(cost)
}

pub(super) fn never_twice(worker: &Worker) -> Result<()> {
    ensure!(!worker.came_round(), "{} functions were called more than once", worker.name());
    Ok(())
}

fn compare(run: &mut Run, cost: density::Cost) {
    let p50 = |arm: &str, mode, level| quantile(run, arm, mode, level, |q| q.p50);
    let p99 = |arm: &str, mode, level| quantile(run, arm, mode, level, |q| q.p99);
    let mib = f64::from(1 << 20);
    let mut comparisons = Vec::new();
    for arm in [COLD, DESTROYED] {
        let (one, ten) = (run.row(arm, Mode::Closed, 1.0), run.row(arm, Mode::Closed, 10.0));
        let median = p50(arm, Mode::Closed, 1.0);
        let floor = p50("os.fork()", Mode::Closed, 1.0);
        comparisons.extend([
            at_most(&format!("`{arm}`, one at a time, p50"), median, " ms", 2.5),
            at_most(
                &format!("`{arm}`, over bare os.fork() ({floor:.2} ms)"),
                median / floor,
                "×",
                8.0,
            ),
            at_most(
                &format!("`{arm}`, one at a time, p99"),
                p99(arm, Mode::Closed, 1.0),
                " ms",
                10.0,
            ),
            at_most(
                &format!("`{arm}`, processor time a call, whole machine, load generator included"),
                one.machine_cpu_ms.unwrap_or(f64::NAN),
                " ms",
                2.5,
            ),
            at_most(
                &format!("`{arm}`, processor time a call, worker, warden and sandboxes"),
                one.group_cpu_ms.unwrap_or(f64::NAN),
                " ms",
                2.5,
            ),
            at_least(&format!("`{arm}`, ten at a time"), ten.throughput, "/s", 500.0),
        ]);
    }
    let fresh = p50("fresh interpreter", Mode::Closed, 1.0);
    comparisons.extend([
        at_most("open, 1/s after 5 s idle, p50", p50(COLD, Mode::Open, OPEN_RATE), " ms", 4.0),
        at_most("open, 1/s after 5 s idle, p99", p99(COLD, Mode::Open, OPEN_RATE), " ms", 15.0),
        at_most(&format!("`{NO_ZYGOTES}` over the fresh interpreter ({fresh:.2} ms)"), p50(NO_ZYGOTES, Mode::Closed, 1.0) / fresh, "×", 1.5),
        at_most(&format!("`{BACK_TO_BACK}`, p50"), p50(BACK_TO_BACK, Mode::Closed, 1.0), " ms", 0.35),
        at_most(&format!("`{IDLE}`, p50"), p50(IDLE, Mode::Closed, 1.0), " ms", 1.0),
        at_most(
            &format!(
                "host memory a paused instance (± {:.2}; page tables {:.2}, other kernel {:.2}; its cgroup counts {:.2})",
                cost.available.1 / mib, cost.page_tables / mib, cost.kernel / mib, cost.cgroup / mib
            ),
            cost.available.0 / mib,
            " MiB",
            2.0,
        ),
    ]);
    run.comparisons = comparisons;
}

fn quantile(
    run: &Run,
    arm: &str,
    mode: Mode,
    level: f64,
    of: impl Fn(&crate::sample::Quantiles) -> f64,
) -> f64 {
    run.row(arm, mode, level).latency_ms.as_ref().map_or(f64::NAN, of)
}

/// Latency by rank: the tail is as visible as the middle.
fn plot(run: &Run) -> Plot {
    let arms = [
        (COLD, Mode::Closed, 1.0, "cold, one at a time"),
        (DESTROYED, Mode::Closed, 1.0, "the same, destroyed after the call"),
        (COLD, Mode::Open, OPEN_RATE, "cold, 1/s, open"),
        (NO_ZYGOTES, Mode::Closed, 1.0, NO_ZYGOTES),
        (BACK_TO_BACK, Mode::Closed, 1.0, BACK_TO_BACK),
        (IDLE, Mode::Closed, 1.0, IDLE),
        ("os.fork()", Mode::Closed, 1.0, "os.fork()"),
        ("fresh interpreter", Mode::Closed, 1.0, "fresh interpreter"),
    ];
    let lines = arms.map(|(arm, mode, level, name)| {
        let cells = run
            .cells
            .iter()
            .filter(|c| c.arm == arm && c.mode == mode && (c.level - level).abs() < 1e-9);
        let mut values: Vec<f64> =
            cells.flat_map(|cell| &cell.samples).map(|sample| sample.latency_ms).collect();
        values.sort_by(f64::total_cmp);
        let n = values.len();
        let points = (0..=100usize).filter(|_| n > 0).map(|percent| {
            let at = (percent * (n - 1)) / 100;
            (values[at], float(percent), String::new())
        });
        Line { name: name.to_owned(), points: points.collect(), cited: false }
    });
    Plot {
        title: TITLE.to_owned(),
        x: "latency, ms".to_owned(),
        y: "per cent of calls".to_owned(),
        log_x: true,
        log_y: false,
        room: 12.0,
        lines: lines.into_iter().filter(|line| !line.points.is_empty()).collect(),
    }
}
