//! Which creation has the turn, which ones wait, and which are late: plain data.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Creations that may be late (seem to hang) while another has the turn: each may keep a core busy.
const MAX_LATE: usize = 2;

/// Tickets are numbered in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct CreationQueue {
    /// The turn is taken, or a ticket is called to take it.
    taken: bool,
    called: Option<u64>,
    tickets: u64,
    waiting: BTreeMap<u64, String>,
    /// By tenant, the number of its last turn, while any ticket waits.
    last: HashMap<String, u64>,
    late: BTreeMap<u64, LateEntry>,
}

#[derive(Debug)]
struct LateEntry {
    tenant: String,
    since: Instant,
    end: CancellationToken,
}

/// Whether one more creation may be late while another is made.
#[derive(Debug, PartialEq)]
pub(crate) enum LateRoom {
    Free,
    /// From then on, by ending another.
    From(Instant),
    /// There is no room, and no ticket waits for it.
    NotNeeded,
}

impl CreationQueue {
    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// Queues a ticket for the tenant.
    pub(crate) fn wait(&mut self, tenant: &str) -> u64 {
        let ticket = self.ticket();
        self.waiting.insert(ticket, tenant.to_owned());
        if !self.taken {
            self.call_next();
        }
        ticket
    }

    /// Takes the turn if that ticket is called.
    pub(crate) fn take(&mut self, ticket: u64) -> bool {
        let called = self.called == Some(ticket);
        self.called = self.called.filter(|_| !called);
        called
    }

    /// Removes a ticket from the queue.
    pub(crate) fn leave(&mut self, ticket: u64) {
        self.waiting.remove(&ticket);
        if self.take(ticket) {
            self.call_next();
        }
    }

    /// Calls the next ticket: that of the tenant whose last turn is longest ago.
    pub(crate) fn call_next(&mut self) {
        let last = |tenant: &String| self.last.get(tenant).copied().unwrap_or(0);
        let next = self.waiting.iter().min_by_key(|(ticket, tenant)| (last(tenant), **ticket));
        self.called = next.map(|(ticket, _)| *ticket);
        self.taken = self.called.is_some();
        let Some(tenant) = self.called.and_then(|ticket| self.waiting.remove(&ticket)) else {
            self.last.clear();
            return;
        };
        let turn = self.ticket();
        self.last.insert(tenant, turn);
    }

    /// Adds a creation that is late since then, and is ended with `end`.
    pub(crate) fn add_late(&mut self, tenant: &str, since: Instant, end: CancellationToken) -> u64 {
        let ticket = self.ticket();
        self.late.insert(ticket, LateEntry { tenant: tenant.to_owned(), since, end });
        ticket
    }

    /// Removes a creation that was late.
    pub(crate) fn remove_late(&mut self, ticket: u64) {
        self.late.remove(&ticket);
    }

    /// Whether the number of late creations is within its limit; ends one if another waits and that
    /// is due.
    pub(crate) fn room(&mut self, now: Instant, grace: Duration) -> LateRoom {
        if self.late.len() <= MAX_LATE {
            return LateRoom::Free;
        }
        if self.waiting.is_empty() {
            return LateRoom::NotNeeded;
        }
        let Some((ticket, from)) =
            self.longest().map(|(ticket, late)| (ticket, late.since + grace))
        else {
            return LateRoom::Free;
        };
        if now < from {
            return LateRoom::From(from);
        }
        if let Some(late) = self.late.remove(&ticket) {
            late.end.cancel();
        }
        self.room(now, grace)
    }

    /// Of the tenant with the most late creations, the one that is late for longest.
    fn longest(&self) -> Option<(u64, &LateEntry)> {
        let mut count: HashMap<&str, usize> = HashMap::new();
        self.late.values().for_each(|late| *count.entry(&late.tenant).or_default() += 1);
        let most = count.values().copied().max();
        let mut late = self.late.iter().map(|(ticket, late)| (*ticket, late));
        late.find(|(_, late)| count.get(&*late.tenant).copied() == most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tenant_goes_next_whose_last_turn_is_longest_ago() {
        let mut queue = CreationQueue::default();
        let names = ["a", "a", "a", "b", "c", "b"];
        let tickets = names.map(|tenant| queue.wait(tenant));
        let mut order = Vec::new();
        while let Some(at) = tickets.iter().position(|ticket| queue.take(*ticket)) {
            order.push(names[at]);
            queue.call_next();
        }
        assert_eq!(order, ["a", "b", "c", "a", "b", "a"]);
        assert!(!queue.taken && queue.last.is_empty());
    }

    #[test]
    fn who_leaves_when_he_is_called_hands_the_turn_on() {
        let mut queue = CreationQueue::default();
        let [one, two, three] = ["a", "b", "c"].map(|tenant| queue.wait(tenant));
        queue.leave(two);
        queue.leave(one);
        assert!(!queue.take(one) && !queue.take(two) && queue.take(three));
    }

    #[tokio::test(start_paused = true)]
    async fn of_too_many_that_are_late_the_longest_of_whoever_has_most_is_ended() {
        let (mut queue, grace) = (CreationQueue::default(), Duration::from_secs(10));
        let begun = Instant::now();
        let ends: Vec<_> = ["a", "b", "b"]
            .into_iter()
            .map(|tenant| {
                let end = CancellationToken::new();
                queue.add_late(tenant, begun, end.clone());
                end
            })
            .collect();
        assert_eq!(queue.room(begun + grace, grace), LateRoom::NotNeeded, "no ticket waits");
        queue.wait("c");
        queue.wait("c");
        assert_eq!(queue.room(begun, grace), LateRoom::From(begun + grace));
        assert_eq!(queue.room(begun + grace, grace), LateRoom::Free);
        let ended: Vec<_> = ends.iter().map(CancellationToken::is_cancelled).collect();
        assert_eq!(ended, [false, true, false]);
    }
}
