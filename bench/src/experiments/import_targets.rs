//! Cold calls where the exact zygote is there: twenty libraries, the functions' own work taken off, beside `os.fork()`
//! of an interpreter that has imported the same.

use anyhow::Result;

use super::Measured;
use crate::baselines::os_fork::OsFork;
use crate::calls::{self, Calls, WORK};
use crate::libraries::{self, Copies, Library};
use crate::load::{Target, Until, closed};
use crate::plot::{Line, Plot};
use crate::run::{Comparison, Run};
use crate::sample::{Sample, float, median};
use crate::stage::{NOTHING_KEPT, Stage};

pub(super) const FIGURE: &str = "import_targets";
pub(super) const TITLE: &str =
    "Cold calls to functions of twenty libraries, the exact zygote present, beside os.fork()";

/// Milliseconds that a cold call may take beyond its own work, whatever the library.
const MOST_MS: f64 = 6.0;

/// What it may take of `os.fork()`, and milliseconds beyond.
const OF_FORK: (f64, f64) = (1.5, 2.0);

/// Copies of each function that are called before, so that the zygotes come.
const WARMERS: usize = 3;

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let mut run = Run::new(FIGURE, TITLE);
    let (rounds, calls) = stage.amount((4, 15), (1, 3));
    let libraries = if stage.quick { libraries::some()? } else { libraries::all()? };
    let copies = WARMERS + rounds as usize * calls;
    run.method = vec![
        "libraries: the twenty of bench/libraries, current names and versions in the five categories of SOCK's figures 6 and 7, whose labels are in a picture; each function does a little work and fails when the library's answer is wrong".to_owned(),
        format!("cold: {} distinct functions a library, each called once since the worker started, one at a time, `handler_cache = false`; {WARMERS} others of the same lock were called before until they imported nothing from packages any more", copies - WARMERS),
        "a measured call that imported anything from packages says so among its starts; the worker's own policy (`utility`) made the zygotes".to_owned(),
        "as in every worker, a zygote has two to eight forks made and rehearsed ahead (`spares`): a call takes one of these, unless calls come faster than they are made; `os.fork()` forks when it is asked".to_owned(),
        "compared: time through HTTP to the first byte less the function's own work, which it measures itself (`own_ms` in the samples)".to_owned(),
        "`os.fork()`: an interpreter of the same base that ran the same function's file, collector frozen, asked through a pipe, until the child's first byte; no isolation, no HTTP, nothing to load".to_owned(),
    ];
    let wheels = libraries::wheels(stage.work(), &stage.rootfs).await?;
    let site = libraries::site(&wheels, &stage.rootfs, &[]).await?;
    let kind = Copies::of(&libraries, &wheels).await?;
    let template = stage.template(&kind, copies * libraries.len()).await?;
    let worker = stage.worker_on(&template, "worker", &[NOTHING_KEPT], 1).await?;
    let mut arms: Vec<(Calls<'_>, OsFork)> = Vec::new();
    for library in &libraries {
        let left = calls::warm(&worker, library, 0..WARMERS).await?;
        if left > 0 {
            run.warnings.push(format!(
                "{}: no exact zygote came, {left} modules were still imported",
                library.name
            ));
        }
        let calls =
            Calls::new(&worker, library.name.clone(), WORK, library.functions(WARMERS..copies));
        let fork = OsFork::having_run(&fork_name(library), &stage.rootfs, &site, &library.file)?;
        fork.shoot(0).await?;
        arms.push((calls, fork));
    }
    worker.settle().await?;
    stage.rest(&mut run).await?;
    for round in 0..rounds {
        for turn in 0..arms.len() {
            let (cold, fork) = &arms[(turn + round as usize) % arms.len()];
            run.add(closed(cold, round, 1, Until::Calls(calls)).await?);
            run.add(closed(fork, round, 1, Until::Calls(calls)).await?);
        }
    }
    worker.stop().await?;
    let measured: Vec<_> = libraries.iter().map(|library| Net::of(&run, library)).collect();
    run.comparisons = measured.iter().map(Net::comparison).collect();
    run.comparisons.push(all(&measured));
    let plot = plot(&measured);
    Ok(Measured { run, plots: vec![("plot", plot)] })
}

fn fork_name(library: &Library) -> String {
    format!("{}, os.fork()", library.name)
}

/// Medians of one library.
struct Net {
    library: String,
    /// Milliseconds of a cold call beyond its own work.
    cold: f64,
    /// Its own work.
    own: f64,
    fork: f64,
}

impl Net {
    fn of(run: &Run, library: &Library) -> Self {
        let cold = run.answered(&library.name);
        let middle = |of: fn(&Sample) -> f64, samples: &[&Sample]| {
            median(&samples.iter().map(|sample| of(sample)).collect::<Vec<_>>())
        };
        Self {
            library: library.requirement.clone(),
            cold: middle(|sample| sample.latency_ms - sample.own_ms, &cold),
            own: middle(|sample| sample.own_ms, &cold),
            fork: middle(|sample| sample.latency_ms, &run.answered(&fork_name(library))),
        }
    }

    fn allowed(&self) -> f64 {
        MOST_MS.min(OF_FORK.0 * self.fork + OF_FORK.1)
    }

    fn comparison(&self) -> Comparison {
        Comparison {
            what: format!("{}: cold call less its own work, p50", self.library),
            paper: String::new(),
            target: format!("≤ {:.2} ms", self.allowed()),
            ours: format!(
                "{:.2} ms; os.fork() {:.2} ms; own work {:.2} ms",
                self.cold, self.fork, self.own
            ),
            reached: self.cold.is_finite().then_some(self.cold <= self.allowed()),
        }
    }
}

fn all(measured: &[Net]) -> Comparison {
    let reached = measured.iter().filter(|net| net.cold <= net.allowed()).count();
    let colds: Vec<_> = measured.iter().map(|net| net.cold).collect();
    Comparison {
        what: format!(
            "libraries within {MOST_MS} ms and {} × os.fork() + {} ms",
            OF_FORK.0, OF_FORK.1
        ),
        paper: String::new(),
        target: format!("all {}", measured.len()),
        ours: format!("{reached}; the median library takes {:.2} ms", median(&colds)),
        reached: Some(reached == measured.len()),
    }
}

fn plot(measured: &[Net]) -> Plot {
    let mut sorted: Vec<&Net> = measured.iter().collect();
    sorted.sort_by(|a, b| a.cold.total_cmp(&b.cold));
    let line = |name: &str, of: &dyn Fn(&Net) -> (f64, String)| {
        let points = (1usize..).zip(&sorted).map(|(at, net)| {
            let (ms, label) = of(net);
            (float(at), ms, label)
        });
        Line { name: name.to_owned(), points: points.collect(), cited: false }
    };
    let label = |net: &Net| net.library.split("==").next().unwrap_or_default().to_owned();
    Plot {
        title: TITLE.to_owned(),
        x: "libraries, by cold call".to_owned(),
        y: "ms, median".to_owned(),
        log_x: false,
        log_y: false,
        room: 1.3,
        lines: vec![
            line("cold call less its own work", &|net| (net.cold, label(net))),
            line("allowed", &|net| (net.allowed(), String::new())),
            line("os.fork()", &|net| (net.fork, String::new())),
        ],
    }
}
