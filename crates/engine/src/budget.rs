//! The one memory budget: for idle instances, zygotes, and what dropped zygotes left behind.
//!
//! ```text
//!            most ┌────────┐            ┌─────
//!                 │        │         ╱──┘       under pressure: at once three quarters of what is
//!   allowed now   │        └┐      ╱            used, and again while it lasts; after it: slowly back
//!                 │         └────╱
//! ```
//! Busy instances are not in it: their own limits and admission bound them, and they are never
//! destroyed for memory. Zygotes that are being made count at their expected size. Packages that
//! are being built count at their size, but at most a quarter of the budget: one build is no reason
//! to empty all caches.
//!
//! There are two kinds of pressure. A shortage of memory counts at once and without bound. Tasks
//! waiting for memory count only when this lasts and little is available, and take at most half of
//! what was used when it began: a handler that thrashes at its own limit waits for ever, and must
//! not empty the caches of others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// What is left of what is used after a look that found pressure.
const SHRUNK: (u64, u64) = (3, 4);

/// From nothing to all that is allowed again.
const RESTORED: Duration = Duration::from_secs(120);

/// Fraction of recent time in which tasks waited for memory, beyond which there is pressure where
/// little is available.
const STALLED: f64 = 0.1;

/// Fraction of memory that counts as little. Where more is available, tasks that wait have reached
/// a limit of their own: shrinking caches would not help them, and a handler at its limit must not
/// empty the caches of others.
const LITTLE: f64 = 0.2;

/// A part of the memory: when less is available, there is pressure.
const SCARCE: f64 = 0.05;

/// Looks in a row that must find stalls, about a second apart, before they count.
const LASTING: u32 = 3;

/// Part of what was used when they began that stalls alone leave.
const LEFT_TO_STALLS: u64 = 2;

/// Part of the budget that builds count for at most.
const BUILDS: u64 = 4;

/// A part of the budget that is freed beyond need, so that not every instance that becomes idle
/// evicts another.
const SLACK: u64 = 64;

/// How the host is off for memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pressure {
    /// The part of the time since the last look in which some task waited for memory (PSI); none:
    /// the host cannot tell.
    pub stalled: Option<f64>,
    /// The part of the memory that new work could have.
    pub available: f64,
}

impl Pressure {
    /// There is too little memory.
    fn is_short(self) -> bool {
        self.available < SCARCE
    }

    /// Tasks wait for memory, and shrinking the caches may help.
    fn stalls(self) -> bool {
        self.stalled.is_some_and(|part| part > STALLED) && self.available < LITTLE
    }
}

/// Result of one reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    Calm,
    /// Stalls that have lasted. They leave so many bytes.
    Stalls {
        floor: u64,
    },
    Short,
}

/// One reading of the host's memory pressure.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    /// How many in a row have found stalls.
    stalls: u32,
    /// What was used when they began, in bytes.
    used: u64,
    found: Finding,
}

impl Reading {
    fn next(before: Option<Self>, pressure: Pressure, used: u64, at: Instant) -> Self {
        let lasting = before.filter(|before| before.stalls > 0 && pressure.stalls());
        let stalls = lasting.map_or(0, |before| before.stalls).saturating_add(1);
        let stalls = if pressure.stalls() { stalls } else { 0 };
        let used = lasting.map_or(used, |before| before.used);
        let found = match pressure.is_short() {
            true => Finding::Short,
            false if stalls >= LASTING => Finding::Stalls { floor: used / LEFT_TO_STALLS },
            false => Finding::Calm,
        };
        Self { at, stalls, used, found }
    }
}

/// Shared by both caches.
#[derive(Debug)]
pub(crate) struct Budget {
    most: u64,
    now: AtomicU64,
    idle: AtomicU64,
    zygotes: AtomicU64,
    making: AtomicU64,
    builds: AtomicU64,
    looked: Mutex<Option<Reading>>,
    /// Woken when more is used than allowed.
    pub(crate) exceeded: Notify,
}

