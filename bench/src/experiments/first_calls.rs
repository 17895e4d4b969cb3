//! The first call ever of a function whose set no zygote matches, beside the same call when the best subset is forced.
//!
//! A pair: one function, called for the first time on either of two workers on copies of the same state. It imports a
//! library and one small module more, of a package that no other function has: only subsets of its lock are there. A
//! worker before them has learned zygotes for all libraries; both were given its tree. One worker's policy goes on
//! learning from there, and may choose, make and give up what it likes. The other keeps the tree: the best of its
//! zygotes is the largest subset, and nothing is ever built. So whatever a first call costs anybody (a lock's directory
//! that nobody has looked into, a module that nobody has read) is on both sides, and what is compared is the policy.
//!
//! That is measured twice: with nothing to build, and with other sets coming as well. Then a newcomer was called in the
//! tenth of a second before each first call, on all workers: a library, and a module that takes some tens of
//! milliseconds to import. Each is called five times in a row, so a policy that learns has zygotes to make at that
//! moment, and the first call meets that.
//!
//! Whichever of two such workers is started last takes some tenths of a millisecond less to load: with the same zygotes on
//! both, p50 was 0.912× with the learning one last and 1.041× with it first. So there are two of each, started in the
//! order learning, keeping, keeping, learning, and warmed side by side. An earlier run had compared the very worker that
//! had learned with one started after it. One before that had the small module in the second function's own code, which
//! saved that one a directory to look into.

use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hyper::Method;

use super::{Measured, shares};
use crate::calls::{self, Calls, REST};
use crate::functions::{Function, Kind};
use crate::index::Index;
use crate::libraries::{self, Library};
use crate::load::{Until, closed};
use crate::run::{Comparison, Run};
use crate::sample::{median, quantile};
use crate::stage::{NOTHING_KEPT, Stage};
use crate::wheel;
use crate::worker::Worker;

pub(super) const FIGURE: &str = "first_calls";
pub(super) const TITLE: &str =
    "First calls of functions whose set no zygote matches, beside forcing the best subset";

const FIRST: &str = "first call";
const FORCED: &str = "best subset forced";

/// What both are called while other sets come.
const BUSY: [&str; 2] = ["first call, others coming", "best subset forced, others coming"];

/// How much longer a first call may take.
const MOST: f64 = 1.05;

/// Copies of each library's function that are called before, so that the zygotes come.
const WARMERS: usize = 3;

/// Times in a row that a newcomer is called.
const REPEATS: usize = 5;

