//! Policies of the import cache on the real engine: functions of a test half whose sets no policy was made for.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::{Measured, shares};
use crate::calls::{Calls, REST};
use crate::functions::{Function, Kind};
use crate::load::{Until, closed};
use crate::observed::observed;
use crate::plot::Plot;
use crate::run::{Comparison, Run};
use crate::sample::Mode;
use crate::stage::{NOTHING_KEPT, Stage};

pub(super) const FIGURE: &str = "policies";
pub(super) const TITLE: &str =
    "Policies of the import cache on 100 unseen requirement sets of Forklift's test half, 1 GiB";

/// Policies, and what Forklift says of its own of that kind.
const POLICIES: [(&str, &str); 4] = [
    ("none", "Forklift, root only: p50 72 ms, 36/s"),
    ("paper", ""),
    ("utility", ""),
    ("static", "Forklift, 40 zygotes: 107/s; 160: p50 16.5 ms, 149/s"),
];

/// What is told apart: calls to sets that no worker has seen, and repeats, from which some policies have learnt.
const CALLS: [&str; 2] = ["first calls", "repeats"];

/// What functions that use GitPython set.
const GIT: &str = "# [tool.lambswool]\n# environment = { GIT_PYTHON_REFRESH = \"quiet\" }\n";

/// Memory of all zygotes of an arm.
const BUDGET: (&str, &str) = ("zygote_bytes", "1GiB");

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let mut run = Run::new(FIGURE, TITLE);
    let sets = Sets::read(stage.work())?;
    let functions = stage.amount(sets.listed.functions.len(), 8);
    let (passes, cell) = stage.amount((5, 25), (2, 8));
    run.method = vec![
        format!("functions: bench/workloads/functions.json ({}): sets that no training function has, in seeded order, that install from wheels on Python {} and whose modules import; {} were left out, with the reason in that file, which was committed before anything was measured", sets.listed.source, sets.listed.python, sets.listed.excluded.len()),
        format!("{functions} functions that import what theirs imported and do nothing, {passes} passes over all, each in a new random order that is the same for all arms; arms take turns in rounds of {cell} calls, one at a time"),
        "first calls are those of the first pass, when no worker has seen a function's set; the later passes repeat these functions, so that `utility` and `paper` have learnt from them, and are told apart".to_owned(),
        "functions that use GitPython set `GIT_PYTHON_REFRESH=quiet`, since there is no git in a sandbox; a zygote has no function's environment, so that they import it themselves in every arm".to_owned(),
        "each worker starts with no zygote but those of the given tree (`static`); nothing is kept (`handler_cache = false`), so that each call makes a sandbox; making zygotes goes on beside the calls and takes its share of the processors".to_owned(),
        "`static`: a tree made offline from the training half by the simulator's version of Forklift's greedy algorithm (bench/workloads/greedy_tree.json; README.md there says how it was made), so large that those of its zygotes that these functions can use take the same memory; `none`: a fresh interpreter each".to_owned(),
    ];
    let template = stage.template(&sets, functions).await?;
    let tree = workloads().join("greedy_tree.json");
    let tree = tree.to_str().context("the tree's path is no text")?;
    let mut workers = Vec::new();
    for (policy, _) in POLICIES {
        let settings = [("zygotes", policy), ("zygote_seed", tree), NOTHING_KEPT, BUDGET];
        // Only a static tree is given: the others find their own.
        let settings: Vec<_> = settings
            .into_iter()
            .filter(|(key, _)| *key != "zygote_seed" || policy == "static")
            .collect();
        workers.push(stage.worker_on(&template, policy, &settings, 1).await?);
    }
    stage.rest(&mut run).await?;
    let order = order(functions, passes);
    let mut rounds = 0u32..;
    for (calls, names) in CALLS.into_iter().zip([&order[..functions], &order[functions..]]) {
        let arms: Vec<_> = workers
            .iter()
            .zip(POLICIES)
            .map(|(worker, (policy, _))| {
                Calls::new(worker, arm(policy, calls), REST, names.to_vec())
            })
            .collect();
        for (first, round) in (0..names.len()).step_by(cell).zip(&mut rounds) {
            let calls = cell.min(names.len() - first);
            for turn in 0..arms.len() {
                let arm = &arms[(turn + round as usize) % arms.len()];
                run.add(closed(arm, round, 1, Until::Calls(calls)).await?);
            }
        }
    }
    let mut memory = Vec::new();
    for (worker, (policy, theirs)) in workers.into_iter().zip(POLICIES) {
        let status = worker.status().await?;
        let zygotes = status["zygotes"].as_array().context("status names no zygotes")?;
        if policy == "static" && zygotes.len() < 2 {
            run.warnings.push(
                "static: the worker made no zygote of the given tree; the arm shows a root alone"
                    .to_owned(),
            );
        }
        let bytes: u64 = zygotes.iter().filter_map(|zygote| zygote["memory_bytes"].as_u64()).sum();
        let compared = compared(&run, policy, theirs, zygotes.len(), bytes >> 20);
        run.comparisons.extend(compared);
        memory.push((policy, bytes >> 20));
        worker.stop().await?;
    }
    run.warnings.extend(unequal(&memory));
    let plots = ["first", "repeats"].into_iter().zip(CALLS).map(|(name, calls)| {
        let plot = shares(&run, POLICIES.map(|(policy, _)| arm(policy, calls)), 3.0);
        (name, Plot { title: format!("{}: {calls}", plot.title), ..plot })
    });
    let plots = plots.collect();
    Ok(Measured { run, plots })
}

