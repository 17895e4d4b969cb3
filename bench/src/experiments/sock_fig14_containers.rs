//! SOCK, Figure 14: no-op calls without caches and without zygotes, against Docker, by number of clients.
//!
//! The paper's OpenLambda keeps a server inside each container; here the baselines start an interpreter that says one
//! byte, which is less work than a call. Ours is called over HTTP, code loaded, instance destroyed after each call.

use std::time::Duration;

use anyhow::Result;

use super::{Measured, ramp, ratio, sweep, throughput_latency};
use crate::load::Target;
use crate::plot::{Line, Plot};
use crate::run::{Comparison, Run};
use crate::sample::Mode;
use crate::stage::{Baselines, NO_ZYGOTE, NOTHING_KEPT, Stage};
use crate::worker::Worker;

pub(super) const FIGURE: &str = "sock_fig14";
pub(super) const TITLE: &str =
    "SOCK Figure 14: no-op calls, nothing cached, against Docker and others, by number of clients";

const OURS: &str = "wool, no zygote";
const FORKED: &str = "wool, zygote";

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let title = format!(
        "{TITLE} ({} processors here, 8 in the paper)",
        std::thread::available_parallelism()?
    );
    let mut run = Run::new(FIGURE, &title);
    run.method = vec![
        "closed loops of 1 to 20 clients in interleaved rounds; open loops at fractions of each arm's best closed loop, latency from when a call was due".to_owned(),
        "wool: a call over HTTP on kept connections to functions that are called in turn and have no instance (2000 of them, so faster arms call each more than once: a new sandbox each time); nothing is kept after a call".to_owned(),
        "Docker: create, attach, start, first byte, remove, through the engine's API; runc, bubblewrap, fresh interpreter: from exec to first byte, then to the end; os.fork(): one thread that forks".to_owned(),
        "every arm runs the same base layer with the same bytecode".to_owned(),
    ];
    let baselines = stage.baselines(&mut run).await?;
    let ours = stage.worker(OURS, &[NO_ZYGOTE, NOTHING_KEPT], 20).await?;
    let forked = stage.worker(FORKED, &[NOTHING_KEPT], 20).await?;
    let outcome = load(stage, &mut run, &ours, &forked, &baselines).await;
    // In any case: an engine would stay behind.
    baselines.stop().await?;
    let plots = outcome?;
    ours.stop().await?;
    forked.stop().await?;
    Ok(Measured { run, plots })
}

async fn load(
    stage: &Stage,
    run: &mut Run,
    ours: &Worker,
    forked: &Worker,
    baselines: &Baselines,
) -> Result<Vec<(&'static str, Plot)>> {
    baselines.warm().await?;
    stage.rest(run).await?;
    let mut arms: Vec<&dyn Target> = vec![ours, forked];
    arms.extend(baselines.arms());
    let (levels, rounds, time) = stage.amount(
        (&[1, 2, 5, 10, 20][..], 3, Duration::from_millis(2500)),
        (&[1, 10][..], 1, Duration::from_millis(300)),
    );
    sweep(run, &arms, levels, rounds, time).await?;
    let time = stage.amount(Duration::from_secs(3), Duration::from_millis(500));
    ramp(run, &arms, &[0.2, 0.4, 0.6, 0.8], time).await?;

    run.comparisons = vec![
        ratio(run, (OURS, "Docker"), 10, "18×", Some(12.0)),
        ratio(run, (FORKED, "Docker"), 10, "", Some(90.0)),
        throughput(run, OURS, "76/s"),
        throughput(run, "Docker", "4.2/s (76/18)"),
        latency(run, OURS, "130 ms"),
        latency(run, "Docker", "2470 ms (130 × 19)"),
    ];
    let mut lines = throughput_latency(run, &arms, Mode::Closed);
    let cited =
        vec![(76.0, 130.0, "SOCK, paper".to_owned()), (4.2, 2470.0, "Docker, paper".to_owned())];
    lines.push(Line {
        name: "the paper's, 10 clients, 8 cores".to_owned(),
        points: cited,
        cited: true,
    });
    let closed = Plot {
        title: run.title.clone(),
        x: "calls a second (closed loops; labels: clients)".to_owned(),
        y: "mean latency, ms".to_owned(),
        log_x: true,
        log_y: true,
        room: 1.0,
        lines,
    };
    let open = Plot {
        title: format!("{}: open loop", run.title),
        x: "calls a second that were due".to_owned(),
        y: "p99 of latency from when a call was due, ms (of fewer than 100: the largest)"
            .to_owned(),
        lines: throughput_latency(run, &arms, Mode::Open),
        ..closed.clone()
    };
    Ok(vec![("plot", closed), ("open", open)])
}

fn throughput(run: &Run, arm: &str, paper: &str) -> Comparison {
    let row = run.row(arm, Mode::Closed, 10.0);
    Comparison {
        what: format!("throughput of {arm}, 10 at a time"),
        paper: paper.to_owned(),
        target: String::new(),
        ours: format!("{:.1}/s", row.throughput),
        reached: None,
    }
}

fn latency(run: &Run, arm: &str, paper: &str) -> Comparison {
    let row = run.row(arm, Mode::Closed, 10.0);
    Comparison {
        what: format!("mean latency of {arm}, 10 at a time"),
        paper: paper.to_owned(),
        target: String::new(),
        ours: row
            .latency_ms
            .map_or_else(|| "not measured".to_owned(), |q| format!("{:.1} ms", q.mean)),
        reached: None,
    }
}
