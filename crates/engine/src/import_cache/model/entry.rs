//! One zygote as the policies see it: plain data.

use crate::import_cache::model::set::Set;

/// One zygote that can be forked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Its trust domain, by number.
    pub(crate) domain: usize,
    /// The place of the zygote that it was derived from, if that still exists.
    pub(crate) parent: Option<usize>,
    /// The distributions that it can import from.
    pub(crate) sees: Set,
    /// The pieces that it was asked to import.
    pub(crate) asked: Set,
    /// The pieces that it has imported.
    pub(crate) modules: Set,
    /// What its imports looked up and did not find: see
    /// [`lookups`](crate::import_cache::model::lookups).
    pub(crate) lookups: Set,
    /// Whether zygotes may be derived from it.
    pub(crate) derivable: bool,
    /// Bytes that it costs by itself.
    pub(crate) bytes: u64,
    /// When it was last forked; greater is later, and no two are equal.
    pub(crate) used: u64,
}

impl Entry {
    /// Whether it has imported nothing: all others of its trust domain descend from it.
    pub(crate) fn root(&self) -> bool {
        self.sees.is_empty()
    }

    /// The trust rule: a handler of `domain` that locked `locked` may be forked from it, since it
    /// holds nothing else.
    pub(crate) fn serves(&self, domain: usize, locked: &Set) -> bool {
        self.domain == domain && self.sees.within(locked)
    }
}

/// Bytes freed by evicting the zygote at `at`: zygotes derived from it keep their share of what it
/// imported.
pub(crate) fn marginal(entries: &[Entry], at: usize) -> u64 {
    let children = entries.iter().filter(|entry| entry.parent == Some(at)).count();
    entries[at].bytes / (1 + children as u64)
}

/// Whether the zygote at `at` is the most recently used root of all trust domains. There is a root
/// for each tenant that ever called; the others are made again when needed.
pub(crate) fn is_last_root(entries: &[Entry], at: usize) -> bool {
    let roots = entries.iter().filter(|entry| entry.root());
    entries[at].root() && roots.map(|entry| entry.used).max() == Some(entries[at].used)
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Possible trees of one trust domain: a root first unless it was lost. Each zygote sees all
    /// that its parent sees, and has imported what it sees (one piece for each distribution, of the
    /// same number).
    pub(crate) fn trees() -> impl Strategy<Value = Vec<Entry>> {
        let node =
            (any::<prop::sample::Index>(), prop::collection::btree_set(0u32..8, 0..4), 0u64..100);
        (any::<bool>(), prop::collection::vec(node, 0..10)).prop_map(|(rooted, nodes)| {
            let mut entries: Vec<Entry> = Vec::new();
            if rooted {
                entries.push(entry(None, Set::default(), 10, 0));
            }
            for (above, adds, bytes) in nodes {
                let parent = (!entries.is_empty()).then(|| above.index(entries.len()));
                let inherited = parent.map_or_else(Set::default, |at| entries[at].sees.clone());
                let sees = inherited.or(&adds.into_iter().collect());
                let used = (entries.len() as u64 * 7) % 13;
                entries.push(entry(parent, sees, bytes, used));
            }
            entries
        })
    }

    pub(crate) fn entry(parent: Option<usize>, sees: Set, bytes: u64, used: u64) -> Entry {
        let (asked, modules, lookups) = (sees.clone(), sees.clone(), Set::default());
        Entry { domain: 0, parent, asked, modules, sees, lookups, derivable: true, bytes, used }
    }

    pub(crate) fn set(members: &[u32]) -> Set {
        members.iter().copied().collect()
    }

    #[test]
    fn of_all_realms_roots_the_one_that_was_used_last_is_the_last() {
        let own = entry(None, set(&[]), 10, 3);
        let others = Entry { domain: 1, ..entry(None, set(&[]), 10, 5) };
        let tree = [own, others, entry(Some(0), set(&[1]), 10, 7)];
        assert_eq!([0, 1, 2].map(|at| is_last_root(&tree, at)), [false, true, false]);
    }

    #[test]
    fn a_zygote_with_children_gives_back_only_a_part_of_its_memory() {
        let tree = [
            entry(None, set(&[]), 10, 0),
            entry(Some(0), set(&[1]), 60, 1),
            entry(Some(1), set(&[1, 2]), 20, 2),
        ];
        assert_eq!([0, 1, 2].map(|at| marginal(&tree, at)), [5, 30, 20]);
    }
}
