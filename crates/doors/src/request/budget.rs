//! What all requests through one door share: bytes of bodies, and connections that follow logs. Each
//! tenant has [`Shares`] of them.

use std::sync::Arc;
use std::time::Duration;

use platform::limits::shares::{Share, Shares};

use crate::error::ApiError;

/// So much of something, for all tenants together.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    shares: Arc<Shares>,
    /// What a request counts as, however small.
    least: u64,
    /// The message of a refusal: what is used up, and what to do.
    told: &'static str,
}

/// The budgets of one door: using up one door's keeps no client out of the other.
#[derive(Clone, Debug)]
pub struct Budgets {
    /// Bytes of the bodies of calls, and of replies, in memory.
    pub(crate) run: Budget,
    /// Bytes of bundles that are being deployed, on disk.
    pub(crate) deploy: Budget,
    /// Requests that go on for as long as their clients like: each reads a log, from a file that it holds.
    pub(crate) follow: Budget,
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
            run: Budget::new(Shares::new(run), 1, run_told),
            deploy: Budget::new(Shares::new(deploy), each.min(deploy), deploy_told),
            follow: Budget::new(Shares::capped(followers(seats), FOLLOWS), 1, follow_told),
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
pub(crate) struct Held {
    share: Share,
    least: u64,
    told: &'static str,
}

impl Budget {
    /// A budget. Each request counts as `least` units, or as more.
    pub(crate) fn new(shares: Arc<Shares>, least: u64, told: &'static str) -> Self {
        Self { shares, least, told }
    }

    /// For a request of this tenant, which has nothing yet.
    pub(crate) fn hold(&self, tenant: &str) -> Held {
        Held { share: self.shares.empty(tenant), least: self.least, told: self.told }
    }
}

impl Held {
    /// Takes more, until the request has that much in all.
    ///
    /// # Errors
    /// When so much is not left, or not left to this tenant: the client should try again.
    pub(crate) fn grow_to(&mut self, wanted: u64) -> Result<(), ApiError> {
        let fits = self.share.grow_to(wanted.max(self.least));
        fits.then_some(()).ok_or_else(|| ApiError::busy(Duration::from_secs(1), self.told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_body_counts_as_the_least_and_who_gets_no_more_is_told_to_come_back() {
        let budget = Budget::new(Shares::new(10), 3, "used up");
        let (mut first, mut second) = (budget.hold("acme"), budget.hold("zeta"));
        first.grow_to(8).unwrap();
        let refused = second.grow_to(0).unwrap_err();
        assert!(refused.detail().message.contains("used up"), "{refused:?}");
        drop(first);
        second.grow_to(0).unwrap();
    }

    #[test]
    fn a_tenant_follows_so_many_logs_and_all_together_leave_seats_to_calls() {
        for (seats, most) in [(1, 1), (8, 4), (100, 16), (256, 32), (4055, 506)] {
            assert_eq!(followers(seats), most, "{seats}");
        }
        let Budgets { follow, .. } = Budgets::new(1, 1, 1, 4055);
        let hold = |tenant: &str| {
            let mut held = follow.hold(tenant);
            held.grow_to(1).ok().map(|()| held)
        };
        let all: Vec<Vec<Held>> =
            (0..20).map(|n| std::iter::from_fn(|| hold(&n.to_string())).collect()).collect();
        assert_eq!((all[0].len(), all[9].len()), (16, 16));
        assert!(hold("late").is_some(), "{follow:?}");
    }
}
