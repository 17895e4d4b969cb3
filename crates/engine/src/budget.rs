//! The one memory budget: for idle instances, zygotes, and what zygotes that were given up have left behind.
//!
//! ```text
//!            most ┌────────┐            ┌─────
//!                 │        │         ╱──┘         pressure: at once three quarters of what is used, and again
//!   allowed now   │        └┐      ╱              while it lasts; after it: slowly back
//!                 │         └────╱
//! ```
//! Busy instances are not in it: they are bounded by their own limits and by admission, and are never ended for memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// What is left of what is used after a look that found pressure.
const SHRUNK: (u64, u64) = (3, 4);

/// From nothing to all that is allowed again.
const RESTORED: Duration = Duration::from_secs(120);

/// Part of the time of late in which somebody waited for memory: beyond, there is pressure where little is available.
const STALLED: f64 = 0.1;

/// A part of the memory that is little. Where more is available, those who wait have reached a limit of their own: no
/// cache of ours would help them, and a handler at its limit must not empty everybody's.
const LITTLE: f64 = 0.2;

/// A part of the memory: when less is available, there is pressure.
const SCARCE: f64 = 0.05;

/// A part of the budget that is freed beyond need, so that not every instance that becomes idle evicts another.
const SLACK: u64 = 64;

/// How the host is off for memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pressure {
    /// The part of the time since the last look in which some task waited for memory (PSI); none: the host cannot tell.
    pub stalled: Option<f64>,
    /// The part of the memory that new work could have.
    pub available: f64,
}

impl Pressure {
    fn is_high(self) -> bool {
        let stalls = self.stalled.is_some_and(|part| part > STALLED);
        self.available < SCARCE || stalls && self.available < LITTLE
    }
}

/// Shared by both caches.
#[derive(Debug)]
pub(crate) struct Budget {
    most: u64,
    now: AtomicU64,
    idle: AtomicU64,
    zygotes: AtomicU64,
    /// When it was last told how the host is, and whether there was pressure.
    looked: Mutex<Option<(Instant, bool)>>,
    /// More is used than allowed.
    pub(crate) crowded: Notify,
}

impl Budget {
    pub(crate) fn new(most: u64) -> Self {
        Self {
            most,
            now: AtomicU64::new(most),
            idle: AtomicU64::new(0),
            zygotes: AtomicU64::new(0),
            looked: Mutex::new(None),
            crowded: Notify::new(),
        }
    }

    /// Bytes allowed at this moment.
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Bytes to come down to once that is exceeded.
    pub(crate) fn target(&self) -> u64 {
        let now = self.now();
        now - now / SLACK
    }

    pub(crate) fn most(&self) -> u64 {
        self.most
    }

    /// Bytes of idle instances and zygotes together, as last noted.
    pub(crate) fn used(&self) -> u64 {
        self.idle.load(Ordering::Relaxed).saturating_add(self.zygotes.load(Ordering::Relaxed))
    }

    pub(crate) fn note_idle(&self, bytes: u64) {
        self.idle.store(bytes, Ordering::Relaxed);
    }

    /// What was left behind included.
    pub(crate) fn note_zygotes(&self, bytes: u64) {
        self.zygotes.store(bytes, Ordering::Relaxed);
    }

    /// Changes what is allowed, by how the host is.
    pub(crate) fn feel(&self, pressure: Pressure, at: Instant) {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let before = looked.replace((at, pressure.is_high()));
        let since = before.map_or(Duration::ZERO, |(before, _)| at - before);
        let next = next(self.now(), self.used(), self.most, pressure, since);
        self.now.store(next, Ordering::Relaxed);
        drop(looked);
        match (before.is_some_and(|(_, high)| high), pressure.is_high()) {
            (false, true) => tracing::warn!(?pressure, "memory is short: the caches shrink"),
            (true, false) => tracing::info!(allowed = next, "memory is not short any more"),
            _ => {}
        }
        self.look();
    }

    /// Wakes whoever makes room, if that is needed.
    pub(crate) fn look(&self) {
        if self.used() > self.now() {
            self.crowded.notify_one();
        }
    }
}

/// What is allowed next.
fn next(now: u64, used: u64, most: u64, pressure: Pressure, since: Duration) -> u64 {
    if pressure.is_high() {
        let (of, parts) = SHRUNK;
        return now.min(used) / parts * of;
    }
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of what is allowed, not negative"
    )]
    let back = (most as f64 * since.as_secs_f64() / RESTORED.as_secs_f64()) as u64;
    now.saturating_add(back).min(most)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CALM: Pressure = Pressure { stalled: Some(0.0), available: 0.5 };

    fn pressures() -> impl Strategy<Value = Pressure> {
        (prop::option::of(0.0..1.0f64), 0.0..1.0f64)
            .prop_map(|(stalled, available)| Pressure { stalled, available })
    }

    proptest! {
        #[test]
        fn pressure_never_allows_more_and_calm_never_less(
            now in 0u64..1 << 40, used in 0u64..1 << 40, more in 0u64..1 << 40, pressure in pressures(), millis in 0u64..600_000,
        ) {
            let most = now + more;
            let next = next(now, used, most, pressure, Duration::from_millis(millis));
            prop_assert!(next <= most);
            if pressure.is_high() {
                prop_assert!(next <= now && (used == 0 || next < used), "something has to go");
            } else {
                prop_assert!(next >= now);
            }
        }

        #[test]
        fn whatever_was_felt_all_is_allowed_again_after_two_calm_minutes(felt in prop::collection::vec(pressures(), 0..20), most in 1u64..1 << 40) {
            let mut now = felt.into_iter().fold(most, |now, pressure| next(now, now, most, pressure, Duration::from_secs(1)));
            for _ in 0..=120 {
                now = next(now, 0, most, CALM, Duration::from_secs(1)) + u64::from(most < 120);
            }
            prop_assert!(now >= most - most / 100);
        }
    }

    #[test]
    fn a_host_that_cannot_tell_of_stalls_is_judged_by_what_is_available() {
        let blind = |available| Pressure { stalled: None, available };
        assert!(blind(0.01).is_high() && !blind(0.2).is_high());
        assert!(!CALM.is_high());
    }

    #[test]
    fn a_handler_at_its_own_limit_is_no_pressure() {
        let stalls = |available| Pressure { stalled: Some(0.9), available };
        assert!(stalls(0.1).is_high() && !stalls(0.7).is_high());
    }

    #[test]
    fn what_shrinks_in_seconds_comes_back_in_minutes() {
        let short = Pressure { stalled: Some(0.9), available: 0.1 };
        let (second, most) = (Duration::from_secs(1), 1 << 30);
        let shrunk = (0..5).fold(most, |now, _| next(now, now, most, short, second));
        assert!(shrunk < most / 4);
        let after = (0..10).fold(shrunk, |now, _| next(now, shrunk, most, CALM, second));
        assert!(after > shrunk && after < most / 2);
    }
}
