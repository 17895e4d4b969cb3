//! Which views are kept.

use std::collections::HashMap;

use super::Key;

/// After so many requests each counts half.
const AGE: u32 = 1024;

/// Views for the next sandbox with the same limits, at most so many.
///
/// The one gives way that was asked for least often of late; of several the one that was not asked for the longest. So a tenant with
/// very many limits pushes out its own views, and not those that others use often.
#[derive(Debug)]
pub(super) struct Kept<V> {
    most: usize,
    /// Since counts were halved.
    requests: u32,
    /// Requests for each, of late, those included that were not kept. No more than twice [`AGE`]: who was asked for once is forgotten.
    asked: HashMap<Key, u32>,
    /// The one that was asked for last is the last.
    all: Vec<(Key, V)>,
}

impl<V> Kept<V> {
    /// None yet.
    pub(super) fn new(most: usize) -> Self {
        Self { most, requests: 0, asked: HashMap::new(), all: Vec::new() }
    }

    /// The view with this key, which is asked for.
    pub(super) fn ask(&mut self, key: Key) -> Option<&V> {
        self.requests += 1;
        if self.requests == AGE {
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

    /// Keeps one that was not there when it was asked for. Returns the one that gives way.
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

    /// Asks as a sandbox does. Returns whether a view had to be made.
    fn ask(kept: &mut Kept<u64>, memory: u64) -> bool {
        if let Some(found) = kept.ask(key(memory)) {
            assert_eq!(*found, memory);
            return false;
        }
        kept.keep(key(memory), memory);
        true
    }

    #[test]
    fn who_has_very_many_limits_pushes_out_its_own() {
        let mut kept = Kept::new(8);
        let common = [1, 2, 3];
        let mut made = 0;
        for round in 0..1000 {
            made += common.iter().filter(|one| ask(&mut kept, **one)).count();
            // Never the same two within what is kept.
            for one in 0..20 {
                ask(&mut kept, 100 + (20 * round + one) % 60);
            }
        }
        assert!(made < 20, "{made} of 3000");
        assert_eq!(kept.all.len(), 8);
    }

    #[test]
    fn what_was_common_gives_way_when_it_is_so_no_more() {
        let mut kept = Kept::new(2);
        for _ in 0..10_000 {
            ask(&mut kept, 1);
        }
        for _ in 0..20 * AGE {
            ask(&mut kept, 2);
            ask(&mut kept, 3);
        }
        assert!(!ask(&mut kept, 2) && !ask(&mut kept, 3));
    }

    #[test]
    fn among_equals_the_one_goes_that_was_not_asked_for_the_longest() {
        let mut kept = Kept::new(3);
        assert!([1, 2, 3].iter().all(|one| ask(&mut kept, *one)));
        assert!([1, 2, 3].iter().all(|one| !ask(&mut kept, *one)));
        assert_eq!(kept.keep(key(4), 4), Some(1));
        assert_eq!(kept.keep(key(5), 5), Some(4));
    }
}
