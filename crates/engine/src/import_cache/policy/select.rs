//! Which zygote a call's instance is forked from, as plain functions.
//!
//! A choice always exists: a root zygote has imported nothing, so every handler of its trust domain
//! may be forked from it. Without any zygote, a fresh interpreter serves.

use crate::import_cache::model::entry::Entry;
use crate::import_cache::model::profile::Profile;

/// Milliseconds added to a fork for each module that its zygote has imported: 1.6 ms from a bare
/// interpreter to numpy and pandas, some 900 modules (page tables are copied).
const FORK_MS_PER_MODULE: f64 = 0.002;

/// SOCK §4.3: of the zygotes that import nothing unrequested, the one with the most matching
/// packages; `luck` breaks ties.
pub(crate) fn sock(entries: &[Entry], profile: &Profile, luck: u64) -> Option<usize> {
    let serving = || (0..entries.len()).filter(|at| profile.may_use(&entries[*at]));
    let most = serving().map(|at| entries[at].sees.len()).max()?;
    let ties: Vec<usize> = serving().filter(|at| entries[*at].sees.len() == most).collect();
    let luck = usize::try_from(luck % ties.len() as u64).ok()?;
    ties.get(luck).copied()
}

/// The one that spares the handler most: saved import time, less the longer fork of a larger
/// process.
pub(crate) fn utility(entries: &[Entry], profile: &Profile) -> Option<usize> {
    let serving = entries.iter().enumerate().filter(|(_, entry)| profile.may_use(entry));
    let scored = serving.map(|(at, entry)| {
        #[expect(clippy::cast_precision_loss, reason = "a count of modules")]
        let copied = entry.modules.len() as f64 * FORK_MS_PER_MODULE;
        (profile.saved(&entry.modules) - copied, entry.used, at)
    });
    let best = scored.max_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    best.map(|(_, _, at)| at)
}

/// The one that sees exactly what the handler locked and has imported what it declares, else the
/// root.
pub(crate) fn exact(entries: &[Entry], profile: &Profile) -> Option<usize> {
    let (sees, modules) = (&profile.locked, &profile.declared);
    let places = || (0..entries.len()).filter(|at| profile.may_use(&entries[*at]));
    let own = places().find(|at| entries[*at].sees == *sees && modules.within(&entries[*at].asked));
    own.or_else(|| root(entries, profile.domain))
}

/// The one that has imported nothing.
pub(crate) fn root(entries: &[Entry], domain: usize) -> Option<usize> {
    entries.iter().position(|entry| entry.domain == domain && entry.root())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::import_cache::model::catalog::tests::simple;
    use crate::import_cache::model::entry::tests::{entry, set, trees};
    use crate::import_cache::model::set::Set;

    fn figure_13() -> Vec<Entry> {
        // Entry 4 has imported C, which a handler of A and B did not ask for.
        let (a, b, c) = (0, 1, 2);
        vec![
            entry(None, set(&[]), 1, 0),
            entry(Some(0), set(&[a]), 1, 1),
            entry(Some(0), set(&[b]), 1, 2),
            entry(Some(1), set(&[a, b, c]), 1, 3),
        ]
    }

    #[test]
    fn figure_13_entries_2_and_3_serve_a_and_b_by_chance_and_entry_4_never() {
        let chosen: std::collections::BTreeSet<_> =
            (0..16).filter_map(|luck| sock(&figure_13(), &profile(&set(&[0, 1])), luck)).collect();
        assert_eq!(chosen.into_iter().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(sock(&figure_13(), &profile(&set(&[0, 1, 2])), 7), Some(3));
        assert_eq!(sock(&figure_13(), &profile(&set(&[2])), 7), Some(0));
    }

    fn locks() -> impl Strategy<Value = Set> {
        prop::collection::btree_set(0u32..8, 0..8).prop_map(|members| members.into_iter().collect())
    }

    fn profile(locked: &Set) -> Profile {
        Profile::new(0, locked.clone(), locked.clone(), &simple(8))
    }

    proptest! {
        #[test]
        fn a_zygote_with_an_unrequested_package_is_never_selected(entries in trees(), locked in locks(), luck: u64) {
            let profile = profile(&locked);
            let chosen = [sock(&entries, &profile, luck), utility(&entries, &profile), exact(&entries, &profile)];
            for at in chosen.into_iter().flatten() {
                prop_assert!(entries[at].sees.iter().all(|member| locked.contains(member)));
            }
        }

        #[test]
        fn nobody_is_left_without_a_zygote_while_there_is_a_root(entries in trees(), locked in locks(), luck: u64) {
            let rooted = entries.iter().any(Entry::root);
            let profile = profile(&locked);
            prop_assert!(!rooted || sock(&entries, &profile, luck).is_some());
            prop_assert!(!rooted || utility(&entries, &profile).is_some());
        }

        #[test]
        fn another_realms_zygote_is_never_selected(entries in trees(), locked in locks(), luck: u64) {
            let profile = Profile::new(1, locked.clone(), locked, &simple(8));
            prop_assert_eq!(sock(&entries, &profile, luck), None);
            prop_assert_eq!(utility(&entries, &profile), None);
            prop_assert_eq!(exact(&entries, &profile), None);
        }

        #[test]
        fn one_more_zygote_never_spares_a_handler_less(entries in trees(), more in trees(), locked in locks()) {
            let profile = profile(&locked);
            let spared = |entries: &[Entry]| utility(entries, &profile).map_or(0.0, |at| profile.saved(&entries[at].modules));
            let both: Vec<Entry> = entries.iter().chain(&more).cloned().collect();
            // A fork's own cost may decide between equals.
            prop_assert!(spared(&both) >= spared(&entries) - 0.1);
        }
    }
}