/// A newcomer was called so long before a first call at most.
const SPREAD: Duration = Duration::from_millis(100);

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let mut run = Run::new(FIGURE, TITLE);
    let functions = stage.amount(200, 6);
    let libraries = if stage.quick { libraries::some()? } else { libraries::all()? };
    run.method = vec![
        format!("{functions} functions over {} libraries, each called for the first time on four workers on copies of one state, one at a time, who begins changing from function to function; before each call all workers are at rest", libraries.len()),
        "each function locks a library and a package of one small module that no other function has".to_owned(),
        "two workers of each policy, the first and the last started and the two between; all were given the zygotes that a worker before them had learned for all libraries, with `handler_cache = false`".to_owned(),
        format!("`{FIRST}`: by the policy `utility`, which goes on learning; where nothing but that module had to be imported, the largest subset served it"),
        format!("`{FORCED}`: by the policy `static`: the largest subset serves, and nothing is built"),
        format!("others coming: as many functions more, each called within {} ms after the answer of a newcomer on the same worker, at moments spread evenly: a newcomer locks a library and a module that takes tens of milliseconds to import, and is called {REPEATS} times, so that `utility` has zygotes to make just then", SPREAD.as_millis()),
    ];
    let wheels = libraries::wheels(stage.work(), &stage.rootfs).await?;
    let kind = Sets::of(&libraries, functions, &wheels, &stage.work().join("extras")).await?;
    let template = stage.template(&kind, kind.functions()).await?;
    let tree = stage.scratch().join("zygotes.json");
    learn(stage, &template, &libraries, &tree).await?;
    let seed = ("zygote_seed", tree.to_str().context("the tree's path is no text")?);
    let learning = [NOTHING_KEPT, seed];
    let keeping = [NOTHING_KEPT, seed, ("zygotes", "static")];
    let mut workers = Vec::new();
    for (name, arm, settings) in [
        ("learning", 0, &learning[..]),
        ("given", 1, &keeping[..]),
        ("given-2", 1, &keeping[..]),
        ("learning-2", 0, &learning[..]),
    ] {
        workers.push((arm, stage.worker_on(&template, name, settings, 1).await?));
    }
    for library in &libraries {
        for (_, worker) in &workers {
            let left = calls::warm(worker, library, 0..WARMERS).await?;
            ensure!(left == 0, "{}: the given zygotes lack {left} of its modules", library.name);
        }
    }
    stage.rest(&mut run).await?;
    let mut rounds = 0u32..;
    let names = (0..functions).map(|number| Set::First(number).name()).collect::<Vec<_>>();
    let mut arms: Vec<Calls<'_>> = Vec::new();
    for (arm, worker) in &workers {
        arms.push(Calls::new(worker, [FIRST, FORCED][*arm].to_owned(), REST, names.clone()));
    }
    for _ in 0..functions {
        for (arm, round) in arms.iter().zip(&mut rounds) {
            run.add(closed(arm, round, 1, Until::Calls(1)).await?);
        }
        arms.rotate_left(1);
    }
    drop(arms);
    let before = zygotes(&workers).await?;
    let names = (0..functions).map(|number| Set::Late(number).name()).collect::<Vec<_>>();
    let mut arms: Vec<(&Worker, Calls<'_>)> = Vec::new();
    for (arm, worker) in &workers {
        arms.push((worker, Calls::new(worker, BUSY[*arm].to_owned(), REST, names.clone())));
    }
    for call in 0..functions {
        let newcomer = Set::Newcomer(call / REPEATS).name();
        // Spread evenly, and the same for all.
        let after = SPREAD.mul_f64((call as f64 * 0.618).fract());
        for ((worker, arm), round) in arms.iter().zip(&mut rounds) {
            worker.call(&newcomer).await?;
            tokio::time::sleep(after).await;
            run.add(closed(arm, round, 1, Until::Calls(1)).await?);
        }
        arms.rotate_left(1);
    }
    drop(arms);
    let made = zygotes(&workers).await?;
    for (_, worker) in workers {
        worker.stop().await?;
    }
    let arms = [FIRST, FORCED];
    run.comparisons = [(arms, ""), (BUSY, ", others coming")]
        .into_iter()
        .flat_map(|(arms, when)| compared(&run, arms, when))
        .collect();
    let made = made.difference(&before).count();
    run.comparisons.push(Comparison {
        what: "zygotes made while others came, of those that were there in the end".to_owned(),
        paper: String::new(),
        target: String::new(),
        ours: made.to_string(),
        reached: None,
    });
    if made == 0 {
        run.warnings.push("no zygote was made while other sets came".to_owned());
    }
    let plots = [("plot", arms), ("plot-coming", BUSY)];
    let plots = plots.map(|(name, arms)| (name, shares(&run, arms, 2.0))).into();
    Ok(Measured { run, plots })
}

/// All zygotes of these workers, each by the worker's place and its own number.
async fn zygotes(workers: &[(usize, Worker)]) -> Result<BTreeSet<(usize, String)>> {
    let mut all = BTreeSet::new();
    for (at, (_, worker)) in workers.iter().enumerate() {
        let status = worker.status().await?;
        let zygotes = status["zygotes"].as_array().context("status names no zygotes")?;
        all.extend(zygotes.iter().map(|zygote| (at, zygote["id"].to_string())));
    }
    Ok(all)
}

/// Has a worker learn zygotes for all libraries, and writes them down.
async fn learn(stage: &Stage, template: &Path, libraries: &[Library], tree: &Path) -> Result<()> {
    let worker = stage.worker_on(template, "taught", &[NOTHING_KEPT], 1).await?;
    for library in libraries {
        calls::warm(&worker, library, 0..WARMERS).await?;
    }
    let answer = worker.control().send(Method::GET, "/v1/zygotes", "", "").await?.good()?;
    fs::write(tree, answer.body).context("write the zygotes down")?;
    worker.stop().await
}

fn times(run: &Run, arm: &str) -> Vec<f64> {
    run.answered(arm).iter().map(|sample| sample.latency_ms).collect()
}

