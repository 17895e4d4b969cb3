//! Which halves are run in which order, and what is told of them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use clap::ValueEnum;
use engine::{EngineConfig, ZygotePolicy, ZygoteTree};
use serde::Serialize;

use crate::forklift;
use crate::statistics::{Mean, average, mean};
use crate::workload::{Function, Workload};
use crate::world::{Run, Setting, run};

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// Only the training half, split again: for choosing parameters.
    Dev,
    /// The split as it was given.
    Given,
    /// Five seeded splits with no requirement set on both sides.
    Disjoint,
    /// A hundred functions of the training half, five passes over all in changing orders, with nothing to begin with: for
    /// choosing parameters.
    DevPasses,
    /// The same with functions of the other half whose sets no training function has.
    Passes,
    /// The first of them with starts drawn by Zipf's law with exponent 1.5.
    Zipf,
    /// The first of them, what is popular drifting.
    Drift,
    /// The first of them without all functions that use pandas, matplotlib or numpy, in turn.
    Families,
}

/// What a zygote takes beside its imports, as the policy counts it.
const MAKING_MS: f64 = 20.0;

/// One policy on one split with one budget.
#[derive(Debug, Serialize)]
pub(crate) struct Judgement {
    split: String,
    budget_mb: u64,
    policy: String,
    residual_ms: Mean,
    hits: f64,
    mean_mb: f64,
    most_mb: f64,
    zygotes_made: usize,
    /// Milliseconds of a processor for each start that making these took.
    building_ms: f64,
    zygotes_at_the_end: usize,
    /// Paired differences, other minus this.
    against_paper: Option<Mean>,
    against_static: Option<Mean>,
    /// Beyond the better of two that had been warmed with the judged half itself. The true optimum is not known: which
    /// zygotes are best within a budget is a covering problem, and greedy answers to it are compared with each other.
    regret_ms: f64,
    /// Megabytes after each tenth of the starts.
    memory_mb: Vec<f64>,
}

struct Split<'a> {
    name: String,
    /// What comes first, unless nothing does; static trees are made from these in any case.
    warm: Vec<&'a Function>,
    cold: bool,
    judged: Vec<&'a Function>,
}

/// Runs the protocol and prints a line for each policy, split and budget.
pub(crate) fn judge(
    workload: &Workload,
    protocol: Protocol,
    budgets: &[u64],
    half_life: Option<f64>,
    tree: Option<&ZygoteTree>,
) -> Result<Vec<Judgement>> {
    let all: Vec<&Function> = workload.train.iter().chain(&workload.test).collect();
    let splits = match protocol {
        Protocol::Dev => {
            let train: Vec<&Function> = workload.train.iter().collect();
            (101..104).map(|seed| disjoint(&train, seed)).collect()
        }
        Protocol::Given => {
            vec![Split {
                name: "given".to_owned(),
                cold: false,
                warm: workload.train.iter().collect(),
                judged: workload.test.iter().collect(),
            }]
        }
        Protocol::Disjoint => (1..6).map(|seed| disjoint(&all, seed)).collect(),
        Protocol::DevPasses => {
            let train: Vec<&Function> = workload.train.iter().collect();
            (101..104).map(|seed| passes(disjoint(&train, seed))).collect()
        }
        Protocol::Passes => {
            let known: BTreeSet<Vec<&str>> = workload.train.iter().map(Function::set).collect();
            let new = |one: &&Function| !known.contains(&one.set());
            let judged = workload.test.iter().filter(new).collect();
            let warm = workload.train.iter().collect();
            vec![passes(Split { name: "unseen".to_owned(), warm, cold: true, judged })]
        }
        Protocol::Zipf => vec![zipf(disjoint(&all, 1))],
        Protocol::Drift => vec![drift(disjoint(&all, 1))],
        Protocol::Families => {
            let without = |family: &str| {
                let prefix = format!("{family}==");
                let uses =
                    |one: &&Function| one.used.iter().any(|package| package.starts_with(&prefix));
                let others: Vec<&Function> = all.iter().copied().filter(|one| !uses(one)).collect();
                Split { name: format!("without {family}"), ..disjoint(&others, 1) }
            };
            ["pandas", "matplotlib", "numpy"].map(without).into_iter().collect()
        }
    };
    println!(
        "{:22} {:>5} {:16} {:^24} {:>5} {:>7} {:>6} {:>8} {:^24} {:^24} {:>7}",
        "split",
        "MB",
        "policy",
        "residual ms/start",
        "hits",
        "mean MB",
        "made",
        "ms/start",
        "paper − this",
        "static − this",
        "regret"
    );
    let mut results = Vec::new();
    for split in &splits {
        for budget in budgets {
            results.extend(one(workload, split, *budget, half_life, tree)?);
        }
    }
    Ok(results)
}

