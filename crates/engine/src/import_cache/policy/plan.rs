//! Which zygote to make next, as a plain function.
//!
//! A candidate is worth making when it would have spared recent starts (older ones weighted less)
//! more than making it takes, and when it is worth more than what is evicted for it. So a zygote is
//! made about when calls have paid once for not having it.

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::rc::Rc;

use crate::import_cache::model::catalog::Catalog;
use crate::import_cache::model::entry::Entry;
use crate::import_cache::model::estimate::Estimate;
use crate::import_cache::model::set::Set;
use crate::import_cache::policy::benefit::{Benefit, Demand};
use crate::import_cache::policy::candidates::{Candidate, candidates};
use crate::import_cache::policy::evict::{self, Capacity, Victims};
use crate::import_cache::policy::price::{Price, price as price_of};
use crate::warm_pool::Offer;

/// Candidates for which evictions are worked out.
const MAX_TRIED: usize = 6;

/// A gain equal to the price is enough: a sum of floats may fall short of its equal.
const EVEN: f64 = 0.999;

/// A zygote that should be made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Build {
    pub(crate) domain: usize,
    pub(crate) sees: Set,
    pub(crate) modules: Set,
    /// Processor milliseconds that making it is expected to take.
    pub(crate) milliseconds: f64,
    /// What is evicted for it.
    pub(crate) evict: Victims,
}

/// What making a zygote may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resources {
    /// What may stay, the new one included.
    pub(crate) room: Capacity,
    /// Processor milliseconds that making it may take.
    pub(crate) milliseconds: f64,
}

/// The zygote most worth making per byte, if any is. It shares the room with `idle` instances,
/// least saved per byte first. `unseen_ratio` is the fraction of starts of new locks; `refused`
/// says what cannot be made.
pub(crate) fn plan(
    entries: &[Entry],
    idle: &[Offer],
    demands: &[Demand<'_>],
    catalog: &Catalog,
    unseen_ratio: f64,
    resources: Resources,
    refused: impl Fn(usize, &Set, &Set) -> bool,
) -> Option<Build> {
    let Resources { room, milliseconds: budget_ms } = resources;
    let mut benefit = Benefit::new(entries, demands, unseen_ratio);
    // Where there is room, a gain for returning locks is enough: new locks cannot lose.
    let even = EVEN * (1.0 - unseen_ratio);
    let mut offers = scored(entries, &benefit, catalog, refused);
    // Even at no price: a zygote that no handler may use is of no use.
    offers.retain(|offer| {
        offer.gain > 0.0
            && offer.gain >= even * offer.price.milliseconds
            && offer.price.bytes <= room.bytes
            && offer.price.milliseconds <= budget_ms
    });
    offers.sort_by(|one, other| other.density().total_cmp(&one.density()));
    let before = benefit.total(&vec![true; entries.len()]);
    for ScoredCandidate { domain, sees, modules, lookups, price, estimate, .. } in
        offers.into_iter().take(MAX_TRIED)
    {
        let used = entries.iter().map(|entry| entry.used).max().map_or(0, |used| used + 1);
        let asked = modules.clone();
        let bytes = price.bytes;
        let new = Entry {
            domain,
            parent: None,
            sees,
            asked,
            modules,
            lookups,
            derivable: true,
            bytes,
            used,
        };
        let with: Vec<Entry> = entries.iter().cloned().chain([new]).collect();
        benefit.push(&with[entries.len()]);
        let evict = evict::utility(&with, idle, room, &benefit);
        let alive: Vec<bool> = (0..with.len()).map(|at| !evict.zygotes.contains(&at)).collect();
        // Its best parent may be among what is evicted for it.
        let stays = (0..entries.len()).filter(|at| alive[*at]);
        let stay: Vec<Entry> = stays.map(|at| entries[at].clone()).collect();
        let new = &with[entries.len()];
        let milliseconds = price_of(&stay, domain, &new.sees, &new.modules, &estimate).milliseconds;
        let given_up: f64 = idle[..evict.idle].iter().map(|offer| offer.saves).sum();
        let more = benefit.total(&alive) - before - given_up;
        benefit.pop();
        let bar = if evict == Victims::default() { even } else { EVEN };
        if alive[entries.len()] && milliseconds <= budget_ms && more >= bar * milliseconds {
            let new = with.into_iter().next_back()?;
            return Some(Build {
                domain,
                sees: new.sees,
                modules: new.modules,
                milliseconds,
                evict,
            });
        }
    }
    None
}

/// All candidates that may be made, each once, with what it would gain and cost.
fn scored<'a>(
    entries: &[Entry],
    benefit: &Benefit<'a>,
    catalog: &'a Catalog,
    refused: impl Fn(usize, &Set, &Set) -> bool,
) -> Vec<ScoredCandidate<'a>> {
    let mut offers: Vec<ScoredCandidate<'a>> = Vec::new();
    let mut seen: HashMap<(usize, Set), usize> = HashMap::new();
    for Candidate { domain, pieces, estimate } in candidates(entries, benefit, catalog) {
        let (sees, modules, estimate) = read(catalog, &pieces, estimate);
        if modules.is_empty() || refused(domain, &sees, &modules) {
            continue;
        }
        let price = price_of(entries, domain, &sees, &modules, &estimate);
        match seen.entry((domain, modules.clone())) {
            // Take the lowest price of any handler that would use it: a lie that it costs much
            // reaches others.
            Occupied(there) => {
                let offer = &mut offers[*there.get()];
                // And the fewest lookups, for the same reason.
                let lookups = lookups(entries, domain, &sees, &modules, &estimate);
                if lookups != offer.lookups {
                    let gain = benefit.gain(domain, &sees, &modules, &lookups);
                    if gain > offer.gain {
                        (offer.gain, offer.lookups) = (gain, lookups);
                    }
                }
                if price.milliseconds < offer.price.milliseconds {
                    (offer.price, offer.estimate) = (price, estimate);
                }
            }
            Vacant(new) => {
                new.insert(offers.len());
                let lookups = lookups(entries, domain, &sees, &modules, &estimate);
                let gain = benefit.gain(domain, &sees, &modules, &lookups);
                offers.push(ScoredCandidate {
                    gain,
                    domain,
                    sees,
                    modules,
                    lookups,
                    price,
                    estimate,
                });
            }
        }
    }
    offers
}