/// What is called: all functions in each pass, each pass in an order of its own.
fn order(functions: usize, passes: usize) -> Vec<String> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut order = Vec::new();
    for _ in 0..passes {
        let mut pass: Vec<usize> = (0..functions).collect();
        random.shuffle(&mut pass);
        order.extend(pass.into_iter().map(name));
    }
    order
}

fn arm(policy: &str, calls: &str) -> String {
    format!("{policy}, {calls}")
}

/// A policy's first calls and repeats, each beside the memory that its zygotes took in the end.
fn compared(
    run: &Run,
    policy: &str,
    theirs: &str,
    zygotes: usize,
    mib: u64,
) -> [Comparison; CALLS.len()] {
    CALLS.map(|calls| {
        let row = run.row(&arm(policy, calls), Mode::Closed, 1.0);
        let times = row.latency_ms.map_or_else(
            || "not measured".to_owned(),
            |q| format!("n = {}, p50 {:.1}, p99 {:.1}, mean {:.1} ms", q.n, q.p50, q.p99, q.mean),
        );
        Comparison {
            what: format!("`{policy}`, {calls}"),
            paper: theirs.to_owned(),
            target: String::new(),
            ours: format!(
                "{times}; {:.1}/s; {zygotes} zygotes of {mib} MiB at the end",
                row.throughput
            ),
            reached: None,
        }
    })
}

/// What a reader has to know where `static` and `utility`, by these MiB, did not have the same memory.
fn unequal(memory: &[(&str, u64)]) -> Option<String> {
    let of = |policy: &str| memory.iter().find(|(name, _)| *name == policy).map(|(_, mib)| *mib);
    let (fixed, learnt) = (of("static")?, of("utility")?);
    let unequal = 10 * fixed.min(learnt) < 9 * fixed.max(learnt);
    unequal.then(|| {
        format!("memory is not equal: zygotes of {fixed} MiB by `static`, of {learnt} by `utility`")
    })
}

fn workloads() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads")
}

fn name(number: usize) -> String {
    format!("set-{number:03}")
}

/// The list, as it was frozen.
#[derive(Debug, Deserialize)]
struct Listed {
    source: String,
    python: String,
    functions: Vec<Required>,
    excluded: Vec<Excluded>,
}