fn one(
    workload: &Workload,
    split: &Split<'_>,
    budget_mb: u64,
    half_life: Option<f64>,
    tree: Option<&ZygoteTree>,
) -> Result<Vec<Judgement>> {
    let budget = budget_mb * 1_000_000;
    let half_life = half_life.unwrap_or(EngineConfig::default().zygote_half_life);
    let setting = |policy, seed| Setting { policy, budget, seed, half_life };
    let warm = if split.cold { &[][..] } else { &split.warm };
    let learnt = forklift::tree(workload, &split.warm, budget);
    let knowing = forklift::tree(workload, &split.judged, budget);
    let mut runs = vec![
        ("none", run(workload, &setting(ZygotePolicy::Root, None), warm, &split.judged)?),
        ("paper", run(workload, &setting(ZygotePolicy::Paper, None), warm, &split.judged)?),
        (
            "static",
            run(workload, &setting(ZygotePolicy::Static, Some(learnt)), warm, &split.judged)?,
        ),
        ("utility", run(workload, &setting(ZygotePolicy::Utility, None), warm, &split.judged)?),
        (
            "static, knowing",
            run(
                workload,
                &setting(ZygotePolicy::Static, Some(knowing)),
                &split.judged,
                &split.judged,
            )?,
        ),
        (
            "utility, knowing",
            run(workload, &setting(ZygotePolicy::Utility, None), &split.judged, &split.judged)?,
        ),
    ];
    if let Some(tree) = tree {
        let setting = setting(ZygotePolicy::Static, Some(tree.clone()));
        runs.push(("given tree", run(workload, &setting, warm, &split.judged)?));
    }
    let residuals = |name: &str| -> Vec<f64> {
        let run = runs.iter().find(|(other, _)| *other == name);
        run.map(|(_, run)| run.starts.iter().map(|start| start.residual).collect())
            .unwrap_or_default()
    };
    let (paper, fixed) = (residuals("paper"), residuals("static"));
    let knowing =
        ["static, knowing", "utility, knowing"].map(|name| average(residuals(name).into_iter()));
    let best = knowing.into_iter().fold(f64::INFINITY, f64::min);
    let mut results = Vec::new();
    for (policy, run) in &runs {
        let own = residuals(policy);
        let paired = |other: &[f64]| {
            let differences: Vec<f64> =
                other.iter().zip(&own).map(|(other, own)| other - own).collect();
            mean(&differences)
        };
        let result = Judgement {
            split: split.name.clone(),
            budget_mb,
            policy: (*policy).to_owned(),
            residual_ms: mean(&own),
            hits: average(run.starts.iter().map(|start| f64::from(u8::from(start.hit)))),
            mean_mb: average(megabytes(run).into_iter()),
            most_mb: megabytes(run).into_iter().fold(0.0, f64::max),
            zygotes_made: run.made,
            building_ms: (run.made_ms + MAKING_MS * run.made as f64)
                / run.starts.len().max(1) as f64,
            zygotes_at_the_end: run.zygotes,
            against_paper: (*policy != "paper").then(|| paired(&paper)),
            against_static: (*policy != "static").then(|| paired(&fixed)),
            regret_ms: average(own.iter().copied()) - best,
            memory_mb: megabytes(run)
                .chunks(run.starts.len().div_ceil(10).max(1))
                .filter_map(|tenth| tenth.last().copied())
                .collect(),
        };
        let told = |mean: Option<Mean>| mean.map_or_else(String::new, |mean| mean.to_string());
        println!(
            "{:22} {:5} {:16} {:24} {:5.3} {:7.0} {:6} {:8.2} {:24} {:24} {:7.2}",
            result.split,
            budget_mb,
            policy,
            result.residual_ms.to_string(),
            result.hits,
            result.mean_mb,
            result.zygotes_made,
            result.building_ms,
            told(result.against_paper),
            told(result.against_static),
            result.regret_ms
        );
        results.push(result);
    }
    Ok(results)
}

