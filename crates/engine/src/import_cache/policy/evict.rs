//! Which zygotes to evict, as plain functions.
//!
//! Each function returns indexes into `entries`, in the order of eviction, until the rest fits. Roots
//! go last, and the most recently used root never. Idle instances that share the budget are evicted
//! in between, in the given order: least saved per byte first.

use crate::import_cache::model::entry::{Entry, is_last_root, marginal};
use crate::import_cache::policy::benefit::Benefit;
use crate::warm_pool::Offer;

/// Zygotes and idle instances to evict.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Victims {
    /// Indexes of zygotes.
    pub(crate) zygotes: Vec<usize>,
    /// Number of idle instances, from the first.
    pub(crate) idle: usize,
}

/// What may stay, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capacity {
    /// Bytes of zygotes and idle instances together.
    pub(crate) bytes: u64,
    /// Number of zygotes.
    pub(crate) zygotes: usize,
}

/// Least recently used first.
pub(crate) fn least_recent(entries: &[Entry], room: Capacity) -> Vec<usize> {
    by(entries, &[], room, |_| vec![0.0; entries.len()]).zygotes
}

/// SOCK §4.3: the benefit of evicting an entry is the on-disk size of the packages that it includes
/// and its parent does not, the cost is its uses over a recent interval; the highest
/// benefit-to-cost ratio goes first. `disk` and `uses` are by index.
pub(crate) fn sock(entries: &[Entry], room: Capacity, disk: &[f64], uses: &[f64]) -> Vec<usize> {
    let ratio = disk.iter().zip(uses).map(|(disk, uses)| uses / disk.max(1.0));
    let ratio: Vec<f64> = ratio.collect();
    by(entries, &[], room, |_| ratio.clone()).zygotes
}

/// The least loss to recent calls per freed byte first. `idle` comes in that order.
pub(crate) fn utility(
    entries: &[Entry],
    idle: &[Offer],
    room: Capacity,
    benefit: &Benefit<'_>,
) -> Victims {
    by(entries, idle, room, |alive| {
        let missed = benefit.missed(alive);
        let density = |at: usize| per_byte(missed[at], marginal(entries, at));
        (0..entries.len()).map(density).collect()
    })
}

/// Milliseconds saved per byte kept.
#[expect(clippy::cast_precision_loss, reason = "bytes as a divisor")]
pub(crate) fn per_byte(saved: f64, bytes: u64) -> f64 {
    saved / bytes.max(1) as f64
}