impl Budget {
    pub(crate) fn new(most: u64) -> Self {
        Self {
            most,
            now: AtomicU64::new(most),
            idle: AtomicU64::new(0),
            zygotes: AtomicU64::new(0),
            making: AtomicU64::new(0),
            builds: AtomicU64::new(0),
            looked: Mutex::new(None),
            exceeded: Notify::new(),
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

    /// Bytes of all that is in it together, as last noted.
    pub(crate) fn used(&self) -> u64 {
        let builds = self.builds.load(Ordering::Relaxed).min(self.most / BUILDS);
        let parts = [&self.idle, &self.zygotes, &self.making];
        parts.iter().fold(builds, |sum, part| sum.saturating_add(part.load(Ordering::Relaxed)))
    }

    /// Counts a zygote that is being made, until what this returns is dropped.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64) -> Reservation {
        self.making.fetch_add(bytes, Ordering::Relaxed);
        self.wake_if_exceeded();
        Reservation { budget: Arc::clone(self), bytes }
    }

    /// What packages that are being built weigh now.
    pub(crate) fn note_builds(&self, bytes: u64) {
        self.builds.store(bytes, Ordering::Relaxed);
        self.wake_if_exceeded();
    }

    pub(crate) fn note_idle(&self, bytes: u64) {
        self.idle.store(bytes, Ordering::Relaxed);
    }

    /// What was left behind included.
    pub(crate) fn note_zygotes(&self, bytes: u64) {
        self.zygotes.store(bytes, Ordering::Relaxed);
    }

    /// Changes what is allowed, by how the host is.
    pub(crate) fn note_pressure(&self, pressure: Pressure, at: Instant) {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *looked;
        let reading = Reading::next(before, pressure, self.used(), at);
        *looked = Some(reading);
        let since = before.map_or(Duration::ZERO, |before| at - before.at);
        let next = next(self.now(), self.used(), self.most, reading.found, since);
        self.now.store(next, Ordering::Relaxed);
        drop(looked);
        let calm = |found| found == Finding::Calm;
        match (before.is_none_or(|before| calm(before.found)), calm(reading.found)) {
            (true, false) => tracing::warn!(?pressure, "memory is short: the caches shrink"),
            (false, true) => tracing::info!(allowed = next, "memory is not short any more"),
            _ => {}
        }
        self.wake_if_exceeded();
    }

    /// Wakes the task that makes room, if that is needed.
    pub(crate) fn wake_if_exceeded(&self) {
        if self.used() > self.now() {
            self.exceeded.notify_one();
        }
    }
}

/// A part of the budget that is spoken for.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.making.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What is allowed next.
fn next(now: u64, used: u64, most: u64, found: Finding, since: Duration) -> u64 {
    let (of, parts) = SHRUNK;
    let shrunk = now.min(used) / parts * of;
    match found {
        Finding::Short => return shrunk,
        Finding::Stalls { floor } => return shrunk.max(floor).min(now),
        Finding::Calm => {}
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
    const STALLS: Pressure = Pressure { stalled: Some(0.9), available: 0.1 };
    const SECOND: Duration = Duration::from_secs(1);

    fn pressures() -> impl Strategy<Value = Pressure> {
        (prop::option::of(0.0..1.0f64), 0.0..1.0f64)
            .prop_map(|(stalled, available)| Pressure { stalled, available })
    }

    /// What is allowed after each of these readings, a second apart, when all of it is used.
    fn allowed(most: u64, looks: impl IntoIterator<Item = Pressure>) -> Vec<u64> {
        let (budget, begin) = (Budget::new(most), Instant::now());
        let look = |(at, pressure): (u32, Pressure)| {
            budget.note_idle(budget.now());
            budget.note_pressure(pressure, begin + SECOND * at);
            budget.now()
        };
        (0..).zip(looks).map(look).collect()
    }

    proptest! {
        #[test]
        fn pressure_never_allows_more_and_calm_never_less(
            now in 0u64..1 << 40, used in 0u64..1 << 40, more in 0u64..1 << 40, millis in 0u64..600_000,
        ) {
            let most = now + more;
            let next = |found| next(now, used, most, found, Duration::from_millis(millis));
            prop_assert!(next(Finding::Short) <= now && (used == 0 || next(Finding::Short) < used), "something has to go");
            let after_stalls = next(Finding::Stalls { floor: more });
            prop_assert!(after_stalls <= now);
            prop_assert!(next(Finding::Calm) >= now && next(Finding::Calm) <= most);
        }

        #[test]
        fn whatever_was_felt_all_is_allowed_again_after_two_calm_minutes(felt in prop::collection::vec(pressures(), 0..20), most in 120u64..1 << 40) {
            let looks = felt.into_iter().chain([CALM; 122]);
            prop_assert!(allowed(most, looks).last().is_some_and(|now| *now >= most - most / 20));
        }
    }

    #[test]
    fn a_host_that_cannot_tell_of_stalls_is_judged_by_what_is_available() {
        let blind = |available| Pressure { stalled: None, available };
        assert!(blind(0.01).is_short() && !blind(0.1).is_short() && !blind(0.1).stalls());
        assert!(!CALM.is_short() && !CALM.stalls());
    }

    #[test]
    fn a_handler_at_its_own_limit_is_no_pressure() {
        let (plenty, most) = (Pressure { available: 0.7, ..STALLS }, 1 << 30);
        assert_eq!(allowed(most, [plenty; 20]), [most; 20]);
    }

    #[test]
    fn where_little_is_available_stalls_alone_take_no_more_than_half_and_that_not_at_once() {
        let most = 1 << 30;
        assert_eq!(
            allowed(most, [STALLS, STALLS, CALM, STALLS, STALLS]),
            [most; 5],
            "it does not last"
        );
        let lasting = allowed(most, [STALLS; 60]);
        assert_eq!(lasting[1], most);
        assert!(lasting[2] < most, "it has lasted");
        assert_eq!(lasting[59], most / 2);
    }

    #[test]
    fn what_shrinks_in_seconds_comes_back_in_minutes() {
        let (short, most) = (Pressure { stalled: Some(0.9), available: 0.01 }, 1 << 30);
        let looks = [short; 5].into_iter().chain([CALM; 10]);
        let all = allowed(most, looks);
        let (shrunk, after) = (all[4], all[14]);
        assert!(shrunk < most / 4);
        assert!(after > shrunk && after < most / 2);
    }

    #[test]
    fn zygotes_being_made_and_builds_are_counted_and_builds_only_in_part() {
        let budget = Arc::new(Budget::new(1000));
        let reserved = budget.reserve(300);
        budget.note_builds(100);
        assert_eq!(budget.used(), 400);
        budget.note_builds(1 << 40);
        assert_eq!(budget.used(), 300 + 250);
        drop(reserved);
        budget.note_builds(0);
        assert_eq!(budget.used(), 0);
    }
}