/// What a function needs.
#[derive(Debug, Deserialize)]
struct Required {
    pins: Vec<String>,
    direct: Vec<String>,
    import_mods: Vec<String>,
}

/// Why a function was left out is for readers of the file.
#[derive(Debug, Deserialize)]
struct Excluded {}

/// Functions with the listed sets.
#[derive(Debug)]
struct Sets {
    listed: Listed,
    /// Of wheels, for each build's template anew.
    cache: PathBuf,
}

impl Sets {
    fn read(work: &Path) -> Result<Self> {
        let path = workloads().join("functions.json");
        let text = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let listed = serde_json::from_slice(&text).context("understand functions.json")?;
        Ok(Self { listed, cache: work.join("uv-cache") })
    }
}

impl Kind for Sets {
    fn name(&self) -> String {
        "sets-quiet".to_owned()
    }

    fn function(&self, number: usize) -> Result<Function> {
        let Required { pins, direct, import_mods } = &self.listed.functions[number];
        // TOML's arrays of plain strings are JSON's.
        let (direct, pins) = (serde_json::to_string(direct)?, serde_json::to_string(pins)?);
        // There is no git in a sandbox. Who uses GitPython without one says so, or its import fails.
        let git = pins.contains("\"gitpython==");
        let settings = if git { GIT } else { "" };
        let imports: String = import_mods.iter().map(|name| format!("import {name}\n")).collect();
        let source = format!(
            "# /// script\n# dependencies = {direct}\n# [tool.uv]\n# constraint-dependencies = {pins}\n{settings}# ///\n{imports}"
        );
        Ok(Function { name: name(number), source: observed(&source) })
    }

    fn environment(&self) -> Vec<(String, String)> {
        vec![("UV_CACHE_DIR".to_owned(), self.cache.display().to_string())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Spent;
    use crate::load::Cell;
    use crate::sample::Sample;

    fn cell(arm: String, latency_ms: f64) -> Cell {
        let sample = Sample {
            arm: arm.clone(),
            round: 0,
            mode: Mode::Closed,
            level: 1.0,
            at_ms: 0.0,
            late_ms: 0.0,
            latency_ms,
            own_ms: 0.0,
            imported: 0,
            total_ms: latency_ms,
            start: String::new(),
            stages: String::new(),
            error: String::new(),
        };
        let (mode, spent) = (Mode::Closed, Spent::default());
        Cell { arm, round: 0, mode, level: 1.0, answered: 1.0, spent, samples: vec![sample] }
    }

    #[test]
    fn first_calls_are_told_apart_from_repeats_that_a_policy_has_learnt_from() {
        let mut run = Run::new(FIGURE, TITLE);
        run.cells.push(cell(arm("utility", "first calls"), 125.0));
        run.cells.extend([20.0, 30.0, 40.0].map(|ms| cell(arm("utility", "repeats"), ms)));
        let [first, repeats] = compared(&run, "utility", "", 37, 1008);
        assert!(first.ours.starts_with("n = 1, p50 125.0"), "{first:?}");
        assert!(repeats.ours.starts_with("n = 3, p50 30.0"), "{repeats:?}");
        assert!(first.ours.ends_with("37 zygotes of 1008 MiB at the end"), "{first:?}");
        assert_eq!(run.rows().len(), 2);
    }

    #[test]
    fn a_reader_is_told_when_memory_is_not_equal() {
        let memory = |fixed| [("none", 0), ("utility", 1008), ("static", fixed)];
        assert!(unequal(&memory(500)).is_some_and(|told| told.contains("500 MiB by `static`")));
        assert_eq!(unequal(&memory(960)), None);
    }

    #[test]
    fn the_first_pass_calls_each_function_once() {
        let order = order(100, 5);
        let first: std::collections::BTreeSet<_> = order[..100].iter().collect();
        assert_eq!((order.len(), first.len()), (500, 100));
        assert_ne!(order[..100], order[100..200], "each pass has an order of its own");
    }
}
