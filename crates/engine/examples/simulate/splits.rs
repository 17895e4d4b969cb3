//! Which functions come first, which are judged, and in which order.

use std::collections::{BTreeMap, BTreeSet};

use clap::ValueEnum;

use crate::workload::{Function, Workload};

/// The split and order of starts to judge.
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
    /// Three seeded splits of functions that are not from the trace: see `elsewhere`.
    Elsewhere,
}

/// What comes first, and what is judged.
pub(crate) struct Split<'a> {
    pub(crate) name: String,
    /// What comes first, unless nothing does; static trees are made from these in any case.
    pub(crate) warm: Vec<&'a Function>,
    pub(crate) cold: bool,
    pub(crate) judged: Vec<&'a Function>,
}

/// The splits of the protocol.
pub(crate) fn splits<'a>(workload: &'a Workload, protocol: Protocol) -> Vec<Split<'a>> {
    let all: Vec<&Function> = workload.train.iter().chain(&workload.test).collect();
    match protocol {
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
        Protocol::Elsewhere => (1..4).map(|seed| disjoint(&all, seed)).collect(),
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
    }
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
