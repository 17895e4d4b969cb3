//! The handler cache: idle instances by handler, least recently used first, under a cap of measured
//! memory.
//!
//! Of a handler whose instances were promised to somebody, the newest stay, as many as were promised: neither age nor want of
//! room takes them out.
//!
//! Plain data: whatever is taken out is returned, and is dropped by the caller outside any lock.
//! Time comes in as an argument.

use std::collections::{BTreeMap, HashMap};

use tokio::time::Instant;

use function::VersionId;

/// Names one stay of one instance in the cache; greater is later.
pub(crate) type Ticket = u64;

/// What idle instances may cost at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cap {
    pub(crate) bytes: u64,
    pub(crate) instances: usize,
}

/// Idle items of type `T` by handler.
#[derive(Debug)]
pub(crate) struct HandlerCache<T> {
    /// In the order in which they came: the first is the least recently used.
    idle: BTreeMap<Ticket, Idle<T>>,
    by_handler: HashMap<VersionId, Vec<Ticket>>,
    /// How many of a handler's stay.
    promised: HashMap<VersionId, usize>,
    bytes: u64,
    next: Ticket,
}

#[derive(Debug)]
struct Idle<T> {
    handler: VersionId,
    since: Instant,
    /// 0 until it was measured.
    bytes: u64,
    item: T,
}

impl<T> Default for HandlerCache<T> {
    fn default() -> Self {
        Self {
            idle: BTreeMap::new(),
            by_handler: HashMap::new(),
            promised: HashMap::new(),
            bytes: 0,
            next: 0,
        }
    }
}

impl<T> HandlerCache<T> {
    pub(crate) fn len(&self) -> usize {
        self.idle.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn idle(&self, handler: &VersionId) -> usize {
        self.by_handler.get(handler).map_or(0, Vec::len)
    }

    /// Says of which handlers how many stay; of all others none does.
    pub(crate) fn promise(&mut self, promised: HashMap<VersionId, usize>) {
        self.promised = promised;
    }

    /// Items that may be taken out for others.
    pub(crate) fn spare(&self) -> usize {
        let stay = self.promised.iter().map(|(handler, most)| self.idle(handler).min(*most));
        self.len() - stay.sum::<usize>()
    }

    /// Whether an item stays whatever else wants its place.
    fn stays(&self, ticket: Ticket) -> bool {
        // Mostly nothing is promised to anybody.
        if self.promised.is_empty() {
            return false;
        }
        let Some(idle) = self.idle.get(&ticket) else { return false };
        let most = self.promised.get(&idle.handler).copied().unwrap_or(0);
        let tickets = self.by_handler.get(&idle.handler).map_or(&[][..], Vec::as_slice);
        tickets.iter().rev().take(most).any(|one| *one == ticket)
    }

    /// The items that may be taken out, least recently used first.
    fn going(&self) -> impl Iterator<Item = (Ticket, &Idle<T>)> + Clone {
        let all = self.idle.iter().map(|(ticket, idle)| (*ticket, idle));
        all.filter(|(ticket, _)| !self.stays(*ticket))
    }

    /// All items that may be taken out with what they cost, those of a handler most recently used first.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&VersionId, Vec<(Ticket, u64, &T)>)> {
        self.by_handler.iter().map(|(handler, tickets)| {
            let stay = self.promised.get(handler).copied().unwrap_or(0);
            let idle = tickets.iter().rev().skip(stay).filter_map(|ticket| {
                let idle = self.idle.get(ticket)?;
                Some((*ticket, idle.bytes, &idle.item))
            });
            (handler, idle.collect())
        })
    }

