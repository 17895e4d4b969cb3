//! How many spares a zygote should have: as many as are taken while the next one has to wait.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The wait that spares are to bridge: moving a process into a cgroup waits now and then for a grace period of RCU, 8–20 ms
/// (`rcu_sync_enter` in the kernel's `cgroup_attach_lock`).
const BRIDGED: Duration = Duration::from_millis(25);

/// What a zygote that is hardly used keeps.
pub(crate) const ALWAYS: usize = 2;

/// The forks of late.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    forks: VecDeque<Instant>,
}

impl Demand {
    /// A fork was asked for.
    pub(crate) fn note(&mut self, now: Instant) {
        self.forget(now);
        self.forks.push_back(now);
    }

    /// How many spares there should be now, of `most`.
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
    fn a_busy_zygote_wants_what_is_taken_during_a_wait_and_an_idle_one_a_little() {
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
