//! The timer that interrupts a program: `alarm` and `setitimer` of real time, which send SIGALRM.
//!
//! ```text
//!   set ──► its time comes ──► the guest computes: KVM_RUN comes back, see crate::machine::stop ──┐
//!            ▲                 a call waits: it waits no longer than until then ─────────┴─► the signal ──► gone, or set anew
//!            └──────────────────────────────────── it repeats itself ─────────────────────────────────────────┘
//! ```
//! While the process waits for its channel its time may come: then the signal does when the process goes on. A clone has none,
//! as a child of fork(2) has none.

use std::time::{Duration, Instant};

use crate::linux::state::host_clock::{LONGEST, deadline};

/// The program runs for at least so long between one time and the next: to send it the signal takes some fifty microseconds.
const APART: Duration = Duration::from_millis(1);

/// When a process wants to be interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Alarm {
    at: Option<Instant>,
    /// And then again, each time after so long; zero: no more.
    every: Duration,
}

impl Alarm {
    /// When its time comes.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Whether its time has come. It is over then, or set anew: what was missed is not made up for.
    pub(crate) fn has_come(&mut self) -> bool {
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

    /// How long it is until then, and what it does afterwards.
    pub(crate) fn left(&self) -> [Duration; 2] {
        let left = self.at.map(|at| at.saturating_duration_since(Instant::now()));
        // One that is set is never told to be over.
        let left = left.map(|left| left.max(Duration::from_micros(1)));
        [left.unwrap_or_default(), self.every]
    }

    /// After zero: never.
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
        assert!(alarm.has_come());
        // Of the moments 25, 15 and 5 seconds ago.
        let next = alarm.at.unwrap().duration_since(now);
        assert!((Duration::from_secs(4)..=Duration::from_secs(5)).contains(&next), "{next:?}");
        assert!(!alarm.has_come());
        let mut alarm = Alarm { at: Some(now), every: Duration::ZERO };
        assert!(alarm.has_come() && !alarm.has_come());
        alarm.set(Duration::MAX, Duration::MAX);
        assert!(!alarm.has_come() && alarm.left()[1] > Duration::from_secs(3600));
    }
}