/// Evicts the lowest-ranked entry, the least recently used of equals, until the rest fits.
fn by(
    entries: &[Entry],
    idle: &[Offer],
    room: Capacity,
    rank: impl Fn(&[bool]) -> Vec<f64>,
) -> Victims {
    let mut bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
    bytes += idle.iter().map(|offer| offer.bytes).sum::<u64>();
    let mut alive = vec![true; entries.len()];
    let mut gone = Victims::default();
    loop {
        let too_many = entries.len() - gone.zygotes.len() > room.zygotes;
        if bytes <= room.bytes && !too_many {
            break;
        }
        let ranks = rank(&alive);
        let left = (0..entries.len()).filter(|at| alive[*at] && !is_last_root(entries, *at));
        let least = left.min_by(|one, other| {
            let (left, right) = (&entries[*one], &entries[*other]);
            let by_rank = ranks[*one].total_cmp(&ranks[*other]);
            left.root().cmp(&right.root()).then(by_rank).then(left.used.cmp(&right.used))
        });
        // Instances make room for bytes only.
        let offer = idle.get(gone.idle).filter(|_| bytes > room.bytes);
        match (least, offer) {
            (Some(at), offer)
                if offer.is_none_or(|offer| {
                    !entries[at].root() && ranks[at] < per_byte(offer.saves, offer.bytes)
                }) =>
            {
                bytes -= entries[at].bytes;
                alive[at] = false;
                gone.zygotes.push(at);
            }
            (_, Some(offer)) => {
                bytes -= offer.bytes;
                gone.idle += 1;
            }
            _ => break,
        }
    }
    gone
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::import_cache::model::catalog::tests::simple;
    use crate::import_cache::model::entry::tests::{entry, set, trees};
    use crate::import_cache::model::profile::Profile;
    use crate::import_cache::policy::benefit::Demand;

    fn bytes(bytes: u64) -> Capacity {
        Capacity { bytes, zygotes: usize::MAX }
    }

    fn all(entries: &[Entry], budget: u64) -> [Vec<usize>; 3] {
        let some: Vec<f64> = (0..entries.len()).map(|at| ((at * 5) % 7) as f64).collect();
        let (profile, weight) = (Profile::new(0, set(&[0, 1, 2]), set(&[]), &simple(8)), 1.0);
        let demands = [Demand { profile: &profile, weight }];
        [
            least_recent(entries, bytes(budget)),
            sock(entries, bytes(budget), &some, &some),
            utility(entries, &[], bytes(budget), &Benefit::new(entries, &demands, 0.5)).zygotes,
        ]
    }

    fn left<'a>(entries: &'a [Entry], gone: &[usize]) -> Vec<&'a Entry> {
        let left = entries.iter().enumerate().filter(|(at, _)| !gone.contains(at));
        left.map(|(_, entry)| entry).collect()
    }

    proptest! {
        #[test]
        fn the_rest_fits_or_is_only_the_last_root(entries in trees(), budget in 0u64..500) {
            for gone in all(&entries, budget) {
                let left = left(&entries, &gone);
                let bytes: u64 = left.iter().map(|entry| entry.bytes).sum();
                prop_assert!(bytes <= budget || left.len() == 1 && left[0].root());
            }
        }

        #[test]
        fn the_last_root_stays_and_no_root_goes_before_another(entries in trees(), budget in 0u64..500) {
            for gone in all(&entries, budget) {
                prop_assert!(gone.iter().all(|at| !is_last_root(&entries, *at)));
                if gone.iter().any(|at| entries[*at].root()) {
                    prop_assert!(left(&entries, &gone).iter().all(|entry| entry.root()));
                }
            }
        }

        #[test]
        fn nothing_goes_while_all_fits_and_a_larger_budget_never_costs_more_zygotes(entries in trees(), budget in 0u64..500, more in 0u64..200) {
            let total: u64 = entries.iter().map(|entry| entry.bytes).sum();
            for (gone, fewer) in all(&entries, budget).into_iter().zip(all(&entries, budget + more)) {
                prop_assert!(total > budget || gone.is_empty());
                prop_assert!(gone.starts_with(&fewer));
            }
        }
    }

    proptest! {
        #[test]
        fn with_idle_instances_the_rest_fits_or_is_only_the_last_root_and_the_least_useful_go_first(
            entries in trees(), sizes in prop::collection::vec((0u64..100, 0u8..20), 0..12), budget in 0u64..800, more in 0u64..200,
        ) {
            let (profile, weight) = (Profile::new(0, set(&[0, 1, 2]), set(&[]), &simple(8)), 1.0);
            let demands = [Demand { profile: &profile, weight }];
            let benefit = Benefit::new(&entries, &demands, 0.5);
            let mut idle: Vec<Offer> = (0..).zip(sizes).map(|(ticket, (bytes, saves))| Offer { ticket, bytes, saves: f64::from(saves) }).collect();
            idle.sort_by(|one, other| per_byte(one.saves, one.bytes).total_cmp(&per_byte(other.saves, other.bytes)));
            let gone = utility(&entries, &idle, bytes(budget), &benefit);
            let stay = left(&entries, &gone.zygotes);
            let used = stay.iter().map(|entry| entry.bytes).sum::<u64>() + idle[gone.idle..].iter().map(|offer| offer.bytes).sum::<u64>();
            prop_assert!(used <= budget || gone.idle == idle.len() && stay.len() == 1 && stay[0].root());
            // A larger budget takes away no more.
            let fewer = utility(&entries, &idle, bytes(budget + more), &benefit);
            prop_assert!(gone.zygotes.starts_with(&fewer.zygotes) && fewer.idle <= gone.idle);
            // Roots, from which all else can be made, outlive every idle instance.
            let root_went = gone.zygotes.iter().any(|at| entries[*at].root());
            prop_assert!(!root_went || gone.idle == idle.len());
        }
    }

    #[test]
    fn memory_goes_from_zygotes_to_instances_and_back_with_what_they_save() {
        let catalog = simple(1);
        let profile = Profile::new(0, set(&[0]), set(&[0]), &catalog);
        let demands = [Demand { profile: &profile, weight: 1.0 }];
        let tree = [entry(None, set(&[]), 1, 0), entry(Some(0), set(&[0]), 10, 1)];
        let benefit = Benefit::new(&tree, &demands, 0.0);
        let missed = benefit.missed(&[true, true])[1];
        for (saves, zygotes, idle) in [(missed / 2.0, vec![], 1), (missed * 2.0, vec![1], 0)] {
            let offer = Offer { ticket: 0, bytes: 10, saves };
            assert_eq!(utility(&tree, &[offer], bytes(11), &benefit), Victims { zygotes, idle });
        }
    }

    #[test]
    fn sock_evicts_by_disk_size_over_recent_uses() {
        // A, B and C are 100, 10 and 40 bytes on disk; entry 3 includes A and C, of which its
        // parent has A.
        let tree = [
            entry(None, set(&[]), 1, 0),
            entry(Some(0), set(&[1]), 1, 1),
            entry(Some(0), set(&[2]), 1, 2),
            entry(Some(1), set(&[1, 3]), 1, 3),
        ];
        let disk = [0.0, 100.0, 10.0, 40.0];
        // Benefit to cost: 100/20 = 5, 10/1 = 10, 40/5 = 8.
        let uses = [30.0, 20.0, 1.0, 5.0];
        assert_eq!(sock(&tree, bytes(3), &disk, &uses), [2]);
        assert_eq!(sock(&tree, bytes(2), &disk, &uses), [2, 3]);
        assert_eq!(sock(&tree, bytes(1), &disk, &uses), [2, 3, 1]);
        // An entry without recent uses goes before all others.
        assert_eq!(sock(&tree, bytes(3), &disk, &[30.0, 0.0, 1.0, 5.0]), [1]);
        assert_eq!(sock(&tree, bytes(3), &disk, &[30.0, 0.0, 0.0, 5.0]), [1]);
    }

    #[test]
    fn utility_keeps_what_spares_most_for_its_memory() {
        let catalog = simple(3);
        let locks = [set(&[0, 1]), set(&[0, 2])];
        let profiles = locks.map(|locked| Profile::new(0, locked.clone(), locked, &catalog));
        let demands =
            [(0, 3.0), (1, 1.0)].map(|(at, weight)| Demand { profile: &profiles[at], weight });
        // Two that serve one handler each wholly, and one that serves both in part.
        let tree = [
            entry(None, set(&[]), 1, 0),
            entry(Some(0), set(&[0]), 10, 1),
            entry(Some(0), set(&[0, 1]), 10, 2),
            entry(Some(0), set(&[0, 2]), 10, 3),
        ];
        let benefit = Benefit::new(&tree, &demands, 0.0);
        // The common one is not missed while both have their own; then the one that is called less
        // goes.
        assert_eq!(utility(&tree, &[], bytes(21), &benefit).zygotes, [1]);
        assert_eq!(utility(&tree, &[], bytes(11), &benefit).zygotes, [1, 3]);
    }
}
