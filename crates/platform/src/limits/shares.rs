//! A limited resource, and how much of it each owner may have: bytes of bodies for a tenant, places
//! in a queue for a function.
//!
//! A share is given while all shares of its owner, this one included, are no more than what is free
//! without it. So an owner that is alone gets half, the next one half of the rest, and nothing is
//! reserved for owners that never come. The only share of an owner may be all that is free: a
//! resource may be as small as its largest share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A fixed number of units, divided among owners.
#[derive(Debug)]
pub struct Shares {
    most: u64,
    each: u64,
    taken: Mutex<Taken>,
    returned: Notify,
}

/// Units in use: of all, and by owner. Owners without any are not listed.
#[derive(Debug, Default)]
struct Taken {
    all: u64,
    owners: HashMap<Arc<str>, u64>,
}

/// Some units of one owner. Dropping it returns them.
#[derive(Debug)]
pub struct Share {
    of: Arc<Shares>,
    owner: Arc<str>,
    units: u64,
}

impl Shares {
    /// `most` units for all owners together.
    #[must_use]
    pub fn new(most: u64) -> Arc<Self> {
        Self::capped(most, u64::MAX)
    }

    /// `most` units for all owners together. One owner has at most `each`.
    #[must_use]
    pub fn capped(most: u64, each: u64) -> Arc<Self> {
        Arc::new(Self { most, each, taken: Mutex::default(), returned: Notify::new() })
    }

    /// A share without units, for [`Share::grow_to`].
    #[must_use]
    pub fn empty(self: &Arc<Self>, owner: &str) -> Share {
        Share { of: Arc::clone(self), owner: owner.into(), units: 0 }
    }

    /// Takes units for an owner; none when it may not have so many now.
    #[must_use]
    pub fn try_take(self: &Arc<Self>, owner: &str, units: u64) -> Option<Share> {
        let mut share = self.empty(owner);
        share.grow_to(units).then_some(share)
    }

    /// Waits until an owner may have so many units. The longest wait ends first as a rule: a call
    /// at the moment when units are returned may get them before.
    pub async fn take(self: &Arc<Self>, owner: &str, units: u64) -> Share {
        loop {
            let returned = self.returned.notified();
            if let Some(share) = self.try_take(owner, units) {
                return share;
            }
            returned.await;
        }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Numbers, whole between any two changes.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Takes more units, until the share has `units` in all; says whether it has so many now.
    #[must_use]
    pub fn grow_to(&mut self, units: u64) -> bool {
        if units <= self.units {
            return true;
        }
        let mut taken = self.of.taken();
        // Both without this share.
        let free = self.of.most - (taken.all - self.units);
        let others = taken.owners.get(&self.owner).copied().unwrap_or(0) - self.units;
        if others.saturating_add(units) > free.min(self.of.each) {
            return false;
        }
        let more = units - self.units;
        taken.all += more;
        *taken.owners.entry(Arc::clone(&self.owner)).or_default() += more;
        self.units = units;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // One that waits drops such shares: it would wake itself.
        if self.units == 0 {
            return;
        }
        let mut taken = self.of.taken();
        taken.all -= self.units;
        match taken.owners.get_mut(&self.owner) {
            Some(units) if *units > self.units => *units -= self.units,
            _ => drop(taken.owners.remove(&self.owner)),
        }
        drop(taken);
        self.of.returned.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// Takes shares of `units` for one owner until it gets no more.
    fn greedy(shares: &Arc<Shares>, owner: &str, units: u64) -> Vec<Share> {
        std::iter::from_fn(|| shares.try_take(owner, units)).collect()
    }

    #[test]
    fn an_owner_that_takes_all_it_gets_leaves_half_to_the_others() {
        let shares = Shares::new(1024);
        let first = greedy(&shares, "acme", 6);
        assert_eq!(first.len(), 85);
        for other in ["zeta", "beta", "eta"] {
            assert_eq!(greedy(&shares, other, 6).len(), 43, "{shares:?}");
        }
        let together = ["zeta", "beta", "eta"].map(|owner| greedy(&shares, owner, 6));
        assert!(together.iter().all(|other| other.len() >= 10), "{shares:?}");
        drop((first, together));
        let taken = shares.taken();
        assert!(taken.all == 0 && taken.owners.is_empty(), "{taken:?}");
    }

    #[test]
    fn a_first_share_may_be_all_and_a_second_no_more_than_is_free() {
        let shares = Shares::new(10);
        let mut first = shares.empty("acme");
        assert!(first.grow_to(4) && first.grow_to(10) && first.grow_to(3));
        assert!(!first.grow_to(11) && !first.grow_to(u64::MAX));
        assert!(shares.try_take("zeta", 1).is_none());
        drop(first);
        let (mut first, mut second) = (shares.empty("acme"), shares.empty("acme"));
        assert!(first.grow_to(4));
        assert!(second.grow_to(2) && !second.grow_to(3), "with four it would have seven of six");
        assert!(!first.grow_to(7) && first.grow_to(6));
        assert!(shares.try_take("zeta", 2).is_some());
    }

    #[test]
    fn an_owner_has_no_more_than_its_cap_however_much_is_free() {
        let shares = Shares::capped(506, 16);
        let all: Vec<_> = (0..20).map(|n| greedy(&shares, &n.to_string(), 1)).collect();
        assert_eq!((all[0].len(), all[9].len()), (16, 16));
        assert!(shares.try_take("late", 1).is_some(), "{shares:?}");
    }

    #[tokio::test]
    async fn an_owner_that_keeps_its_shares_leaves_one_to_the_next_that_waits() {
        let shares = Shares::new(3);
        let all = shares.try_take("all", 3).unwrap();
        let given_up = timeout(Duration::from_millis(1), shares.take("gone", 1)).await;
        assert!(given_up.is_err());
        let waits = |owner: &'static str| {
            let shares = Arc::clone(&shares);
            tokio::spawn(async move { shares.take(owner, 1).await })
        };
        let (first, second) = (waits("slow"), waits("slow"));
        tokio::task::yield_now().await;
        assert!(!first.is_finished());
        drop(all);
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        let third = waits("slow");
        tokio::task::yield_now().await;
        // Though the first owner has waited longer, the free unit is the next one's.
        drop(shares.take("other", 1).await);
        tokio::task::yield_now().await;
        assert!(!third.is_finished());
        drop(second);
        drop((first, third.await.unwrap()));
        assert_eq!(shares.taken().all, 0);
    }
}
