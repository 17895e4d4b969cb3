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

use rustix::io::Errno;

use super::call::{Flow, signed};
use super::process::Process;
use super::record::{Record, long_at};
use super::signals::{self, ALRM};
use super::threads::{LONGEST, Standing, deadline};
use super::{Answer, call};

const MICROSECONDS: u64 = 1_000_000;

/// The program runs for at least so long between one time and the next: to send it the signal takes some fifty microseconds.
const APART: Duration = Duration::from_millis(1);

/// When a process wants to be interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Alarm {
    at: Option<Instant>,
    /// And then again, each time after so long; zero: no more.
    every: Duration,
}

impl Alarm {
    /// When its time comes.
    pub(super) fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Whether its time has come. It is over then, or set anew: what was missed is not made up for.
    fn has_come(&mut self) -> bool {
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
    fn left(&self) -> [Duration; 2] {
        let left = self.at.map(|at| at.saturating_duration_since(Instant::now()));
        // One that is set is never told to be over.
        let left = left.map(|left| left.max(Duration::from_micros(1)));
        [left.unwrap_or_default(), self.every]
    }

    /// After zero: never.
    fn set(&mut self, after: Duration, every: Duration) {
        let at = (!after.is_zero()).then(|| deadline(after));
        let every = if at.is_some() { every.min(LONGEST) } else { Duration::ZERO };
        *self = Self { at, every };
    }
}

/// Sends the signal if it is time. None: whoever runs goes on.
pub(super) fn ring(process: &mut Process, standing: Standing) -> Option<Flow> {
    if process.kernel.alarm.has_come() { signals::arrive(process, ALRM, standing) } else { None }
}

/// `alarm`: seconds that were left of the last one.
pub(super) fn alarm(process: &mut Process, seconds: u64) -> u64 {
    let [left, _] = process.kernel.alarm.left();
    process.kernel.alarm.set(Duration::from_secs(call::fd(seconds)), Duration::ZERO);
    // To the next whole one if it is near, and never none while there is one.
    match (left.as_secs(), left.subsec_millis()) {
        (0, 0) if left.is_zero() => 0,
        (0, _) => 1,
        (seconds, millis) => seconds + u64::from(millis >= 500),
    }
}

/// `getitimer`.
pub(super) fn get(process: &mut Process, which: u64, target: u64) -> Answer {
    let left = match signed(which) {
        libc::ITIMER_REAL => process.kernel.alarm.left(),
        libc::ITIMER_VIRTUAL | libc::ITIMER_PROF => [Duration::ZERO; 2],
        _ => return Err(Errno::INVAL),
    };
    tell(process, target, left)
}

/// `setitimer`. Those that count the processor's time can be cleared and no more.
pub(super) fn set(process: &mut Process, which: u64, new: u64, old: u64) -> Flow {
    let wanted = match new {
        0 => Ok([Duration::ZERO; 2]),
        new => read(process, new),
    };
    let [after, every] = match wanted {
        Ok(wanted) => wanted,
        Err(errno) => return Flow::Answer(Err(errno)),
    };
    let before = match signed(which) {
        libc::ITIMER_REAL => {
            let before = process.kernel.alarm.left();
            process.kernel.alarm.set(after, every);
            before
        }
        libc::ITIMER_VIRTUAL | libc::ITIMER_PROF if after.is_zero() => [Duration::ZERO; 2],
        libc::ITIMER_VIRTUAL | libc::ITIMER_PROF => return Flow::Unknown,
        _ => return Flow::Answer(Err(Errno::INVAL)),
    };
    let told = if old == 0 { Ok(0) } else { tell(process, old, before) };
    told.into()
}

/// `struct itimerval`: how long after which it comes again, and how long until it comes.
fn tell(process: &mut Process, target: u64, [left, every]: [Duration; 2]) -> Answer {
    let record = Record::<32>::new()
        .long(0, every.as_secs())
        .long(8, u64::from(every.subsec_micros()))
        .long(16, left.as_secs())
        .long(24, u64::from(left.subsec_micros()));
    process.space.write(target, 32)?.copy_from_slice(record.bytes());
    Ok(0)
}

fn read(process: &Process, at: u64) -> Result<[Duration; 2], Errno> {
    let bytes = process.space.read(at, 32)?;
    let duration = |at: usize| {
        let (seconds, micros) = (long_at(bytes, at), long_at(bytes, at + 8));
        let is_valid = seconds <= i64::MAX.cast_unsigned() && micros < MICROSECONDS;
        let micros = Duration::from_micros(micros);
        is_valid.then(|| Duration::from_secs(seconds).saturating_add(micros)).ok_or(Errno::INVAL)
    };
    let every = duration(0)?;
    Ok([duration(16)?, every])
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
