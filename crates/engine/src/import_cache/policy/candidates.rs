//! What a zygote could import, from what handlers were seen to import: all of it, what two handlers have in common, and
//! what nearly all handlers of one distribution import beside it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use crate::import_cache::model::catalog::Book;
use crate::import_cache::model::entry::Entry;
use crate::import_cache::model::estimate::Belief;
use crate::import_cache::model::set::Set;
use crate::import_cache::policy::benefit::{Demand, Worth};

/// Handlers, and distributions, whose imports are considered at a time: those that wait longest.
const MAX_CONSIDERED: usize = 24;

/// A distribution's core is what this part of the starts that import it imports, too.
const CORE: [f64; 2] = [0.9, 0.5];

/// What could be imported, as one reads the book who would use it.
pub(crate) struct Candidate<'a> {
    pub(crate) realm: usize,
    pub(crate) pieces: Set,
    pub(crate) reader: Rc<Belief<'a>>,
}

/// All candidates; some may come twice.
pub(crate) fn candidates<'a>(
    entries: &[Entry],
    worth: &Worth<'a>,
    book: &'a Book,
) -> Vec<Candidate<'a>> {
    let mut waiting: Vec<_> = worth
        .best()
        .map(|(demand, spared, shared)| {
            (demand.weight * (demand.profile.needed() - spared), demand, shared)
        })
        .filter(|(waits, _, _)| *waits > 0.0)
        .collect();
    waiting.sort_by(|one, other| other.0.total_cmp(&one.0));
    let cores = cores(entries, worth, book);
    let mut found = Vec::new();
    let considered = &waiting[..waiting.len().min(MAX_CONSIDERED)];
    let wanted: Vec<Set> =
        considered.iter().map(|(_, demand, _)| demand.profile.wanted(book)).collect();
    let readers: Vec<_> =
        considered.iter().map(|(_, demand, _)| Rc::new(demand.profile.belief(book))).collect();
    for (at, (_, demand, shared)) in considered.iter().enumerate() {
        let realm = demand.profile.realm;
        for (other, (_, than, _)) in considered.iter().enumerate().skip(at) {
            if realm == than.profile.realm {
                let pieces = wanted[at].and(&wanted[other]);
                // Either would use it, and one may have been told what the other has not.
                let readers = [at, other].map(|reader| Rc::clone(&readers[reader]));
                let readers = readers.into_iter().take(1 + usize::from(at != other));
                found.extend(readers.map(|reader| Candidate {
                    realm,
                    pieces: pieces.clone(),
                    reader,
                }));
            }
        }
        let had = shared.map(|at| &entries[at].modules);
        for core in cores.iter().filter(|core| core.realm == realm) {
            let more = had.filter(|_| core.pieces.iter().all(|piece| wanted[at].contains(piece)));
            found.extend(more.map(|had| Candidate {
                realm,
                pieces: had.or(&core.pieces),
                reader: Rc::clone(&readers[at]),
            }));
        }
    }
    found.extend(cores);
    found
}

/// What the starts of one distribution have in common, for the distributions that are waited for most.
fn cores<'a>(entries: &[Entry], worth: &Worth<'a>, book: &'a Book) -> Vec<Candidate<'a>> {
    let mut waits: BTreeMap<(usize, u32), f64> = BTreeMap::new();
    let mut imported: BTreeMap<(usize, u32), Vec<&Demand<'a>>> = BTreeMap::new();
    for (demand, _, shared) in worth.best() {
        let mut last = None;
        for (piece, cost) in &demand.profile.needs {
            let of = (demand.profile.realm, book.owner_of(*piece));
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
            for piece in demand.profile.wanted(book).iter() {
                *common.entry(piece).or_default() += demand.weight;
            }
        }
        // The one who starts it most, and nobody in particular: what is said to both was said by what all of them locked.
        let most = imported[&of].iter().max_by(|one, other| one.weight.total_cmp(&other.weight));
        let locks = imported[&of].iter().map(|demand| &demand.profile.locked);
        let all_locked = locks.cloned().reduce(|all, one| all.and(&one)).unwrap_or_default();
        let readers = most.map(|demand| demand.profile.belief(book)).into_iter();
        let readers = readers.chain([Belief::of(book, &all_locked)]).map(Rc::new);
        for reader in readers {
            for part in CORE {
                let core = common.iter().filter(|(_, weight)| **weight >= part * all);
                let pieces = core.map(|(piece, _)| *piece).collect();
                cores.push(Candidate { realm: of.0, pieces, reader: Rc::clone(&reader) });
            }
        }
    }
    cores
}
