//! The timer that interrupts a program: `alarm` and `setitimer` of real time, which send SIGALRM.
//!
//! ```text
//!   set ──► due ──┬── the guest computes: a timer ends KVM_RUN (crate::machine::stop) ─┬─► signal
//!            ▲    └── a call waits: no longer than until then ─────────────────────────┘     │
//!            └──────────────────── again after `every`, unless that is zero ─────────────────┘
//! ```
//!
//! When the alarm is due while the process waits for its channel, the signal comes when the process
//! goes on. A clone has no alarm, like a child of fork(2).

use std::time::{Duration, Instant};

use crate::linux::state::host_clock::{LONGEST, deadline};

/// Least time between two signals of a repeating alarm: to send one takes some fifty microseconds.
const APART: Duration = Duration::from_millis(1);

/// The moment at which a process wants to be interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Alarm {
    at: Option<Instant>,
    /// Interval at which the alarm repeats; zero: never.
    every: Duration,
}

impl Alarm {
    /// When the alarm is due.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Whether the alarm is due. If so it is over, or set for its next moment: missed moments are
    /// not made up for.
    pub(crate) fn take_due(&mut self) -> bool {
        let Some(at) = self.at else { return false };
        let now = Instant::now();
        if now < at {
            return false;
        }
        let over = now.duration_since(at).as_nanos().checked_rem(self.every.as_nanos());
        let over = over.map(|over| Duration::from_nanos(u64::try_from(over).unwrap_or(0)));
        self.at = over.map(|over| now + (self.every - over).max(APART));
        true
    }

    /// Time until the alarm is due, and its interval.
    pub(crate) fn left(&self) -> [Duration; 2] {
        let left = self.at.map(|at| at.saturating_duration_since(Instant::now()));
        // An alarm that is set never has no time left.
        let left = left.map(|left| left.max(Duration::from_micros(1)));
        [left.unwrap_or_default(), self.every]
    }

    /// Sets the alarm; never after zero.
    pub(crate) fn set(&mut self, after: Duration, every: Duration) {
        let at = (!after.is_zero()).then(|| deadline(after));
        let every = if at.is_some() { every.min(LONGEST) } else { Duration::ZERO };
        *self = Self { at, every };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_missed_is_not_made_up_for_and_what_comes_once_is_over() {
        let (now, every) = (Instant::now(), Duration::from_secs(10));
        let mut alarm = Alarm { at: now.checked_sub(Duration::from_secs(25)), every };
        assert!(alarm.take_due());
        // The alarm was due 25, 15 and 5 seconds ago.
        let next = alarm.at.unwrap().duration_since(now);
        assert!((Duration::from_secs(4)..=Duration::from_secs(5)).contains(&next), "{next:?}");
        assert!(!alarm.take_due());
        let mut alarm = Alarm { at: Some(now), every: Duration::ZERO };
        assert!(alarm.take_due() && !alarm.take_due());
        alarm.set(Duration::MAX, Duration::MAX);
        assert!(!alarm.take_due() && alarm.left()[1] > Duration::from_secs(3600));
    }
}
