//! How many spares a zygote should have: as many as are taken while one is being made.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long spares must last: moving a process into a cgroup now and then waits for a grace period
/// of RCU, 8–20 ms (`rcu_sync_enter` in the kernel's `cgroup_attach_lock`).
const BRIDGED: Duration = Duration::from_millis(25);

/// Spares of a zygote that is hardly used.
pub(crate) const ALWAYS: usize = 2;

/// The times of recent forks.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    forks: VecDeque<Instant>,
}

impl Demand {
    /// Records a request for a fork.
    pub(crate) fn note(&mut self, now: Instant) {
        self.forget(now);
        self.forks.push_back(now);
    }

    /// How many spares there should be now, at most `most`.
    pub(crate) fn spares(&mut self, now: Instant, most: usize) -> usize {
        self.forget(now);
        self.forks.len().max(ALWAYS).min(most)
    }

    fn forget(&mut self, now: Instant) {
        while self.forks.front().is_some_and(|fork| now.duration_since(*fork) > BRIDGED) {
            self.forks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_zygote_keeps_spares_for_a_wait_and_an_idle_one_a_few() {
        let mut demand = Demand::default();
        let began = Instant::now();
        let at = |millis| began + Duration::from_millis(millis);
        assert_eq!(demand.spares(at(0), 8), 2);
        for call in 0..100 {
            demand.note(at(5 * call));
        }
        assert_eq!((demand.spares(at(495), 8), demand.spares(at(495), 4)), (6, 4));
        assert_eq!((demand.spares(at(600), 8), demand.spares(at(600), 0)), (2, 0));
    }
}
