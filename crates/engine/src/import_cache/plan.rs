//! Which zygote to make next, as a plain function.
//!
//! Candidates come from what handlers were seen to import: all of it, what two handlers have in common, and what nearly
//! all handlers of one distribution import beside it. A candidate is worth building when what it would have spared the
//! starts of late (an old one counts less) is more than building it takes, and when it is worth more than what has to go
//! for it. So a zygote is built about when calls have paid once for not having it.

use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use super::book::Book;
use super::evict::{self, Room, Victims};
use super::profile::Belief;
use super::set::Set;
use super::tree::Entry;
use super::worth::{Demand, Price, Worth, price as price_of};
use crate::handler_cache::Offer;

/// Handlers, and distributions, whose imports are considered at a time: those that wait longest.
const CONSIDERED: usize = 24;

/// Candidates that are tried against what would have to go.
const TRIED: usize = 6;

/// A distribution's core is what this part of the starts that import it imports, too.
const CORE: [f64; 2] = [0.9, 0.5];

/// What is gained need not be more than what is paid: a sum of floats may fall short of its equal.
const EVEN: f64 = 0.999;

/// A zygote that should be made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Build {
    pub(crate) realm: usize,
    pub(crate) sees: Set,
    pub(crate) modules: Set,
    /// Milliseconds of a processor that it is expected to take.
    pub(crate) milliseconds: f64,
    /// What must go for it.
    pub(crate) evict: Victims,
}

/// What there is to make a zygote with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Means {
    /// What may stay, the new one included.
    pub(crate) room: Room,
    /// Milliseconds of a processor that making it may take.
    pub(crate) milliseconds: f64,
}

/// The zygote that is most worth making for each byte, if any is. It shares the room with `idle` instances, those first
/// that save least for each byte. `novelty` is the part of starts that are of new locks; `refused` says what cannot be
/// made.
pub(crate) fn plan(
    entries: &[Entry],
    idle: &[Offer],
    demands: &[Demand<'_>],
    book: &Book,
    novelty: f64,
    means: Means,
    refused: impl Fn(usize, &Set, &Set) -> bool,
) -> Option<Build> {
    let Means { room, milliseconds: purse } = means;
    let mut worth = Worth::new(entries, demands, novelty);
    // Where there is room, it is enough that those who come again gain; strangers cannot lose.
    let even = EVEN * (1.0 - novelty);
    let mut offers: Vec<Offered<'_>> = Vec::new();
    let mut seen: HashMap<(usize, Set), usize> = HashMap::new();
    for Candidate { realm, pieces, reader } in candidates(entries, &worth, book) {
        let modules = reader.closed(&pieces);
        let sees = book.owners(&modules);
        if modules.is_empty() || refused(realm, &sees, &modules) {
            continue;
        }
        let price = price_of(entries, realm, &sees, &modules, &reader);
        match seen.entry((realm, modules.clone())) {
            // One who would use it believes that it costs less: a lie that it costs much is told to others.
            Occupied(there) => {
                let offer = &mut offers[*there.get()];
                if price.milliseconds < offer.price.milliseconds {
                    (offer.price, offer.reader) = (price, reader);
                }
            }
            Vacant(new) => {
                new.insert(offers.len());
                let gain = worth.gain(realm, &sees, &modules);
                offers.push(Offered { gain, realm, sees, modules, price, reader });
            }
        }
    }
    // Also where it costs nothing: what nobody may use serves nobody.
    offers.retain(|offer| {
        offer.gain > 0.0
            && offer.gain >= even * offer.price.milliseconds
            && offer.price.bytes <= room.bytes
            && offer.price.milliseconds <= purse
    });
    offers.sort_by(|one, other| other.density().total_cmp(&one.density()));
    let before = worth.total(&vec![true; entries.len()]);
    for Offered { realm, sees, modules, price, reader, .. } in offers.into_iter().take(TRIED) {
        let used = entries.iter().map(|entry| entry.used).max().map_or(0, |used| used + 1);
        let asked = modules.clone();
        let bytes = price.bytes;
        let new = Entry { realm, parent: None, sees, asked, modules, bears: true, bytes, used };
        let with: Vec<Entry> = entries.iter().cloned().chain([new]).collect();
        worth.push(&with[entries.len()]);
        let evict = evict::utility(&with, idle, room, &worth);
        let alive: Vec<bool> = (0..with.len()).map(|at| !evict.zygotes.contains(&at)).collect();
        // What it would best come from may have to go for it.
        let stays = (0..entries.len()).filter(|at| alive[*at]);
        let stay: Vec<Entry> = stays.map(|at| entries[at].clone()).collect();
        let new = &with[entries.len()];
        let milliseconds = price_of(&stay, realm, &new.sees, &new.modules, &reader).milliseconds;
        let given_up: f64 = idle[..evict.idle].iter().map(|offer| offer.saves).sum();
        let more = worth.total(&alive) - before - given_up;
        worth.pop();
        let bar = if evict == Victims::default() { even } else { EVEN };
        if alive[entries.len()] && milliseconds <= purse && more >= bar * milliseconds {
            let new = with.into_iter().next_back()?;
            return Some(Build {
                realm,
                sees: new.sees,
                modules: new.modules,
                milliseconds,
                evict,
            });
        }
    }
    None
}

/// What could be imported, as one reads the book who would use it.
struct Candidate<'a> {
    realm: usize,
    pieces: Set,
    reader: Rc<Belief<'a>>,
}

