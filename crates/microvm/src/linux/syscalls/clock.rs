//! System calls about time.

use std::time::Duration;

use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::linux::abi::record::{Record, long_at};
use crate::linux::abi::registers::Answer;
use crate::linux::scheduling::wait::wait;
use crate::linux::state::flow::Flow;
use crate::linux::state::host_clock::read;
use crate::linux::state::host_clock::{MONOTONIC, REALTIME, deadline};
use crate::linux::state::process::Process;
use crate::linux::state::threads::Wait;

const PROCESS: u64 = 2;
const THREAD: u64 = 3;

/// The host's clock behind a guest's.
fn clock(number: u64) -> Result<ClockId, Errno> {
    match number {
        REALTIME => Ok(ClockId::Realtime),
        MONOTONIC => Ok(ClockId::Monotonic),
        4 => Ok(ClockId::MonotonicRaw),
        5 => Ok(ClockId::RealtimeCoarse),
        6 => Ok(ClockId::MonotonicCoarse),
        7 => Ok(ClockId::Boottime),
        _ => Err(Errno::INVAL),
    }
}

/// The value of a guest's clock.
fn told(process: &Process, number: u64) -> Result<Duration, Errno> {
    match number {
        // One thread of the monitor runs all threads of the guest, so their processor times are the
        // same.
        PROCESS | THREAD => Ok(process.used.now()),
        number => clock(number).map(read),
    }
}

pub(crate) fn gettime(process: &mut Process, number: u64, target: u64) -> Answer {
    let now = told(process, number)?;
    let record = Record::<16>::new().long(0, now.as_secs()).long(8, u64::from(now.subsec_nanos()));
    process.space.write(target, 16)?.copy_from_slice(record.bytes());
    Ok(0)
}

pub(crate) fn getres(process: &mut Process, number: u64, target: u64) -> Answer {
    told(process, number)?;
    if target != 0 {
        let record = Record::<16>::new().long(8, 1);
        process.space.write(target, 16)?.copy_from_slice(record.bytes());
    }
    Ok(0)
}

pub(crate) fn gettimeofday(process: &mut Process, target: u64) -> Answer {
    let now = clock_gettime(ClockId::Realtime);
    if target != 0 {
        let record = Record::<16>::new()
            .long(0, now.tv_sec.cast_unsigned())
            .long(8, now.tv_nsec.cast_unsigned() / 1000);
        process.space.write(target, 16)?.copy_from_slice(record.bytes());
    }
    Ok(0)
}

pub(crate) fn time(process: &mut Process, target: u64) -> Answer {
    let now = clock_gettime(ClockId::Realtime).tv_sec.cast_unsigned();
    if target != 0 {
        process.space.write(target, 8)?.copy_from_slice(&now.to_le_bytes());
    }
    Ok(now)
}

pub(crate) fn nanosleep(process: &mut Process, wanted: u64, rest: u64) -> Flow {
    sleep(process, duration(process, wanted), rest)
}

pub(crate) fn clock_nanosleep(
    process: &mut Process,
    number: u64,
    flags: u64,
    wanted: u64,
    rest: u64,
) -> Flow {
    const ABSOLUTE: u64 = 1;
    let is_absolute = flags & ABSOLUTE != 0;
    let wanted = duration(process, wanted).and_then(|wanted| match is_absolute {
        false => told(process, number).map(|_| wanted),
        true => left(process, number, wanted),
    });
    sleep(process, wanted, if is_absolute { 0 } else { rest })
}

fn sleep(process: &mut Process, wanted: Result<Duration, Errno>, rest: u64) -> Flow {
    match wanted {
        Ok(wanted) => wait(process, Wait::Time { rest }, Some(deadline(wanted))),
        Err(errno) => Flow::Answer(Err(errno)),
    }
}

/// Time left until a moment of a clock.
pub(crate) fn left(process: &Process, number: u64, moment: Duration) -> Result<Duration, Errno> {
    told(process, number).map(|now| moment.saturating_sub(now))
}

pub(crate) fn duration(process: &Process, at: u64) -> Result<Duration, Errno> {
    let bytes = process.space.read(at, 16)?;
    let (seconds, nanoseconds) = (long_at(bytes, 0), long_at(bytes, 8));
    if seconds > i64::MAX.cast_unsigned() || nanoseconds >= 1_000_000_000 {
        return Err(Errno::INVAL);
    }
    Ok(Duration::new(seconds, u32::try_from(nanoseconds).unwrap_or(0)))
}
