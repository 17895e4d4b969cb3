//! Sets of modules that a zygote could import, from what handlers were observed to import: all of
//! one handler's, what two have in common, and what nearly all handlers of one distribution import
//! beside it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use crate::import_cache::model::catalog::Catalog;
use crate::import_cache::model::entry::Entry;
use crate::import_cache::model::estimate::Estimate;
use crate::import_cache::model::set::Set;
use crate::import_cache::policy::benefit::{Benefit, Demand};

/// Handlers, and distributions, considered at a time: those with the most unspared import time.
const MAX_CONSIDERED: usize = 24;

/// A distribution's core: what this fraction of the starts that import it import, too.
const CORE: [f64; 2] = [0.9, 0.5];

/// Pieces that could be imported, with the estimate of a handler that would use them.
pub(crate) struct Candidate<'a> {
    pub(crate) domain: usize,
    pub(crate) pieces: Set,
    pub(crate) estimate: Rc<Estimate<'a>>,
}

/// All candidates; some may come twice.
pub(crate) fn candidates<'a>(
    entries: &[Entry],
    benefit: &Benefit<'a>,
    catalog: &'a Catalog,
) -> Vec<Candidate<'a>> {
    let mut waiting: Vec<_> = benefit
        .best()
        .map(|(demand, spared, shared)| {
            (demand.weight * (demand.profile.needed() - spared), demand, shared)
        })
        .filter(|(waits, _, _)| *waits > 0.0)
        .collect();
    waiting.sort_by(|one, other| other.0.total_cmp(&one.0));
    let cores = cores(entries, benefit, catalog);
    let mut found = Vec::new();
    let considered = &waiting[..waiting.len().min(MAX_CONSIDERED)];
    let wanted: Vec<Set> =
        considered.iter().map(|(_, demand, _)| demand.profile.wanted(catalog)).collect();
    let estimates: Vec<_> =
        considered.iter().map(|(_, demand, _)| Rc::new(demand.profile.estimate(catalog))).collect();
    for (at, (_, demand, shared)) in considered.iter().enumerate() {
        let domain = demand.profile.domain;
        for (other, (_, than, _)) in considered.iter().enumerate().skip(at) {
            if domain == than.profile.domain {
                let pieces = wanted[at].and(&wanted[other]);
                // Both would use it, and one may trust measurements that the other may not.
                let estimates = [at, other].map(|estimate| Rc::clone(&estimates[estimate]));
                let estimates = estimates.into_iter().take(1 + usize::from(at != other));
                found.extend(estimates.map(|estimate| Candidate {
                    domain,
                    pieces: pieces.clone(),
                    estimate,
                }));
            }
        }
        let had = shared.map(|at| &entries[at].modules);
        for core in cores.iter().filter(|core| core.domain == domain) {
            let more = had.filter(|_| core.pieces.iter().all(|piece| wanted[at].contains(piece)));
            found.extend(more.map(|had| Candidate {
                domain,
                pieces: had.or(&core.pieces),
                estimate: Rc::clone(&estimates[at]),
            }));
        }
    }
    found.extend(cores);
    found
}

/// What the starts of a distribution have in common, for the distributions with the most unspared
/// import time.
fn cores<'a>(entries: &[Entry], benefit: &Benefit<'a>, catalog: &'a Catalog) -> Vec<Candidate<'a>> {
    let mut waits: BTreeMap<(usize, u32), f64> = BTreeMap::new();
    let mut imported: BTreeMap<(usize, u32), Vec<&Demand<'a>>> = BTreeMap::new();
    for (demand, _, shared) in benefit.best() {
        let mut last = None;
        for (piece, cost) in &demand.profile.needs {
            let of = (demand.profile.domain, catalog.owner_of(*piece));
            if shared.is_none_or(|at| !entries[at].modules.contains(*piece)) {
                *waits.entry(of).or_default() += demand.weight * cost;
            }
            if last != Some(of) {
                imported.entry(of).or_default().push(demand);
                last = Some(of);
            }
        }
    }
    let mut order: Vec<_> = waits.into_iter().collect();
    order.sort_by(|one, other| other.1.total_cmp(&one.1));
    let mut cores = Vec::new();
    for (of, _) in order.into_iter().take(MAX_CONSIDERED) {
        let mut common: HashMap<u32, f64> = HashMap::new();
        let mut all = 0.0;
        let mut counted: HashSet<*const _> = HashSet::new();
        for demand in &imported[&of] {
            if !counted.insert(std::ptr::from_ref(demand.profile)) {
                continue;
            }
            all += demand.weight;
            for piece in demand.profile.wanted(catalog).iter() {
                *common.entry(piece).or_default() += demand.weight;
            }
        }
        // The estimate of the handler that is started most, and the one that all of them share: a
        // source that both may trust is in what all of them locked.
        let most = imported[&of].iter().max_by(|one, other| one.weight.total_cmp(&other.weight));
        let locks = imported[&of].iter().map(|demand| &demand.profile.locked);
        let all_locked = locks.cloned().reduce(|all, one| all.and(&one)).unwrap_or_default();
        let estimates = most.map(|demand| demand.profile.estimate(catalog)).into_iter();
        let estimates = estimates.chain([Estimate::of(catalog, &all_locked)]).map(Rc::new);
        for estimate in estimates {
            for part in CORE {
                let core = common.iter().filter(|(_, weight)| **weight >= part * all);
                let pieces = core.map(|(piece, _)| *piece).collect();
                cores.push(Candidate { domain: of.0, pieces, estimate: Rc::clone(&estimate) });
            }
        }
    }
    cores
}
