//! The host's clocks, on which guests' clocks are based.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::vfs::Moment;

pub(crate) const REALTIME: u64 = 0;

pub(crate) const MONOTONIC: u64 = 1;

/// Longest wait; longer ones count as endless.
pub(crate) const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The moment after this duration.
pub(crate) fn deadline(wanted: Duration) -> Instant {
    Instant::now() + wanted.min(LONGEST)
}

/// Time since the host was started, sleep included. It goes on in clones and over resets.
pub(crate) fn since_start() -> Duration {
    read(ClockId::Boottime)
}

/// The value of a host's clock.
pub(crate) fn read(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    Duration::new(now.tv_sec.try_into().unwrap_or(0), now.tv_nsec.try_into().unwrap_or(0))
}

/// The time for files, as exact as the host's clock ticks.
pub(crate) fn now() -> Moment {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    Moment { seconds: now.tv_sec, nanoseconds: u32::try_from(now.tv_nsec).unwrap_or(0) }
}

pub(crate) fn hundredths(time: Duration) -> u64 {
    u64::try_from(time.as_millis() / 10).unwrap_or(u64::MAX)
}