#[expect(clippy::cast_precision_loss, reason = "bytes as megabytes")]
fn megabytes(run: &Run) -> Vec<f64> {
    run.starts.iter().map(|start| start.bytes as f64 / 1e6).collect()
}

/// Half of the functions on either side, all of one requirement set on the same.
fn disjoint<'a>(functions: &[&'a Function], seed: u64) -> Split<'a> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut sets: BTreeMap<Vec<&str>, Vec<&Function>> = BTreeMap::new();
    for function in functions {
        sets.entry(function.set()).or_default().push(function);
    }
    let mut sets: Vec<Vec<&Function>> = sets.into_values().collect();
    random.shuffle(&mut sets);
    let (mut warm, mut judged) = (Vec::new(), Vec::new());
    for set in sets {
        let half = if warm.len() < functions.len() / 2 { &mut warm } else { &mut judged };
        half.extend(set);
    }
    random.shuffle(&mut warm);
    random.shuffle(&mut judged);
    Split { name: format!("disjoint {seed}"), warm, cold: false, judged }
}

/// Five passes over the first hundred functions that are judged, each in an order of its own; nothing comes before.
fn passes(split: Split<'_>) -> Split<'_> {
    let mut random = fastrand::Rng::with_seed(14);
    let mut functions: Vec<&Function> = split.judged.into_iter().take(100).collect();
    let mut judged = Vec::new();
    for _ in 0..5 {
        random.shuffle(&mut functions);
        judged.extend(&functions);
    }
    Split { name: format!("{}, passes", split.name), cold: true, judged, ..split }
}

/// 4000 starts of the judged functions, the nth most popular one in proportion to n^-1.5.
fn zipf(split: Split<'_>) -> Split<'_> {
    let mut random = fastrand::Rng::with_seed(15);
    let judged =
        (0..4000).map(|_| split.judged[rank(&mut random, split.judged.len(), 1.5)]).collect();
    Split { name: "zipf 1.5".to_owned(), judged, ..split }
}

/// 4000 starts by Zipf's law with exponent 1.1; after each 500, an eighth of the ranks moves on.
fn drift(split: Split<'_>) -> Split<'_> {
    let mut random = fastrand::Rng::with_seed(16);
    let count = split.judged.len();
    let judged = (0..4000)
        .map(|at| split.judged[(rank(&mut random, count, 1.1) + at / 500 * (count / 8)) % count]);
    let judged = judged.collect();
    Split { name: "drift".to_owned(), judged, ..split }
}

/// A rank below `count` by Zipf's law.
#[expect(clippy::cast_precision_loss, reason = "a rank")]
fn rank(random: &mut fastrand::Rng, count: usize, exponent: f64) -> usize {
    let weight = |rank: usize| ((rank + 1) as f64).powf(-exponent);
    let all: f64 = (0..count).map(weight).sum();
    let mut left = random.f64() * all;
    (0..count)
        .position(|rank| {
            left -= weight(rank);
            left <= 0.0
        })
        .unwrap_or(0)
}