/// What a zygote of the candidate's pieces would see and import, and the estimate for it: that of
/// the handler for which the candidate was found, if the handler may use it. What several handlers
/// have in common may hold distributions that this one did not lock, whose sources it may not
/// trust; then the estimate is the one that all users of the zygote share.
fn read<'a>(
    catalog: &'a Catalog,
    pieces: &Set,
    estimate: Rc<Estimate<'a>>,
) -> (Set, Set, Rc<Estimate<'a>>) {
    let modules = estimate.closed(pieces);
    let sees = catalog.owners(&modules);
    if estimate.may_use(&sees) {
        return (sees, modules, estimate);
    }
    let users = Rc::new(Estimate::of(catalog, &sees));
    let modules = users.closed(&modules);
    (catalog.owners(&modules), modules, users)
}

/// What a zygote of these modules is expected to look up in vain: by trusted sources, and as
/// observed of existing zygotes that hold a part of it and from which it can be derived.
fn lookups(
    entries: &[Entry],
    domain: usize,
    sees: &Set,
    modules: &Set,
    estimate: &Estimate<'_>,
) -> Set {
    let parts = entries.iter().filter(|entry| entry.domain == domain);
    let parts = parts.filter(|entry| entry.modules.within(modules));
    let parts = parts.filter(|entry| estimate.can_derive(&entry.sees, &entry.lookups, sees));
    parts.fold(estimate.lookups(sees), |lookups, entry| lookups.or(&entry.lookups))
}

/// A candidate with its gain and price.
struct ScoredCandidate<'a> {
    gain: f64,
    domain: usize,
    sees: Set,
    modules: Set,
    lookups: Set,
    price: Price,
    /// The estimate of a handler that would use it, on which the price is based.
    estimate: Rc<Estimate<'a>>,
}

