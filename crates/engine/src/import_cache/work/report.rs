//! The state of the cache, for operators and for the next worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use sandbox::Layer;

use super::ImportCache;
use crate::import_cache::state::cache_state::CacheState;
use crate::import_cache::state::creation::Node;
use crate::import_cache::state::zygote::{CachedZygote, View};
use crate::status::{ImportCost, RefusedStatus, ZygoteStatus};
use crate::zygote_tree::ZygoteTree;

impl ImportCache {
    /// The zygotes, and the refused package sets with the reasons.
    pub fn status(&self) -> (Vec<ZygoteStatus>, Vec<RefusedStatus>) {
        let mut state = self.state();
        let view = state.view();
        let zygotes = view.zygotes.iter().zip(&view.entries).map(|(cached, entry)| {
            let (variables, looked_for) = looked_up(cached);
            ZygoteStatus {
                id: cached.zygote.id(),
                parent: entry.parent.map(|at| view.zygotes[at].zygote.id()),
                base: state.domain(cached.key.domain).python.base.clone(),
                tenant: state.domain(cached.key.domain).tenant.clone(),
                packages: cached.zygote.spec().packages.clone(),
                distributions: labels(&state, cached),
                imports: cached.zygote.spec().imports.clone(),
                modules: cached.modules.len(),
                failed_imports: cached.zygote.imports().failed.clone(),
                variables,
                looked_for,
                import_ms: cached.zygote.imports().milliseconds,
                memory_bytes: cached.bytes.load(Ordering::Relaxed),
                forks: cached.forks.load(Ordering::Relaxed),
                #[expect(clippy::cast_precision_loss, reason = "a sum to be read by people")]
                saved_ms: cached.saved_us.load(Ordering::Relaxed) as f64 / 1e3,
            }
        });
        let zygotes = zygotes.collect();
        let refused = state.nodes.iter().filter_map(|(key, node)| match node {
            Node::Refused { why, for_good, .. } => {
                let numbers = key.sees.iter().map(|number| state.catalog.distribution(number));
                let names = numbers.map(|distribution| distribution.label()).collect();
                Some(RefusedStatus { distributions: names, why: why.clone(), for_good: *for_good })
            }
            _ => None,
        });
        (zygotes, refused.collect())
    }

    /// Distributions whose imports leave something behind that forks must not have, and what, by
    /// the wheel's directory.
    pub fn unforkable(&self) -> BTreeMap<String, String> {
        let state = self.state();
        let said = state.catalog.unforkable();
        said.map(|(distribution, why)| (distribution.wheel.clone(), why.to_owned())).collect()
    }

    /// Measured import costs, by the wheel's directory.
    pub fn import_costs(&self) -> BTreeMap<String, ImportCost> {
        let state = self.state();
        let costs = state.catalog.costs();
        costs.map(|(distribution, cost)| (distribution.wheel.clone(), cost)).collect()
    }

    /// The directories that zygotes, finished or not, run and import from.
    pub(crate) fn layers(&self) -> BTreeSet<Layer> {
        // Claims first: a claim is dropped only after its zygote is in the view.
        let mut layers = self.claims.layers();
        for cached in &self.state().view().zygotes {
            layers.insert(cached.zygote.spec().python.base.clone());
            layers.extend(cached.zygote.spec().packages.clone());
        }
        layers
    }

    /// All trees as one, in the format that seeds another worker. Zygotes of locks known only by
    /// their directory are left out.
    pub fn tree(&self) -> ZygoteTree {
        let mut state = self.state();
        let view = state.view();
        ZygoteTree { children: below(&state, &view, None, None), ..ZygoteTree::default() }
    }
}

/// The nodes below `parent`, each as what it adds to `above`, its nearest ancestor that imported
/// anything. A node that imported nothing, such as a root, is skipped: written down, it would ask
/// for all modules of its packages.
fn below(
    state: &CacheState,
    view: &View,
    parent: Option<usize>,
    above: Option<usize>,
) -> Vec<ZygoteTree> {
    let places = (0..view.entries.len()).filter(|at| view.entries[*at].parent == parent);
    let known = places.filter(|at| {
        view.entries[*at]
            .sees
            .iter()
            .all(|number| !state.catalog.distribution(number).is_whole_lock())
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
        let packages =
            sees.iter().map(|number| state.catalog.distribution(number).label()).collect();
        let children = below(state, view, Some(at), Some(at));
        vec![ZygoteTree { packages, modules: state.catalog.modules(&had), children }]
    };
    known.flat_map(tree).collect()
}

/// The variables that its own imports looked up, and the packages, as `module lxml` or
/// `distribution lxml`.
fn looked_up(cached: &CachedZygote) -> (Vec<String>, Vec<String>) {
    let imports = cached.zygote.imports();
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

fn labels(state: &CacheState, cached: &CachedZygote) -> Vec<String> {
    cached.key.sees.iter().map(|number| state.catalog.distribution(number).label()).collect()
}
