//! `alarm`, `getitimer` and `setitimer`: setting the timer that
//! [`Alarm`](crate::linux::state::alarm::Alarm) keeps.

use std::time::Duration;

use rustix::io::Errno;

use crate::linux::abi::record::{Record, long_at};
use crate::linux::abi::registers::{Answer, fd, signed};
use crate::linux::state::flow::Flow;
use crate::linux::state::process::Process;

const MICROSECONDS: u64 = 1_000_000;

/// `alarm`: sets it, and returns the seconds that were left of the last one.
pub(crate) fn alarm(process: &mut Process, seconds: u64) -> u64 {
    let [left, _] = process.kernel.alarm.left();
    process.kernel.alarm.set(Duration::from_secs(fd(seconds)), Duration::ZERO);
    // Rounded to the nearest second, and never to none while one is set.
    match (left.as_secs(), left.subsec_millis()) {
        (0, 0) if left.is_zero() => 0,
        (0, _) => 1,
        (seconds, millis) => seconds + u64::from(millis >= 500),
    }
}

/// `getitimer`: time left, and interval.
pub(crate) fn get(process: &mut Process, which: u64, target: u64) -> Answer {
    let left = match signed(which) {
        libc::ITIMER_REAL => process.kernel.alarm.left(),
        libc::ITIMER_VIRTUAL | libc::ITIMER_PROF => [Duration::ZERO; 2],
        _ => return Err(Errno::INVAL),
    };
    tell(process, target, left)
}

/// `setitimer`. Timers of processor time can be cleared only.
pub(crate) fn set(process: &mut Process, which: u64, new: u64, old: u64) -> Flow {
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

/// `struct itimerval`: the interval, and the time left.
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
