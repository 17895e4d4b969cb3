//! SOCK, Figure 19: how many of the first 200 calls find a kept instance in limited memory, with and without an import
//! cache, whose zygotes share their pages with the instances.

use anyhow::Result;

use super::{Measured, take_turns};
use crate::calls::{Calls, REST};
use crate::libraries::{self, Copies, Library};
use crate::load::Target;
use crate::plot::{Line, Plot};
use crate::run::{Comparison, Run};
use crate::sample::float;
use crate::stage::{NO_ZYGOTE, Stage};

pub(super) const FIGURE: &str = "sock_fig19";
pub(super) const TITLE: &str =
    "SOCK Figure 19: the first 200 calls to many functions of django in limited memory";

const WITHOUT: &str = "no import cache";
const WITH: &str = "import cache";

/// Memory of the caches: kept instances alone, or three quarters for them and one for zygotes.
const MEMORY: (&str, &str, &str) = ("400MiB", "300MiB", "100MiB");

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let title = format!("{TITLE} (here {})", MEMORY.0);
    let mut run = Run::new(FIGURE, &title);
    let functions = stage.amount(100, 10);
    let (rounds, calls) = stage.amount((10, 20), (2, 10));
    run.method = vec![
        format!("one task calls {functions} functions that import django and do nothing, {} times in one random order for both arms, which take turns in rounds of {calls}; nobody has a warm start", rounds as usize * calls),
        format!("`{WITHOUT}`: {} for kept instances, each a fresh interpreter that imported. `{WITH}`: {} for kept instances and {} for zygotes", MEMORY.0, MEMORY.1, MEMORY.2),
        "memory is measured when an instance was paused: what it does not share, page tables included".to_owned(),
        "a hit of the import cache: a call without a kept instance that imported nothing from packages".to_owned(),
    ];
    let library = Library::named("django")?;
    let wheels = libraries::wheels(stage.work(), &stage.rootfs).await?;
    let kind = Copies::of(std::slice::from_ref(&library), &wheels).await?;
    let template = stage.template(&kind, functions).await?;
    let alone = [NO_ZYGOTE, ("handler_cache_bytes", MEMORY.0)];
    let without = stage.worker_on(&template, WITHOUT, &alone, 1).await?;
    let both = [("handler_cache_bytes", MEMORY.1), ("zygote_bytes", MEMORY.2)];
    let with = stage.worker_on(&template, WITH, &both, 1).await?;
    stage.rest(&mut run).await?;
    let mut random = fastrand::Rng::with_seed(19);
    let order: Vec<usize> =
        (0..rounds as usize * calls).map(|_| random.usize(..functions)).collect();
    let arms = [(WITHOUT, &without), (WITH, &with)].map(|(name, worker)| {
        Calls::new(worker, name.to_owned(), REST, library.functions(order.iter().copied()))
    });
    let turns = arms.each_ref().map(|arm| (arm as &dyn Target, calls));
    take_turns(&mut run, &turns, rounds).await?;
    for (name, worker, paper) in [(WITHOUT, without, "18 %"), (WITH, with, "56 %")] {
        let status = worker.status().await?;
        let comparison = comparison(&run, name, paper, &status["instances"]);
        run.comparisons.push(comparison);
        worker.stop().await?;
    }
    let plot = Plot {
        title,
        x: "calls".to_owned(),
        y: "hits so far".to_owned(),
        log_x: false,
        log_y: false,
        room: 1.3,
        lines: vec![
            hits(&run, WITHOUT, "kept instances, no import cache", kept),
            hits(&run, WITH, "kept instances, import cache", kept),
            hits(&run, WITH, "import cache", forked),
        ],
    };
    Ok(Measured { run, plots: vec![("plot", plot)] })
}

fn kept(start: &str) -> bool {
    start == "resume"
}

fn forked(start: &str) -> bool {
    start == "fork"
}

fn comparison(run: &Run, arm: &str, paper: &str, instances: &serde_json::Value) -> Comparison {
    let samples = run.answered(arm);
    let hits = |of: fn(&str) -> bool| samples.iter().filter(|sample| of(&sample.start)).count();
    let share = 100.0 * float(hits(kept)) / float(samples.len());
    Comparison {
        what: format!("`{arm}`: calls that found a kept instance"),
        paper: paper.to_owned(),
        target: String::new(),
        ours: format!(
            "{share:.0} %; {} instances kept at the end, {} bytes; {} further calls found all they import in a zygote",
            instances["idle"],
            instances["idle_bytes"],
            hits(forked)
        ),
        reached: None,
    }
}

/// How many calls were hits, after each call.
fn hits(run: &Run, arm: &str, name: &str, of: fn(&str) -> bool) -> Line {
    let points =
        run.answered(arm).into_iter().zip(1usize..).scan(0usize, |hits, (sample, call)| {
            *hits += usize::from(of(&sample.start));
            Some((float(call), float(*hits), String::new()))
        });
    Line { name: name.to_owned(), points: points.collect(), cited: false }
}