    /// Puts an item in, as the most recently used.
    pub(crate) fn put(&mut self, handler: VersionId, since: Instant, item: T) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        self.by_handler.entry(handler.clone()).or_default().push(ticket);
        self.idle.insert(ticket, Idle { handler, since, bytes: 0, item });
        ticket
    }

    /// Takes the handler's most recently used item, so that those it no longer needs grow old.
    pub(crate) fn take(&mut self, handler: &VersionId) -> Option<T> {
        let ticket = *self.by_handler.get(handler)?.last()?;
        self.remove(ticket)
    }

    /// Takes out the least recently used item, whosever it is.
    pub(crate) fn take_oldest(&mut self) -> Option<T> {
        let (ticket, _) = self.going().next()?;
        self.remove(ticket)
    }

    /// Takes out one item, if it is still there.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let gone = self.idle.remove(&ticket)?;
        self.bytes -= gone.bytes;
        if let Some(tickets) = self.by_handler.get_mut(&gone.handler) {
            tickets.retain(|other| *other != ticket);
            if tickets.is_empty() {
                self.by_handler.remove(&gone.handler);
            }
        }
        Some(gone.item)
    }

    /// Notes what an item costs, if it is still there, and takes out what no longer fits.
    pub(crate) fn weigh(&mut self, ticket: Ticket, bytes: u64, cap: Cap) -> Vec<T> {
        if let Some(idle) = self.idle.get_mut(&ticket) {
            self.bytes = self.bytes - idle.bytes + bytes;
            idle.bytes = bytes;
        }
        let items = self.going().map(|(ticket, idle)| (ticket, idle.bytes));
        let victims = evict(items, self.bytes, self.idle.len(), cap);
        self.remove_all(victims)
    }

    /// Takes out what came before `before`.
    pub(crate) fn expire(&mut self, before: Instant) -> Vec<T> {
        // Items came in the order of time, so the old ones are all in front.
        let old =
            self.going().take_while(|(_, idle)| idle.since < before).map(|(ticket, _)| ticket);
        let old = old.collect();
        self.remove_all(old)
    }

    /// Takes out all items of a handler.
    pub(crate) fn forget(&mut self, handler: &VersionId) -> Vec<T> {
        let tickets = self.by_handler.get(handler).cloned().unwrap_or_default();
        self.remove_all(tickets)
    }

    /// Takes out the least recently used half, at least one.
    pub(crate) fn shed(&mut self) -> Vec<T> {
        let half = self.spare().div_ceil(2);
        let oldest = self.going().take(half).map(|(ticket, _)| ticket).collect();
        self.remove_all(oldest)
    }

    /// Takes out everything.
    pub(crate) fn clear(&mut self) -> Vec<T> {
        let all = self.idle.keys().copied().collect();
        self.remove_all(all)
    }

    fn remove_all(&mut self, tickets: Vec<Ticket>) -> Vec<T> {
        tickets.into_iter().filter_map(|ticket| self.remove(ticket)).collect()
    }
}

