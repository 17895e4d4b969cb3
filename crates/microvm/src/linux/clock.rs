//! System calls about time.

use std::time::Duration;

use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::Answer;
use super::process::Process;
use super::record::{Record, long_at};

/// Longest single sleep. A stop from outside is noticed after it.
const NAP: Duration = Duration::from_millis(5);

/// The host's clock for a guest's, and whether it counts what this process uses.
fn clock(number: u64) -> Result<ClockId, Errno> {
    match number {
        0 => Ok(ClockId::Realtime),
        1 => Ok(ClockId::Monotonic),
        // The monitor's thread runs the guest: their times are one.
        2 => Ok(ClockId::ProcessCPUTime),
        3 => Ok(ClockId::ThreadCPUTime),
        4 => Ok(ClockId::MonotonicRaw),
        5 => Ok(ClockId::RealtimeCoarse),
        6 => Ok(ClockId::MonotonicCoarse),
        7 => Ok(ClockId::Boottime),
        _ => Err(Errno::INVAL),
    }
}

pub(super) fn gettime(process: &mut Process, number: u64, target: u64) -> Answer {
    let now = clock_gettime(clock(number)?);
    let record = Record::<16>::new()
        .long(0, now.tv_sec.cast_unsigned())
        .long(8, now.tv_nsec.cast_unsigned());
    process.space.write(target, 16)?.copy_from_slice(record.bytes());
    Ok(0)
}

pub(super) fn getres(process: &mut Process, number: u64, target: u64) -> Answer {
    clock(number)?;
    if target != 0 {
        let record = Record::<16>::new().long(8, 1);
        process.space.write(target, 16)?.copy_from_slice(record.bytes());
    }
    Ok(0)
}

pub(super) fn gettimeofday(process: &mut Process, target: u64) -> Answer {
    let now = clock_gettime(ClockId::Realtime);
    if target != 0 {
        let record = Record::<16>::new()
            .long(0, now.tv_sec.cast_unsigned())
            .long(8, now.tv_nsec.cast_unsigned() / 1000);
        process.space.write(target, 16)?.copy_from_slice(record.bytes());
    }
    Ok(0)
}

pub(super) fn time(process: &mut Process, target: u64) -> Answer {
    let now = clock_gettime(ClockId::Realtime).tv_sec.cast_unsigned();
    if target != 0 {
        process.space.write(target, 8)?.copy_from_slice(&now.to_le_bytes());
    }
    Ok(now)
}

pub(super) fn nanosleep(process: &mut Process, wanted: u64) -> Answer {
    let wanted = duration(process, wanted)?;
    sleep(process, wanted)
}

pub(super) fn clock_nanosleep(
    process: &mut Process,
    number: u64,
    flags: u64,
    wanted: u64,
) -> Answer {
    const ABSOLUTE: u64 = 1;
    let wanted = duration(process, wanted)?;
    if flags & ABSOLUTE == 0 {
        clock(number)?;
        return sleep(process, wanted);
    }
    let now = clock_gettime(clock(number)?);
    let now =
        Duration::new(now.tv_sec.try_into().unwrap_or(0), now.tv_nsec.try_into().unwrap_or(0));
    sleep(process, wanted.saturating_sub(now))
}

fn duration(process: &Process, at: u64) -> Result<Duration, Errno> {
    let bytes = process.space.read(at, 16)?;
    let (seconds, nanoseconds) = (long_at(bytes, 0), long_at(bytes, 8));
    if seconds > i64::MAX.cast_unsigned() || nanoseconds >= 1_000_000_000 {
        return Err(Errno::INVAL);
    }
    Ok(Duration::new(seconds, u32::try_from(nanoseconds).unwrap_or(0)))
}

/// Seconds since 1970.
pub(super) fn now() -> i64 {
    clock_gettime(ClockId::RealtimeCoarse).tv_sec
}

/// In naps, so that a stop ends it: as if a signal had come.
pub(super) fn sleep(process: &Process, wanted: Duration) -> Answer {
    let begin = std::time::Instant::now();
    let stopper = process.stopper();
    loop {
        let rest = wanted.saturating_sub(begin.elapsed());
        if rest.is_zero() {
            return Ok(0);
        }
        if stopper.wanted() {
            return Err(Errno::INTR);
        }
        std::thread::sleep(rest.min(NAP));
    }
}
