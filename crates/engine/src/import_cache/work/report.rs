//! What there is, for people and for the next worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use sandbox::Layer;

use super::ImportCache;
use crate::import_cache::state::cache_state::State;
use crate::import_cache::state::creation::Node;
use crate::import_cache::state::zygote::{Kept, View};
use crate::status::{ImportCost, RefusedStatus, ZygoteStatus};
use crate::zygote_tree::ZygoteTree;

impl ImportCache {
    /// The zygotes that are there, and the package sets that have none and why.
    pub fn status(&self) -> (Vec<ZygoteStatus>, Vec<RefusedStatus>) {
        let mut state = self.state();
        let view = state.view();
        let zygotes = view.kept.iter().zip(&view.entries).map(|(kept, entry)| {
            let (variables, looked_for) = looked_up(kept);
            ZygoteStatus {
                id: kept.zygote.id(),
                parent: entry.parent.map(|at| view.kept[at].zygote.id()),
                base: state.realm(kept.key.realm).python.base.clone(),
                tenant: state.realm(kept.key.realm).tenant.clone(),
                packages: kept.zygote.spec().packages.clone(),
                distributions: labels(&state, kept),
                imports: kept.zygote.spec().imports.clone(),
                modules: kept.modules.len(),
                failed_imports: kept.zygote.imports().failed.clone(),
                variables,
                looked_for,
                import_ms: kept.zygote.imports().milliseconds,
                memory_bytes: kept.bytes.load(Ordering::Relaxed),
                forks: kept.forks.load(Ordering::Relaxed),
                #[expect(clippy::cast_precision_loss, reason = "a sum to be read by people")]
                saved_ms: kept.saved_us.load(Ordering::Relaxed) as f64 / 1e3,
            }
        });
        let zygotes = zygotes.collect();
        let refused = state.nodes.iter().filter_map(|(key, node)| match node {
            Node::Refused { why, for_good, .. } => {
                let numbers = key.sees.iter().map(|number| state.book.distribution(number));
                let names = numbers.map(|distribution| distribution.label()).collect();
                Some(RefusedStatus { distributions: names, why: why.clone(), for_good: *for_good })
            }
            _ => None,
        });
        (zygotes, refused.collect())
    }

    /// Distributions that were found to leave something behind that no fork must have, and what: by the name of the wheel's
    /// directory.
    pub fn unforkable(&self) -> BTreeMap<String, String> {
        let state = self.state();
        let said = state.book.unforkable();
        said.map(|(distribution, why)| (distribution.wheel.clone(), why.to_owned())).collect()
    }

    /// What importing distributions was measured to cost: by the name of the wheel's directory.
    pub fn import_costs(&self) -> BTreeMap<String, ImportCost> {
        let state = self.state();
        let costs = state.book.costs();
        costs.map(|(distribution, cost)| (distribution.wheel.clone(), cost)).collect()
    }

    /// The directories that zygotes run from, and those that zygotes which are being made import from.
    pub(crate) fn layers(&self) -> BTreeSet<Layer> {
        // First: a claim goes only when its zygote is among the others.
        let mut layers = self.claims.layers();
        for kept in &self.state().view().kept {
            layers.insert(kept.zygote.spec().python.base.clone());
            layers.extend(kept.zygote.spec().packages.clone());
        }
        layers
    }

    /// The trees as one, in the format that seeds another worker. Zygotes of locks that are known by their directory
    /// only are left out.
    pub fn tree(&self) -> ZygoteTree {
        let mut state = self.state();
        let view = state.view();
        ZygoteTree { children: below(&state, &view, None, None), ..ZygoteTree::default() }
    }
}

/// The nodes below `parent`, as what they add to `above`: the nearest one that has imported anything. One that has not, as
/// roots have not, stands for nothing: written down, it would ask for all modules of its packages.
fn below(
    state: &State,
    view: &View,
    parent: Option<usize>,
    above: Option<usize>,
) -> Vec<ZygoteTree> {
    let places = (0..view.entries.len()).filter(|at| view.entries[*at].parent == parent);
    let known = places.filter(|at| {
        view.entries[*at].sees.iter().all(|number| !state.book.distribution(number).is_whole_lock())
    });
    let tree = |at: usize| {
        let entry = &view.entries[at];
        let (sees, had) = match above {
            Some(above) => {
                let above = &view.entries[above];
                (entry.sees.without(&above.sees), entry.modules.without(&above.modules))
            }
            None => (entry.sees.clone(), entry.modules.clone()),
        };
        if had.is_empty() {
            return below(state, view, Some(at), above);
        }
        let packages = sees.iter().map(|number| state.book.distribution(number).label()).collect();
        let children = below(state, view, Some(at), Some(at));
        vec![ZygoteTree { packages, modules: state.book.modules(&had), children }]
    };
    known.flat_map(tree).collect()
}

/// Those that it has looked up itself.
/// What its imports looked up: variables, and packages that were not there, each as `module lxml` or `distribution lxml`.
fn looked_up(kept: &Kept) -> (Vec<String>, Vec<String>) {
    let imports = kept.zygote.imports();
    let of_files = imports.files.iter().flat_map(|file| &file.variables);
    let names: BTreeSet<_> = of_files.cloned().collect();
    let (packages, variables): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|name| name.starts_with('='));
    let packages = packages.iter().map(|name| match name.trim_start_matches('=') {
        "*" => "all distributions".to_owned(),
        one => one.replacen("import ", "module ", 1),
    });
    (variables, packages.collect())
}

fn labels(state: &State, kept: &Kept) -> Vec<String> {
    kept.key.sees.iter().map(|number| state.book.distribution(number).label()).collect()
}
