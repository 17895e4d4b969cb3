//! What there is only so much of for all requests that come through one door: bytes of bodies, followers of logs.
//!
//! A tenant has at most as much as is still free. Alone it takes half of all, and the next tenant finds some, however much
//! the first has; nothing is kept for tenants that do not come. The proxy shares connections out likewise (`egress`). One
//! request of a tenant that has nothing else may take all that is free: a budget may be as small as one body.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::error::ApiError;

/// So much of something, for all tenants together.
#[derive(Clone, Debug)]
pub(super) struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: u64,
    /// What a request counts as, however small.
    least: u64,
    /// What a tenant has at most, however much is free.
    each: u64,
    /// What is told to who gets no more: what is used up, and what to do.
    told: &'static str,
    taken: Mutex<Taken>,
}

/// What is taken, of all and by whom: who has nothing is not there.
#[derive(Debug, Default)]
struct Taken {
    all: u64,
    tenants: HashMap<String, u64>,
}

/// The budgets of one door: using up one door's keeps no client out of the other.
#[derive(Clone, Debug)]
pub struct Budgets {
    /// Bytes of the bodies of calls, and of replies, in memory.
    pub(super) run: Budget,
    /// Bytes of bundles that are being deployed, on disk.
    pub(super) deploy: Budget,
    /// Requests that go on for as long as their clients like: each reads a log, from a file that it holds.
    pub(super) follow: Budget,
}

/// Logs that one tenant follows, or reads at length, at most: each keeps a connection busy, which no other request can have then.
const FOLLOWS: u64 = 16;

impl Budgets {
    /// So many bytes of calls, and of `most` bundles at once, through a door with so many seats.
    pub fn new(run: u64, deploy: u64, most: usize, seats: usize) -> Self {
        let each = deploy / most.max(1) as u64;
        let run_told = "the worker holds as many bytes of requests and replies as it may, or as many of this tenant's: try again later, or raise `internals.run_bodies` in its configuration";
        let deploy_told = "the worker holds as many bytes of bundles as it may, or as many of this tenant's: try again later, or raise `internals.deploy_bodies` in its configuration";
        let follow_told = "as many logs are followed, or read at length, as may be, or as many of this tenant's (16, or fewer where others read many): end a `wool logs -f`, ask for fewer lines, or try again later";
        Self {
            run: Budget::new(run, 1, u64::MAX, run_told),
            deploy: Budget::new(deploy, each, u64::MAX, deploy_told),
            follow: Budget::new(followers(seats), 1, FOLLOWS, follow_told),
        }
    }
}

/// How many of the seats followers may have: an eighth, or enough for one tenant, but never more than half.
fn followers(seats: usize) -> u64 {
    let seats = seats as u64;
    (seats / 8).max(FOLLOWS).min(seats / 2).max(1)
}

/// What one request of a tenant has of a budget. Given back when it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    of: Budget,
    tenant: String,
    has: u64,
}

impl Budget {
    /// A budget of `most`, of which each request takes `least` or more, and a tenant's together `each` or less.
    pub(super) fn new(most: u64, least: u64, each: u64, told: &'static str) -> Self {
        let (least, taken) = (least.min(most), Mutex::default());
        Self(Arc::new(Shared { most, least, each, told, taken }))
    }

    /// For a request of this tenant, which has nothing yet.
    pub(super) fn hold(&self, tenant: &str) -> Held {
        Held { of: self.clone(), tenant: tenant.to_owned(), has: 0 }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Numbers, whole between any two changes.
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Takes more, until the request has that much in all.
    ///
    /// # Errors
    /// When so much is not left, or not left to this tenant: the client should try again.
    pub(super) fn grow_to(&mut self, wanted: u64) -> Result<(), ApiError> {
        let Shared { most, least, each, told, .. } = *self.of.0;
        let more = wanted.max(least).saturating_sub(self.has);
        let mut taken = self.of.taken();
        let tenants = taken.tenants.get(&self.tenant).copied().unwrap_or(0);
        let left = (most - taken.all).checked_sub(more);
        let is_fair = |left| tenants == self.has || tenants.saturating_add(more) <= each.min(left);
        if !left.is_some_and(is_fair) {
            return Err(ApiError::busy(Duration::from_secs(1), told));
        }
        taken.all += more;
        *taken.tenants.entry(self.tenant.clone()).or_default() += more;
        self.has += more;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut taken = self.of.taken();
        taken.all -= self.has;
        match taken.tenants.get_mut(&self.tenant) {
            Some(tenants) if *tenants > self.has => *tenants -= self.has,
            _ => drop(taken.tenants.remove(&self.tenant)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that a tenant gets who asks until there is no more, each time for so much.
    fn greedy(budget: &Budget, tenant: &str, each: u64) -> Vec<Held> {
        let more = || {
            let mut held = budget.hold(tenant);
            held.grow_to(each).ok().map(|()| held)
        };
        std::iter::from_fn(more).collect()
    }

    #[test]
    fn a_tenant_that_takes_all_it_gets_leaves_half_to_the_others() {
        let budget = Budget::new(1024, 1, u64::MAX, "used up");
        let first = greedy(&budget, "acme", 6);
        assert_eq!(first.len(), 85);
        let others = ["zeta", "beta", "eta"].map(|tenant| greedy(&budget, tenant, 6).len());
        assert_eq!(others, [42, 42, 42], "{:?}", budget.taken());
        let together = ["zeta", "beta", "eta"].map(|tenant| greedy(&budget, tenant, 6));
        assert!(together.iter().all(|other| other.len() >= 10), "{:?}", budget.taken());
        drop((first, together));
        let taken = budget.taken();
        assert!(taken.all == 0 && taken.tenants.is_empty(), "{taken:?}");
    }

    #[test]
    fn one_request_may_have_all_and_a_second_no_more_than_is_free() {
        let budget = Budget::new(10, 3, u64::MAX, "used up");
        let mut first = budget.hold("acme");
        first.grow_to(9).unwrap();
        // However small, it counts as three.
        assert!(budget.hold("zeta").grow_to(0).is_err());
        first.grow_to(4).unwrap();
        drop(first);
        let (mut first, mut second) = (budget.hold("acme"), budget.hold("acme"));
        first.grow_to(0).unwrap();
        assert!(second.grow_to(0).is_err(), "six of ten, and four are free");
        budget.hold("zeta").grow_to(7).unwrap();
        first.grow_to(10).unwrap();
    }

    #[test]
    fn a_tenant_follows_so_many_logs_and_all_together_leave_seats_to_calls() {
        for (seats, most) in [(1, 1), (8, 4), (100, 16), (256, 32), (4055, 506)] {
            assert_eq!(followers(seats), most, "{seats}");
        }
        let Budgets { follow, .. } = Budgets::new(1, 1, 1, 4055);
        let all: Vec<_> = (0..20).map(|n| greedy(&follow, &n.to_string(), 1)).collect();
        assert_eq!((all[0].len(), all[9].len()), (16, 16));
        assert!(follow.hold("late").grow_to(1).is_ok(), "{:?}", follow.taken());
    }
}