impl ScoredCandidate<'_> {
    fn density(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "bytes as a divisor")]
        let density = self.gain / self.price.bytes.max(1) as f64;
        density
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sandbox::{Imports, LoadedFile};

    use super::*;
    use crate::import_cache::model::catalog::tests::simple;
    use crate::import_cache::model::entry::tests::{entry, set, trees};
    use crate::import_cache::model::import_time::ImportTime;
    use crate::import_cache::model::profile::Profile;
    use crate::import_cache::policy::price::MAKING_MS;

    fn profiles() -> impl Strategy<Value = Vec<Profile>> {
        let lock = prop::collection::btree_set(0u32..8, 1..5);
        prop::collection::vec(lock, 1..6).prop_map(|locks| {
            let locks = locks.into_iter().map(|members| members.into_iter().collect::<Set>());
            locks.map(|locked| Profile::new(0, locked.clone(), locked, &simple(8))).collect()
        })
    }

    fn cost(entries: &[Entry], build: &Build, catalog: &Catalog) -> Price {
        let estimate = Estimate::of(catalog, &build.sees);
        price_of(entries, build.domain, &build.sees, &build.modules, &estimate)
    }

    fn all(bytes: u64) -> Resources {
        let room = Capacity { bytes, zygotes: usize::MAX };
        Resources { room, milliseconds: f64::INFINITY }
    }

    fn demands(profiles: &[Profile]) -> Vec<Demand<'_>> {
        profiles.iter().map(|profile| Demand { profile, weight: 2.0 }).collect()
    }

    proptest! {
        #[test]
        fn what_is_planned_fits_with_what_stays_and_serves_somebody(entries in trees(), profiles in profiles(), unseen_ratio in 0.0..1.0f64, budget in (6u64 << 20)..(100 << 20)) {
            let (catalog, demands) = (simple(8), demands(&profiles));
            if let Some(build) = plan(&entries, &[], &demands, &catalog, unseen_ratio, all(budget), |_, _, _| false) {
                let stays = (0..entries.len()).filter(|at| !build.evict.zygotes.contains(at));
                let bytes: u64 = stays.map(|at| entries[at].bytes).sum();
                let price = cost(&entries, &build, &catalog);
                prop_assert!(bytes + price.bytes <= budget);
                prop_assert!(profiles.iter().any(|profile| build.sees.within(&profile.locked)));
                prop_assert_eq!(catalog.owners(&build.modules), build.sees);
            }
        }

        #[test]
        fn planning_comes_to_an_end(profiles in profiles(), unseen_ratio in 0.0..1.0f64, budget in (6u64 << 20)..(100 << 20)) {
            let (catalog, demands) = (simple(8), demands(&profiles));
            let mut entries = vec![entry(None, set(&[]), 1 << 20, 0)];
            let mut rounds = 0;
            loop {
                let there = |_, sees: &Set, _: &Set| entries.iter().any(|entry| entry.sees == *sees);
                let Some(build) = plan(&entries, &[], &demands, &catalog, unseen_ratio, all(budget), there) else { break };
                rounds += 1;
                prop_assert!(rounds < 100, "it makes and gives up the same for ever");
                let bytes = cost(&entries, &build, &catalog).bytes;
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
        let (catalog, root) = (simple(1), [entry(None, set(&[]), 1 << 20, 0)]);
        let profile = Profile::new(0, set(&[0]), set(&[0]), &catalog);
        let import = profile.saved(&set(&[0]));
        let made = |starts, milliseconds| {
            let demands = [Demand { profile: &profile, weight: starts }];
            let resources = Resources { milliseconds, ..all(1 << 30) };
            plan(&root, &[], &demands, &catalog, 0.0, resources, |_, _, _| false).is_some()
        };
        let price = import + MAKING_MS;
        assert!(!made(1.0, f64::INFINITY), "one start saves its imports, and not the making");
        assert!(made(price / import, f64::INFINITY));
        assert!(made(price / import, price));
        assert!(!made(price / import, price - 1.0));
    }

    #[test]
    fn what_several_have_in_common_costs_what_those_were_told_who_may_use_it() {
        let mut catalog = simple(3);
        let mut stranger = Profile::new(0, set(&[1, 2]), set(&[1]), &catalog);
        stranger.learn(0, &set(&[]), &set(&[1]), ImportTime::Load(1.0), &mut catalog);
        let file = |module: &str, milliseconds| LoadedFile {
            module: module.to_owned(),
            milliseconds,
            ..LoadedFile::default()
        };
        let files = vec![file("a", 0.5), file("b", 200.0)];
        catalog.measure(&set(&[0, 1]), &Imports { files, ..Imports::default() });
        let user = Profile::new(0, set(&[0, 1]), set(&[0, 1]), &catalog);
        let other = Profile::new(0, set(&[0, 2]), set(&[0]), &catalog);
        // Both import a, and more than half of the starts b as well. The estimate shared by both
        // has no trusted measurement of b.
        let demands =
            [(&user, 60.0), (&other, 40.0)].map(|(profile, weight)| Demand { profile, weight });
        let root = [entry(None, set(&[]), 1 << 20, 0)];
        let build =
            plan(&root, &[], &demands, &catalog, 0.0, all(1 << 30), |_, _, _| false).unwrap();
        assert_eq!((build.modules, build.milliseconds), (set(&[0, 1]), MAKING_MS + 200.5));
    }

    #[test]
    fn what_must_be_imported_again_is_charged_again() {
        let catalog = simple(2);
        let profile = Profile::new(0, set(&[0, 1]), set(&[0, 1]), &catalog);
        let demands = [Demand { profile: &profile, weight: 100.0 }];
        let planned = |derivable, budget| {
            let above = Entry { derivable, ..entry(Some(0), set(&[0]), 10 << 20, 1) };
            let entries = [entry(None, set(&[]), 1 << 20, 0), above];
            plan(&entries, &[], &demands, &catalog, 0.0, all(budget), |_, _, _| false)
        };
        let one = profile.saved(&set(&[0]));
        assert_eq!(planned(true, 1 << 30).unwrap().milliseconds, MAKING_MS + one);
        assert_eq!(planned(false, 1 << 30).unwrap().milliseconds, MAKING_MS + 2.0 * one);
        let instead = planned(true, 15 << 20).unwrap();
        assert_eq!((instead.evict.zygotes, instead.milliseconds), (vec![1], MAKING_MS + 2.0 * one));
    }
}
