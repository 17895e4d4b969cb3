//! Isolation: no-op calls in SOCK's container and in a general-purpose one beside our own, in the same code path, and
//! what each choice costs by itself.

use std::time::Duration;

use anyhow::Result;

use super::{Measured, ratio, sweep, throughput_latency};
use crate::load::Target;
use crate::plot::Plot;
use crate::run::Run;
use crate::sample::Mode;
use crate::stage::{NO_ZYGOTE, NOTHING_KEPT, Stage};

pub(super) const FIGURE: &str = "isolation";
pub(super) const TITLE: &str = "No-op calls in each isolation, with and without zygote";

/// With a zygote: the recipes that have one, then our own with one choice changed.
const FORKED: [&str; 6] =
    ["lean", "sock", "lean,root=bind", "lean,own=ipc+uts", "lean,own=net", "lean,cgroups=fresh"];

/// Without: the recipes, then the general one with one choice changed.
const FRESH: [&str; 6] = [
    "lean",
    "sock",
    "general",
    "general,root=detached",
    "general,own=mnt+ipc+uts+cgroup",
    "general,cgroups=pooled",
];

fn forked(isolation: &str) -> String {
    format!("{isolation}, zygote")
}

fn fresh(isolation: &str) -> String {
    format!("{isolation}, no zygote")
}

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let mut run = Run::new(FIGURE, TITLE);
    run.method = vec![
        "closed loops in interleaved rounds over HTTP; 2000 functions called in turn, each call a new sandbox that is destroyed afterwards".to_owned(),
        "an arm is a value of the setting `container_recipe` (docs/developer/decisions/0006-isolation-recipes.md), otherwise the worker as it comes: what is prepared ahead is in the processor time and in the throughput".to_owned(),
        "`general` makes what Docker makes for each container except a veth pair, a union file system and the processes of an engine".to_owned(),
    ];
    let (levels, rounds, time) = stage.amount(
        (&[1, 10][..], 5, Duration::from_millis(2500)),
        (&[1, 10][..], 1, Duration::from_millis(300)),
    );
    let mut workers = Vec::new();
    for isolation in FORKED {
        let settings = [NOTHING_KEPT, ("container_recipe", isolation)];
        workers.push(stage.worker(&forked(isolation), &settings, 10).await?);
    }
    for isolation in FRESH {
        let settings = [NO_ZYGOTE, NOTHING_KEPT, ("container_recipe", isolation)];
        workers.push(stage.worker(&fresh(isolation), &settings, 10).await?);
    }
    stage.rest(&mut run).await?;
    let arms: Vec<&dyn Target> = workers.iter().map(|worker| worker as &dyn Target).collect();
    sweep(&mut run, &arms, levels, rounds, time).await?;

    for &level in levels {
        for isolation in &FORKED[1..] {
            let pair = (forked("lean"), forked(isolation));
            run.comparisons.push(ratio(&run, (&pair.0, &pair.1), level, "", None));
        }
        for isolation in &FRESH[1..] {
            let pair = (fresh("lean"), fresh(isolation));
            run.comparisons.push(ratio(&run, (&pair.0, &pair.1), level, "", None));
        }
    }
    let plot = Plot {
        title: TITLE.to_owned(),
        x: "calls a second (closed loops; labels: clients)".to_owned(),
        y: "mean latency, ms".to_owned(),
        log_x: true,
        log_y: true,
        room: 1.0,
        lines: throughput_latency(&run, &arms, Mode::Closed),
    };
    for worker in workers {
        worker.stop().await?;
    }
    Ok(Measured { run, plots: vec![("plot", plot)] })
}