/// What is to be said of first calls beside forced ones.
fn compared(run: &Run, [first, forced]: [&str; 2], when: &str) -> Vec<Comparison> {
    let ratio = |what: &str, thousandths: usize| {
        let at = |arm: &str| quantile(&times(run, arm), thousandths);
        let (first, forced) = (at(first), at(forced));
        let ratio = first / forced;
        Comparison {
            what: format!("{what} of first calls over the best subset forced{when}"),
            paper: String::new(),
            target: format!("≤ {MOST}×"),
            ours: format!("{ratio:.3}× ({first:.2} over {forced:.2} ms)"),
            reached: ratio.is_finite().then_some(ratio <= MOST),
        }
    };
    let told = |what: &str, ours: String| Comparison {
        what: format!("{what}{when}"),
        paper: String::new(),
        target: String::new(),
        ours,
        reached: None,
    };
    let (firsts, forceds) = (times(run, first), times(run, forced));
    let ratios: Vec<f64> = firsts.iter().zip(&forceds).map(|(a, b)| a / b).collect();
    let difference = if firsts.len() == forceds.len() {
        format!("{:.3}× ({} pairs)", median(&ratios), ratios.len())
    } else {
        "calls failed: there are no pairs".to_owned()
    };
    let samples = run.answered(first);
    let alone = samples.iter().filter(|sample| sample.imported == 1).count();
    let imported = "first calls that imported nothing but the module that no zygote can have";
    vec![
        ratio("p50", 500),
        ratio("p95", 950),
        told("median over pairs of first call over best subset forced", difference),
        told(imported, format!("{alone} of {}", samples.len())),
    ]
}

/// A function that is called for the first time.
#[derive(Clone, Copy, Debug)]
enum Set {
    /// With nothing to build.
    First(usize),
    /// While others come.
    Late(usize),
    /// One of these.
    Newcomer(usize),
}

impl Set {
    fn number(self) -> usize {
        let (Self::First(number) | Self::Late(number) | Self::Newcomer(number)) = self;
        number
    }

    fn name(self) -> String {
        format!("{}-{:03}", self.word(), self.number())
    }

    fn module(self) -> String {
        format!("bench_{}_{:03}", self.word(), self.number())
    }

    fn word(self) -> &'static str {
        match self {
            Self::First(_) => "first",
            Self::Late(_) => "late",
            Self::Newcomer(_) => "newcomer",
        }
    }

    /// What its module holds. A newcomer's takes its time.
    fn content(self) -> String {
        match self {
            Self::First(number) | Self::Late(number) => format!("VALUE = {number}\n"),
            Self::Newcomer(number) => {
                format!("VALUE = sum(range(1_000_000, 3_000_000)) + {number}\n")
            }
        }
    }
}

/// Warmers of all libraries, then newcomers, and those that are measured.
#[derive(Debug)]
struct Sets {
    libraries: Vec<Library>,
    sets: Vec<Set>,
    index: Index,
}

impl Sets {
    async fn of(
        libraries: &[Library],
        functions: usize,
        wheels: &Path,
        extras: &Path,
    ) -> Result<Self> {
        fs::create_dir_all(extras).with_context(|| format!("make {}", extras.display()))?;
        let newcomers = (0..functions.div_ceil(REPEATS)).map(Set::Newcomer);
        let sets = newcomers.chain((0..functions).map(Set::Late));
        let sets: Vec<Set> = sets.chain((0..functions).map(Set::First)).collect();
        for set in &sets {
            wheel::write(extras, &set.module(), &set.content(), &[])?;
        }
        let index = Index::serve(&[wheels, extras]).await?;
        Ok(Self { libraries: libraries.to_vec(), sets, index })
    }

    fn functions(&self) -> usize {
        WARMERS * self.libraries.len() + self.sets.len()
    }
}

impl Kind for Sets {
    fn name(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.libraries.iter().for_each(|library| library.source(0).hash(&mut hasher));
        format!("firsts-{}-{:x}", self.sets.len(), hasher.finish())
    }

    fn function(&self, number: usize) -> Result<Function> {
        let warmers = WARMERS * self.libraries.len();
        let library = &self.libraries[number % self.libraries.len()];
        if number < warmers {
            let copy = number / self.libraries.len();
            let source = library.source(copy);
            return Ok(Function { name: library.function(copy), source });
        }
        let set = self.sets[number - warmers];
        let library = &self.libraries[set.number() % self.libraries.len()];
        let requirement = format!("{}=={}", set.module(), wheel::VERSION);
        let source = library.source_with(&set.module(), &requirement);
        Ok(Function { name: set.name(), source })
    }

    fn environment(&self) -> Vec<(String, String)> {
        vec![("UV_DEFAULT_INDEX".to_owned(), self.index.url())]
    }
}
