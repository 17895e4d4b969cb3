//! System calls about time.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::call::Flow;
use super::process::Process;
use super::record::{Record, long_at};
use super::threads::{Wait, deadline};
use super::{Answer, threads};
use crate::vfs::Moment;

/// Longest single sleep. A stop from outside is noticed after it.
const NAP: Duration = Duration::from_millis(5);

pub(super) const REALTIME: u64 = 0;
pub(super) const MONOTONIC: u64 = 1;
const PROCESS: u64 = 2;
const THREAD: u64 = 3;

/// What a process has used of the processor.
///
/// It is counted while the process runs, by the clock of whichever thread of the monitor's runs it: that is a process's own only
/// between its begin and its pause. What was counted is part of a template, so that a reset takes away what calls have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    before: Duration,
    /// What the thread's clock said when it began to run; none while it does not.
    begun: Option<Duration>,
}

impl Used {
    /// By one that does not run.
    pub(super) fn so_much(before: Duration) -> Self {
        Self { before, begun: None }
    }

    /// It runs from now on, on this thread.
    pub(super) fn begin(&mut self) {
        self.begun = Some(read(ClockId::ThreadCPUTime));
    }

    /// It does not any more.
    pub(super) fn pause(&mut self) {
        *self = Self::so_much(self.now());
    }

    /// Until now.
    pub(super) fn now(self) -> Duration {
        let running = self.begun.map(|begun| read(ClockId::ThreadCPUTime).saturating_sub(begun));
        self.before.saturating_add(running.unwrap_or_default())
    }
}

/// The host's clock for a guest's.
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

/// What a guest's clock says.
fn told(process: &Process, number: u64) -> Result<Duration, Errno> {
    match number {
        // One thread of the monitor's runs all threads of the guest: their times are one.
        PROCESS | THREAD => Ok(process.used.now()),
        number => clock(number).map(read),
    }
}

/// For how long the host has been up, sleep included: it goes on in clones and over resets.
pub(super) fn since_start() -> Duration {
    read(ClockId::Boottime)
}

/// What a clock of the host's says.
fn read(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    Duration::new(now.tv_sec.try_into().unwrap_or(0), now.tv_nsec.try_into().unwrap_or(0))
}

pub(super) fn gettime(process: &mut Process, number: u64, target: u64) -> Answer {
    let now = told(process, number)?;
    let record = Record::<16>::new().long(0, now.as_secs()).long(8, u64::from(now.subsec_nanos()));
    process.space.write(target, 16)?.copy_from_slice(record.bytes());
    Ok(0)
}

pub(super) fn getres(process: &mut Process, number: u64, target: u64) -> Answer {
    told(process, number)?;
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

pub(super) fn nanosleep(process: &mut Process, wanted: u64, rest: u64) -> Flow {
    sleep(process, duration(process, wanted), rest)
}

pub(super) fn clock_nanosleep(
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
        Ok(wanted) => threads::wait(process, Wait::Time { rest }, Some(deadline(wanted))),
        Err(errno) => Flow::Answer(Err(errno)),
    }
}

/// A sleep was interrupted: tells what is left of it, where that is asked for.
pub(super) fn tell_rest(
    process: &mut Process,
    rest: u64,
    until: Option<Instant>,
) -> Result<(), Errno> {
    if rest == 0 {
        return Ok(());
    }
    let left =
        until.map(|until| until.saturating_duration_since(Instant::now())).unwrap_or_default();
    let record =
        Record::<16>::new().long(0, left.as_secs()).long(8, u64::from(left.subsec_nanos()));
    process.space.write(rest, 16)?.copy_from_slice(record.bytes());
    Ok(())
}

/// How long it is until a moment of a clock.
pub(super) fn left(process: &Process, number: u64, moment: Duration) -> Result<Duration, Errno> {
    told(process, number).map(|now| moment.saturating_sub(now))
}

pub(super) fn duration(process: &Process, at: u64) -> Result<Duration, Errno> {
    let bytes = process.space.read(at, 16)?;
    let (seconds, nanoseconds) = (long_at(bytes, 0), long_at(bytes, 8));
    if seconds > i64::MAX.cast_unsigned() || nanoseconds >= 1_000_000_000 {
        return Err(Errno::INVAL);
    }
    Ok(Duration::new(seconds, u32::try_from(nanoseconds).unwrap_or(0)))
}

/// What time it is, as files are told: as exact as the host's own clock ticks.
pub(super) fn now() -> Moment {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    Moment { seconds: now.tv_sec, nanoseconds: u32::try_from(now.tv_nsec).unwrap_or(0) }
}

/// In naps, so that a stop ends it: as if a signal had come, EINTR.
pub(super) fn sleep_until(process: &Process, moment: Instant) -> Result<(), Errno> {
    let stopper = process.stopper();
    loop {
        // First: whoever calls this may do so again and again, each time for next to nothing.
        if stopper.wanted() {
            return Err(Errno::INTR);
        }
        let rest = moment.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Ok(());
        }
        std::thread::sleep(rest.min(NAP));
    }
}
