//! The first call ever of a function whose set no zygote matches, beside the same call when the best subset is forced.
//!
//! A pair: one function, called for the first time on either of two workers on copies of the same state. It imports a
//! library and one small module more, of a package that no other function has: only subsets of its lock are there. A
//! worker before them has learned zygotes for all libraries; both were given its tree. One worker's policy goes on
//! learning from there, and may choose, make and give up what it likes. The other keeps the tree: the best of its
//! zygotes is the largest subset, and nothing is ever built. So whatever a first call costs anybody (a lock's directory
//! that nobody has looked into, a module that nobody has read) is on both sides, and what is compared is the policy.
//!
//! Whichever of two such workers is started last takes some tenths of a millisecond less to load: with the same zygotes on
//! both, p50 was 0.912× with the learning one last and 1.041× with it first. So there are two of each, started in the
//! order learning, keeping, keeping, learning, and warmed side by side. An earlier run had compared the very worker that
//! had learned with one started after it. One before that had the small module in the second function's own code, which
//! saved that one a directory to look into.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::path::Path;

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

pub(super) const FIGURE: &str = "first_calls";
pub(super) const TITLE: &str =
    "First calls of functions whose set no zygote matches, beside forcing the best subset";

const FIRST: &str = "first call";
const FORCED: &str = "best subset forced";

/// How much longer a first call may take.
const MOST: f64 = 1.05;

/// Copies of each library's function that are called before, so that the zygotes come.
const WARMERS: usize = 3;

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
    ];
    let wheels = libraries::wheels(stage.work(), &stage.rootfs).await?;
    let kind = Pairs::of(&libraries, functions, &wheels, &stage.work().join("extras")).await?;
    let template = stage.template(&kind, kind.functions()).await?;
    let tree = stage.scratch().join("zygotes.json");
    learn(stage, &template, &libraries, &tree).await?;
    let seed = ("zygote_seed", tree.to_str().context("the tree's path is no text")?);
    let learning = [NOTHING_KEPT, seed];
    let keeping = [NOTHING_KEPT, seed, ("zygotes", "static")];
    let mut workers = Vec::new();
    for (name, arm, settings) in [
        ("learning", FIRST, &learning[..]),
        ("given", FORCED, &keeping[..]),
        ("given-2", FORCED, &keeping[..]),
        ("learning-2", FIRST, &learning[..]),
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
    let mut arms: Vec<Calls<'_>> = Vec::new();
    for (name, worker) in &workers {
        let functions = (0..functions).map(first_name).collect();
        arms.push(Calls::new(worker, (*name).to_owned(), REST, functions));
    }
    let mut rounds = 0u32..;
    for _ in 0..functions {
        for (arm, round) in arms.iter().zip(&mut rounds) {
            run.add(closed(arm, round, 1, Until::Calls(1)).await?);
        }
        arms.rotate_left(1);
    }
    drop(arms);
    for (_, worker) in workers {
        worker.stop().await?;
    }
    run.comparisons =
        vec![of(&run, "p50", 500), of(&run, "p95", 950), difference(&run), imported(&run)];
    let plot = shares(&run, [FIRST, FORCED], 2.0);
    Ok(Measured { run, plots: vec![("plot", plot)] })
}

/// Has a worker learn zygotes for all libraries, and writes them down.
async fn learn(stage: &Stage, template: &Path, libraries: &[Library], tree: &Path) -> Result<()> {
    let worker = stage.worker_on(template, "taught", &[NOTHING_KEPT], 1).await?;
    for library in libraries {
        calls::warm(&worker, library, 0..WARMERS).await?;
    }
    let answer = worker.client().send(Method::GET, "/v1/zygotes", "", "").await?.good()?;
    fs::write(tree, answer.body).context("write the zygotes down")?;
    worker.stop().await
}

fn times(run: &Run, arm: &str) -> Vec<f64> {
    run.answered(arm).iter().map(|sample| sample.latency_ms).collect()
}

fn of(run: &Run, what: &str, thousandths: usize) -> Comparison {
    let at = |arm: &str| quantile(&times(run, arm), thousandths);
    let (first, forced) = (at(FIRST), at(FORCED));
    let ratio = first / forced;
    Comparison {
        what: format!("{what} of first calls over the best subset forced"),
        paper: String::new(),
        target: format!("≤ {MOST}×"),
        ours: format!("{ratio:.3}× ({first:.2} over {forced:.2} ms)"),
        reached: ratio.is_finite().then_some(ratio <= MOST),
    }
}

fn difference(run: &Run) -> Comparison {
    let (first, forced) = (times(run, FIRST), times(run, FORCED));
    let ratios: Vec<f64> = first.iter().zip(&forced).map(|(a, b)| a / b).collect();
    Comparison {
        what: "median over pairs of first call over best subset forced".to_owned(),
        paper: String::new(),
        target: String::new(),
        ours: if first.len() == forced.len() {
            format!("{:.3}× ({} pairs)", median(&ratios), ratios.len())
        } else {
            "calls failed: there are no pairs".to_owned()
        },
        reached: None,
    }
}

fn imported(run: &Run) -> Comparison {
    let samples = run.answered(FIRST);
    let alone = samples.iter().filter(|sample| sample.imported == 1).count();
    Comparison {
        what: "first calls that imported nothing but the module that no zygote can have".to_owned(),
        paper: String::new(),
        target: String::new(),
        ours: format!("{alone} of {}", samples.len()),
        reached: None,
    }
}

fn first_name(pair: usize) -> String {
    format!("first-{pair:03}")
}

fn module(pair: usize) -> String {
    format!("bench_extra_{pair:03}")
}

/// Warmers of all libraries, then pairs.
#[derive(Debug)]
struct Pairs {
    libraries: Vec<Library>,
    pairs: usize,
    index: Index,
}

impl Pairs {
    async fn of(libraries: &[Library], pairs: usize, wheels: &Path, extras: &Path) -> Result<Self> {
        fs::create_dir_all(extras).with_context(|| format!("make {}", extras.display()))?;
        for pair in 0..pairs {
            wheel::write(extras, &module(pair), &content(pair), &[])?;
        }
        let index = Index::serve(&[wheels, extras]).await?;
        Ok(Self { libraries: libraries.to_vec(), pairs, index })
    }

    fn functions(&self) -> usize {
        WARMERS * self.libraries.len() + self.pairs
    }
}

fn content(pair: usize) -> String {
    format!("VALUE = {pair}\n")
}

impl Kind for Pairs {
    fn name(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.libraries.iter().for_each(|library| library.source(0).hash(&mut hasher));
        format!("firsts-{}-{:x}", self.pairs, hasher.finish())
    }

    fn function(&self, number: usize) -> Result<Function> {
        let warmers = WARMERS * self.libraries.len();
        let library = &self.libraries[number % self.libraries.len()];
        if number < warmers {
            let copy = number / self.libraries.len();
            let source = library.source(copy);
            return Ok(Function { name: library.function(copy), source });
        }
        let pair = number - warmers;
        let library = &self.libraries[pair % self.libraries.len()];
        let module = module(pair);
        let requirement = format!("{module}=={}", wheel::VERSION);
        let source = library.source_with(&module, &requirement);
        Ok(Function { name: first_name(pair), source })
    }

    fn environment(&self) -> Vec<(String, String)> {
        vec![("UV_DEFAULT_INDEX".to_owned(), self.index.url())]
    }
}