/// Which items must go so that the rest fits: one that alone is more than the whole budget, then
/// the least recently used. `items` come in that order.
pub(crate) fn evict(
    items: impl Iterator<Item = (Ticket, u64)> + Clone,
    mut bytes: u64,
    mut count: usize,
    cap: Cap,
) -> Vec<Ticket> {
    // An item that can never stay must not push out all others first.
    let huge = items.clone().filter(|(_, size)| *size > cap.bytes);
    let others = items.filter(|(_, size)| *size <= cap.bytes);
    let mut order = huge.chain(others);
    let mut victims = Vec::new();
    while bytes > cap.bytes || count > cap.instances {
        let Some((ticket, size)) = order.next() else { break };
        victims.push(ticket);
        bytes -= size;
        count -= 1;
    }
    victims
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn id(number: u8) -> VersionId {
        VersionId(Arc::from(format!("h{number}")))
    }

    proptest! {
        #[test]
        fn after_evicting_the_rest_fits_and_nothing_went_that_could_have_stayed(
            sizes in prop::collection::vec(0u64..100, 0..20), bytes in 0u64..300, instances in 0usize..20,
        ) {
            let items: Vec<(Ticket, u64)> = (0..).zip(sizes.iter().copied()).collect();
            let total = sizes.iter().sum();
            let cap = Cap { bytes, instances };
            let victims = evict(items.iter().copied(), total, items.len(), cap);
            let gone: u64 = victims.iter().map(|ticket| sizes[usize::try_from(*ticket).unwrap()]).sum();
            prop_assert!(total - gone <= bytes && items.len() - victims.len() <= instances);
            // The last victim was needed: with it, the rest would not fit.
            if let Some(last) = victims.last() {
                let size = sizes[usize::try_from(*last).unwrap()];
                prop_assert!(total - gone + size > bytes || items.len() - victims.len() + 1 > instances);
            }
            // Among those that fit the budget alone, none stays that is older than a victim.
            let fitting: Vec<_> = victims.iter().filter(|t| sizes[usize::try_from(**t).unwrap()] <= bytes).collect();
            if let Some(youngest) = fitting.iter().max() {
                let older_stays = items.iter().any(|(t, s)| *s <= bytes && t < *youngest && !victims.contains(t));
                prop_assert!(!older_stays);
            }
        }

        #[test]
        fn the_cache_agrees_with_a_plain_list(steps in prop::collection::vec((0u8..6, 0u8..4, 0u64..50), 1..80)) {
            let cap = Cap { bytes: 120, instances: 5 };
            let mut cache = HandlerCache::default();
            let mut list: Vec<(Ticket, u8, u64, u64)> = Vec::new();
            let now = Instant::now();
            for (step, (kind, handler, size)) in (0u64..).zip(steps) {
                match kind {
                    0..=2 => {
                        let ticket = cache.put(id(handler), now + Duration::from_secs(step), step);
                        list.push((ticket, handler, size, step));
                        for item in cache.weigh(ticket, size, cap) {
                            let oldest = list.remove(0);
                            prop_assert_eq!(oldest.3, item);
                        }
                    }
                    3 => {
                        let expected = list.iter().rposition(|entry| entry.1 == handler);
                        prop_assert_eq!(cache.take(&id(handler)).is_some(), expected.is_some());
                        if let Some(at) = expected { list.remove(at); }
                    }
                    4 => {
                        let before = list.len();
                        list.retain(|entry| entry.1 != handler);
                        prop_assert_eq!(cache.forget(&id(handler)).len(), before - list.len());
                    }
                    _ => {
                        let gone = cache.shed().len();
                        prop_assert_eq!(gone, list.len().div_ceil(2));
                        list.drain(..gone);
                    }
                }
                prop_assert_eq!(cache.len(), list.len());
                prop_assert_eq!(cache.bytes(), list.iter().map(|entry| entry.2).sum::<u64>());
                prop_assert!(cache.bytes() <= cap.bytes && cache.len() <= cap.instances);
                for handler in 0..4 {
                    prop_assert_eq!(cache.idle(&id(handler)), list.iter().filter(|e| e.1 == handler).count());
                }
            }
            list.clear();
            cache.clear();
            prop_assert!(cache.idle.is_empty() && cache.by_handler.is_empty() && cache.bytes() == 0);
        }
    }

    #[test]
    fn one_instance_larger_than_the_budget_leaves_the_others_alone() {
        let cap = Cap { bytes: 100, instances: 10 };
        let mut cache = HandlerCache::default();
        let now = Instant::now();
        let small = cache.put(id(1), now, "small");
        cache.weigh(small, 40, cap);
        let huge = cache.put(id(2), now, "huge");
        assert_eq!(cache.weigh(huge, 101, cap), ["huge"]);
        assert_eq!(cache.take(&id(1)), Some("small"));
    }

    #[test]
    fn what_is_promised_stays_whatever_wants_its_place() {
        let cap = Cap { bytes: 100, instances: 3 };
        let mut cache = HandlerCache::default();
        let now = Instant::now();
        cache.promise(HashMap::from([(id(1), 2), (id(3), 5)]));
        for (handler, item) in [(1, "a"), (1, "b"), (1, "c"), (2, "d")] {
            let ticket = cache.put(id(handler), now, item);
            let gone = cache.weigh(ticket, 10, cap);
            assert_eq!(gone, if item == "d" { vec!["a"] } else { vec![] }, "{item}");
        }
        assert_eq!((cache.len(), cache.spare()), (3, 1));
        let shown: usize = cache.each().map(|(_, idle)| idle.len()).sum();
        assert_eq!(shown, 1);
        // One more than there is room for, and then more bytes than there may be.
        let large = cache.put(id(1), now, "e");
        assert_eq!(cache.weigh(large, 200, cap), ["b", "d"]);
        assert!(cache.shed().is_empty() && cache.take_oldest().is_none());
        assert!(cache.expire(now + Duration::from_secs(1)).is_empty());
        // A call takes it all the same; what is promised no more goes.
        assert_eq!(cache.take(&id(1)), Some("e"));
        cache.promise(HashMap::new());
        assert_eq!(cache.take_oldest(), Some("c"));
    }

    #[test]
    fn only_what_is_old_expires() {
        let mut cache = HandlerCache::default();
        let now = Instant::now();
        cache.put(id(1), now, "old");
        cache.put(id(1), now + Duration::from_secs(10), "young");
        assert_eq!(cache.expire(now + Duration::from_secs(5)), ["old"]);
        assert_eq!(cache.take(&id(1)), Some("young"));
    }
}