/// A candidate that can be made.
struct Offered<'a> {
    gain: f64,
    realm: usize,
    sees: Set,
    modules: Set,
    price: Price,
    /// Who would use it, and believes in that price.
    reader: Rc<Belief<'a>>,
}

impl Offered<'_> {
    fn density(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "bytes as a divisor")]
        let density = self.gain / self.price.bytes.max(1) as f64;
        density
    }
}

fn candidates<'a>(entries: &[Entry], worth: &Worth<'a>, book: &'a Book) -> Vec<Candidate<'a>> {
    let mut waiting: Vec<_> = worth
        .best()
        .map(|(demand, spared, shared)| {
            let needs: f64 = demand.profile.needs.iter().map(|(_, cost)| cost).sum();
            (demand.weight * (needs - spared), demand, shared)
        })
        .filter(|(waits, _, _)| *waits > 0.0)
        .collect();
    waiting.sort_by(|one, other| other.0.total_cmp(&one.0));
    let cores = cores(entries, worth, book);
    let mut found = Vec::new();
    let considered = &waiting[..waiting.len().min(CONSIDERED)];
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
    for (of, _) in order.into_iter().take(CONSIDERED) {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::book::tests::simple;
    use super::super::profile::Profile;
    use super::super::tree::tests::{entry, set, trees};
    use super::super::worth::MAKING_MS;
    use super::*;

    fn profiles() -> impl Strategy<Value = Vec<Profile>> {
        let lock = prop::collection::btree_set(0u32..8, 1..5);
        prop::collection::vec(lock, 1..6).prop_map(|locks| {
            let locks = locks.into_iter().map(|members| members.into_iter().collect::<Set>());
            locks.map(|locked| Profile::new(0, locked.clone(), locked, &simple(8))).collect()
        })
    }

    fn cost(entries: &[Entry], build: &Build, book: &Book) -> Price {
        let reader = Belief::of(book, &build.sees);
        price_of(entries, build.realm, &build.sees, &build.modules, &reader)
    }

    fn all(bytes: u64) -> Means {
        let room = Room { bytes, zygotes: usize::MAX };
        Means { room, milliseconds: f64::INFINITY }
    }

    fn demands(profiles: &[Profile]) -> Vec<Demand<'_>> {
        profiles.iter().map(|profile| Demand { profile, weight: 2.0 }).collect()
    }

    proptest! {
        #[test]
        fn what_is_planned_fits_with_what_stays_and_serves_somebody(entries in trees(), profiles in profiles(), novelty in 0.0..1.0f64, budget in (6u64 << 20)..(100 << 20)) {
            let (book, demands) = (simple(8), demands(&profiles));
            if let Some(build) = plan(&entries, &[], &demands, &book, novelty, all(budget), |_, _, _| false) {
                let stays = (0..entries.len()).filter(|at| !build.evict.zygotes.contains(at));
                let bytes: u64 = stays.map(|at| entries[at].bytes).sum();
                let price = cost(&entries, &build, &book);
                prop_assert!(bytes + price.bytes <= budget);
                prop_assert!(profiles.iter().any(|profile| build.sees.within(&profile.locked)));
                prop_assert_eq!(book.owners(&build.modules), build.sees);
            }
        }

        #[test]
        fn planning_comes_to_an_end(profiles in profiles(), novelty in 0.0..1.0f64, budget in (6u64 << 20)..(100 << 20)) {
            let (book, demands) = (simple(8), demands(&profiles));
            let mut entries = vec![entry(None, set(&[]), 1 << 20, 0)];
            let mut rounds = 0;
            loop {
                let there = |_, sees: &Set, _: &Set| entries.iter().any(|entry| entry.sees == *sees);
                let Some(build) = plan(&entries, &[], &demands, &book, novelty, all(budget), there) else { break };
                rounds += 1;
                prop_assert!(rounds < 100, "it makes and gives up the same for ever");
                let bytes = cost(&entries, &build, &book).bytes;
                let mut at = 0;
                entries.retain(|_| { at += 1; !build.evict.zygotes.contains(&(at - 1)) });
                entries.iter_mut().for_each(|entry| entry.parent = None);
                entries.push(entry(None, build.sees, bytes, 1 + rounds));
            }
        }

        #[test]
        fn what_cannot_be_made_is_not_planned(entries in trees(), profiles in profiles()) {
            prop_assert_eq!(plan(&entries, &[], &demands(&profiles), &simple(8), 0.5, all(1 << 30), |_, _, _| true), None);
        }
    }

    #[test]
    fn a_zygote_is_made_for_more_than_it_costs_and_when_that_is_there_to_be_spent() {
        let (book, root) = (simple(1), [entry(None, set(&[]), 1 << 20, 0)]);
        let profile = Profile::new(0, set(&[0]), set(&[0]), &book);
        let import = profile.saved(&set(&[0]));
        let made = |starts, milliseconds| {
            let demands = [Demand { profile: &profile, weight: starts }];
            let means = Means { milliseconds, ..all(1 << 30) };
            plan(&root, &[], &demands, &book, 0.0, means, |_, _, _| false).is_some()
        };
        let price = import + MAKING_MS;
        assert!(!made(1.0, f64::INFINITY), "one start saves its imports, and not the making");
        assert!(made(price / import, f64::INFINITY));
        assert!(made(price / import, price));
        assert!(!made(price / import, price - 1.0));
    }

    #[test]
    fn what_must_be_imported_again_is_charged_again() {
        let book = simple(2);
        let profile = Profile::new(0, set(&[0, 1]), set(&[0, 1]), &book);
        let demands = [Demand { profile: &profile, weight: 100.0 }];
        let planned = |bears, budget| {
            let above = Entry { bears, ..entry(Some(0), set(&[0]), 10 << 20, 1) };
            let entries = [entry(None, set(&[]), 1 << 20, 0), above];
            plan(&entries, &[], &demands, &book, 0.0, all(budget), |_, _, _| false)
        };
        let one = profile.saved(&set(&[0]));
        assert_eq!(planned(true, 1 << 30).unwrap().milliseconds, MAKING_MS + one);
        assert_eq!(planned(false, 1 << 30).unwrap().milliseconds, MAKING_MS + 2.0 * one);
        let instead = planned(true, 15 << 20).unwrap();
        assert_eq!((instead.evict.zygotes, instead.milliseconds), (vec![1], MAKING_MS + 2.0 * one));
    }
}
