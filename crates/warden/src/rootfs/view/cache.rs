//! A cache of views, with its rule of eviction.

use std::collections::HashMap;

use super::Key;

/// Number of requests after which all counts are halved.
const HALVED_AFTER: u32 = 1024;

/// Views for the next sandbox with the same limits, up to a maximum number.
///
/// The view with the fewest recent requests is evicted; among equals the one that was requested
/// longest ago. So a tenant with very many different limits pushes out its own views, and not those
/// that others use often.
#[derive(Debug)]
pub(super) struct ViewCache<V> {
    most: usize,
    /// Requests since the counts were halved.
    requests: u32,
    /// Recent requests by key, also of keys without a view. At most twice [`HALVED_AFTER`] keys: a
    /// key with a single request is forgotten.
    asked: HashMap<Key, u32>,
    /// The views, in the order of their last request.
    all: Vec<(Key, V)>,
}

impl<V> ViewCache<V> {
    /// An empty cache.
    pub(super) fn new(most: usize) -> Self {
        Self { most, requests: 0, asked: HashMap::new(), all: Vec::new() }
    }

    /// Counts a request, and returns the view with this key if there is one.
    pub(super) fn ask(&mut self, key: Key) -> Option<&V> {
        self.requests += 1;
        if self.requests == HALVED_AFTER {
            self.requests = 0;
            self.asked.retain(|_, asked| {
                *asked /= 2;
                *asked > 0
            });
        }
        *self.asked.entry(key).or_default() += 1;
        let at = self.all.iter().position(|(kept, _)| *kept == key)?;
        let found = self.all.remove(at);
        self.all.push(found);
        self.all.last().map(|(_, view)| view)
    }

    /// Adds a view that was missing. Returns the evicted one.
    pub(super) fn keep(&mut self, key: Key, view: V) -> Option<V> {
        let asked = |(_, (key, _)): &(usize, &(Key, V))| self.asked.get(key).copied();
        let least = self.all.iter().enumerate().min_by_key(asked).map(|(at, _)| at);
        let least = least.filter(|_| self.all.len() >= self.most);
        let gone = least.map(|at| self.all.remove(at).1);
        self.all.push((key, view));
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(memory: u64) -> Key {
        Key { memory, quota: None }
    }

    /// Requests a view as a sandbox does. Returns whether it had to be made.
    fn ask(kept: &mut ViewCache<u64>, memory: u64) -> bool {
        if let Some(found) = kept.ask(key(memory)) {
            assert_eq!(*found, memory);
            return false;
        }
        kept.keep(key(memory), memory);
        true
    }

    #[test]
    fn a_tenant_with_many_limits_evicts_its_own_views() {
        let mut kept = ViewCache::new(8);
        let common = [1, 2, 3];
        let mut made = 0;
        for round in 0..1000 {
            made += common.iter().filter(|one| ask(&mut kept, **one)).count();
            // No key twice within the size of the cache.
            for one in 0..20 {
                ask(&mut kept, 100 + (20 * round + one) % 60);
            }
        }
        assert!(made < 20, "{made} of 3000");
        assert_eq!(kept.all.len(), 8);
    }

    #[test]
    fn what_was_common_gives_way_when_it_is_so_no_more() {
        let mut kept = ViewCache::new(2);
        for _ in 0..10_000 {
            ask(&mut kept, 1);
        }
        for _ in 0..20 * HALVED_AFTER {
            ask(&mut kept, 2);
            ask(&mut kept, 3);
        }
        assert!(!ask(&mut kept, 2) && !ask(&mut kept, 3));
    }

    #[test]
    fn among_equals_the_one_goes_that_was_not_asked_for_the_longest() {
        let mut kept = ViewCache::new(3);
        assert!([1, 2, 3].iter().all(|one| ask(&mut kept, *one)));
        assert!([1, 2, 3].iter().all(|one| !ask(&mut kept, *one)));
        assert_eq!(kept.keep(key(4), 4), Some(1));
        assert_eq!(kept.keep(key(5), 5), Some(4));
    }
}
