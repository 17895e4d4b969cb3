//! Forklift's offline tree: greedy and weighted by cost, here until the modelled memory is used up.
//!
//! All functions begin at the root. The split that saves most in all moves those that hold a package, with all that it
//! depends on, to a new child which imports these; and so on.

use std::collections::{BTreeSet, HashMap};

use engine::ZygoteTree;

use crate::workload::{Function, Workload, ZYGOTE_BYTES};

struct Node<'a> {
    packages: BTreeSet<String>,
    adds: BTreeSet<String>,
    functions: Vec<&'a Function>,
    children: Vec<usize>,
}

/// The tree for these functions that fits into `budget` bytes.
pub(crate) fn tree(workload: &Workload, functions: &[&Function], budget: u64) -> ZygoteTree {
    let functions = functions.to_vec();
    let root =
        Node { packages: BTreeSet::new(), adds: BTreeSet::new(), functions, children: Vec::new() };
    let mut nodes = vec![root];
    let mut bytes = ZYGOTE_BYTES;
    let mut best: Vec<Option<(f64, BTreeSet<String>)>> =
        vec![split(workload, &nodes[0], budget - bytes)];
    loop {
        let room = budget.saturating_sub(bytes);
        for at in 0..nodes.len() {
            if best[at].as_ref().is_some_and(|(_, adds)| weight(workload, adds) > room) {
                best[at] = split(workload, &nodes[at], room);
            }
        }
        let chosen = best.iter().enumerate().filter_map(|(at, best)| Some((best.as_ref()?.0, at)));
        let Some((_, at)) = chosen.max_by(|one, other| one.0.total_cmp(&other.0)) else { break };
        let Some((_, adds)) = best[at].take() else { break };
        bytes += weight(workload, &adds);
        let holds =
            |function: &&Function| adds.iter().all(|package| function.used.contains(package));
        let (moved, stay): (Vec<_>, Vec<_>) = nodes[at].functions.iter().copied().partition(holds);
        nodes[at].functions = stay;
        let packages = &nodes[at].packages | &adds;
        let place = nodes.len();
        nodes[at].children.push(place);
        nodes.push(Node { packages, adds, functions: moved, children: Vec::new() });
        let room = budget.saturating_sub(bytes);
        best[at] = split(workload, &nodes[at], room);
        best.push(split(workload, &nodes[place], room));
    }
    written(&nodes, 0)
}

/// The package, with what it depends on, that saves the node's functions most: milliseconds in all, and what to import.
fn split(workload: &Workload, node: &Node<'_>, room: u64) -> Option<(f64, BTreeSet<String>)> {
    let mut saved: HashMap<BTreeSet<String>, f64> = HashMap::new();
    for function in &node.functions {
        for package in &function.used {
            if node.packages.contains(package) {
                continue;
            }
            let adds = &closure(workload, function, package) - &node.packages;
            let milliseconds: f64 =
                adds.iter().filter_map(|one| Some(workload.costs.get(one)?.milliseconds)).sum();
            *saved.entry(adds).or_default() += milliseconds;
        }
    }
    let fitting =
        saved.into_iter().filter(|(adds, saved)| *saved > 0.0 && weight(workload, adds) <= room);
    let best =
        fitting.max_by(|one, other| one.1.total_cmp(&other.1).then_with(|| other.0.cmp(&one.0)));
    best.map(|(adds, saved)| (saved, adds))
}

fn closure(workload: &Workload, function: &Function, package: &str) -> BTreeSet<String> {
    let mut closed = BTreeSet::from([package.to_owned()]);
    let needs = workload.costs.get(package).map(|cost| &*cost.needs).unwrap_or_default();
    for used in &function.used {
        let name = used.split("==").next().unwrap_or(used);
        if needs.iter().any(|need| need == name) {
            closed.insert(used.clone());
        }
    }
    closed
}

fn weight(workload: &Workload, adds: &BTreeSet<String>) -> u64 {
    let pages = adds.iter().filter_map(|package| Some(workload.costs.get(package)?.bytes));
    ZYGOTE_BYTES + pages.sum::<u64>()
}

fn written(nodes: &[Node<'_>], at: usize) -> ZygoteTree {
    ZygoteTree {
        packages: nodes[at].adds.iter().cloned().collect(),
        modules: Vec::new(),
        children: nodes[at].children.iter().map(|child| written(nodes, *child)).collect(),
    }
}
