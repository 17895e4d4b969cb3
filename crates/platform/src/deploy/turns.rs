//! Turns of deploys, shared out among tenants.
//!
//! A deploy compiles and unpacks on all processors, and may take many minutes: few run at a time. A tenant takes a turn only while it
//! has fewer than are free: alone it has two of three, and the third is there for the next tenant at once. Of those that wait, the
//! first goes whose tenant may.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Deploys that are made at the same time.
const AT_ONCE: usize = 3;

/// The deploys that are under way, and those that wait.
#[derive(Debug, Default)]
struct Queue {
    /// By tenant; all of them where deploys are held off.
    held: HashMap<String, usize>,
    /// In the order in which they came.
    waiting: Vec<(u64, String)>,
    /// The number of the next that waits.
    next: u64,
}

impl Queue {
    fn free(&self) -> usize {
        AT_ONCE.saturating_sub(self.held.values().sum())
    }

    fn may(&self, tenant: &str) -> bool {
        self.held.get(tenant).copied().unwrap_or(0) < self.free()
    }

    fn wait(&mut self, tenant: &str) -> u64 {
        let number = self.next;
        self.next += 1;
        self.waiting.push((number, tenant.to_owned()));
        number
    }

    /// Gives the turn to that one, if none before it may have it.
    fn take(&mut self, number: u64) -> bool {
        let first = self.waiting.iter().position(|(_, tenant)| self.may(tenant));
        let Some(at) = first.filter(|at| self.waiting[*at].0 == number) else { return false };
        let (_, tenant) = self.waiting.remove(at);
        *self.held.entry(tenant).or_default() += 1;
        true
    }

    fn leave(&mut self, number: u64) {
        self.waiting.retain(|(other, _)| *other != number);
    }

    fn give_back(&mut self, tenant: &str, turns: usize) {
        if let Some(held) = self.held.get_mut(tenant) {
            *held = held.saturating_sub(turns);
            if *held == 0 {
                self.held.remove(tenant);
            }
        }
    }
}

/// See the module's own words.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    queue: Arc<Mutex<Queue>>,
    changed: Arc<Notify>,
}

impl Turns {
    /// Waits for a turn of the tenant's. Dropped while it waits, it no longer does.
    pub(crate) async fn take(&self, tenant: &str) -> Turn {
        let waits = Waits { turns: self.clone(), number: self.lock().wait(tenant) };
        loop {
            let changed = self.changed.notified();
            if self.lock().take(waits.number) {
                return Turn { turns: self.clone(), tenant: tenant.to_owned(), held: 1 };
            }
            changed.await;
        }
    }

    /// All turns, where none is taken: no deploy is under way until what it returns is dropped.
    pub(crate) fn take_all(&self) -> Option<Turn> {
        let mut queue = self.lock();
        if queue.free() < AT_ONCE {
            return None;
        }
        queue.held.insert(String::new(), AT_ONCE);
        Some(Turn { turns: self.clone(), tenant: String::new(), held: AT_ONCE })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turn of a deploy, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    turns: Turns,
    tenant: String,
    held: usize,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.lock().give_back(&self.tenant, self.held);
        self.turns.changed.notify_waiters();
    }
}

/// A place among those that wait, until it is dropped.
struct Waits {
    turns: Turns,
    number: u64,
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.turns.lock().leave(self.number);
        // Whether it has its turn or has gone: another may be the first now.
        self.turns.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_tenant_whose_deploys_are_slow_leaves_a_turn_to_the_next() {
        let turns = Turns::default();
        let (_first, second) = (turns.take("slow").await, turns.take("slow").await);
        let third = tokio::spawn({
            let turns = turns.clone();
            async move { turns.take("slow").await }
        });
        tokio::task::yield_now().await;
        assert!(!third.is_finished());
        // Though another of the first tenant's has waited longer.
        let other = turns.take("other").await;
        drop(other);
        tokio::task::yield_now().await;
        assert!(!third.is_finished(), "the free turn is the next tenant's");
        drop(second);
        drop(third.await.unwrap());
    }

    #[test]
    fn of_one_tenants_the_first_that_waits_goes_first_and_others_pass_it() {
        let mut queue = Queue::default();
        let [a, b, c, d] = ["one", "one", "one", "two"].map(|tenant| queue.wait(tenant));
        assert!(!queue.take(b) && queue.take(a) && queue.take(b));
        assert!(!queue.take(c) && queue.take(d));
        queue.give_back("two", 1);
        assert!(!queue.take(c));
        queue.give_back("one", 1);
        assert!(queue.take(c));
    }

    #[tokio::test]
    async fn one_that_gives_up_waiting_is_in_the_way_of_none() {
        let turns = Turns::default();
        let all = turns.take_all().unwrap();
        assert!(turns.take_all().is_none());
        tokio::select! {
            biased;
            _ = turns.take("gone") => panic!("there is no turn"),
            () = tokio::task::yield_now() => {}
        }
        assert_eq!(turns.lock().waiting, []);
        drop(all);
        drop(turns.take("stays").await);
        assert!(turns.lock().held.is_empty());
    }
}
