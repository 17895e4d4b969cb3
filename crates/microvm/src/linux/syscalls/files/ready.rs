//! `poll` and `select`: which descriptors are ready, and waiting for one.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::linux::abi::record::{Record, long_at};
use crate::linux::abi::registers::{Answer, signed};
use crate::linux::scheduling::wait::wait;
use crate::linux::state::files::{MAX_DESCRIPTORS, Object};
use crate::linux::state::flow::{Flow, Pause};
use crate::linux::state::process::Process;
use crate::linux::state::threads::Wait;
use crate::linux::syscalls::clock::duration;

/// Bytes can be read, or the end of them.
const IN: u16 = 0x41;
/// Bytes can be written.
const OUT: u16 = 0x104;
/// Bytes can be sent: bands exist for sockets and files.
const OUT_BAND: u16 = 0x200;
const ERROR: u16 = 0x08;
const HANG_UP: u16 = 0x10;
const INVALID: u16 = 0x20;
/// The other side sends no more.
const NO_MORE: u16 = 0x2000;

/// Bytes of a set of all descriptors.
const SET_BYTES: usize = MAX_DESCRIPTORS / 8;
/// States that make a descriptor readable, writable, or exceptional.
const WANTED: [u16; 3] = [IN | HANG_UP | ERROR, OUT | OUT_BAND | ERROR, 0x02];

/// The state of a descriptor.
fn state(process: &Process, number: u64) -> Result<u16, Errno> {
    let files = &process.kernel.files;
    let when = |holds: bool, what: u16| if holds { what } else { 0 };
    Ok(match files.get(number)?.object {
        Object::Node(..) => IN | OUT,
        Object::Output(_) => OUT,
        Object::Inet(alone) => OUT | when(alone.is_hung_up(), HANG_UP),
        Object::Channel => OUT | when(!process.incoming.is_empty() || !process.open, IN),
        Object::PipeReader(pipe) => {
            let pipe = files.pipe(pipe)?;
            when(!pipe.bytes.is_empty(), IN) | when(pipe.writers == 0, HANG_UP)
        }
        Object::PipeWriter(pipe) => {
            let pipe = files.pipe(pipe)?;
            let broken = pipe.readers == 0;
            when(broken || pipe.takes(), OUT) | when(broken, ERROR)
        }
        Object::Socket { receives, sends } => {
            let (receives, sends) = (files.pipe(receives)?, files.pipe(sends)?);
            let ends = receives.ends();
            when(ends || !receives.bytes.is_empty(), IN)
                | when(ends, NO_MORE)
                | when(ends && sends.is_broken(), HANG_UP)
                | when(receives.reset, ERROR)
                | when(sends.takes(), OUT | OUT_BAND)
        }
    })
}

/// Whether a descriptor becomes readable only by a message of the worker's.
fn waits_for_worker(process: &Process, number: u64, state: u16) -> bool {
    let open = process.kernel.files.get(number);
    state & IN == 0 && open.is_ok_and(|open| matches!(open.object, Object::Channel))
}

/// Nothing is ready: answers if there is no time to wait; else waits for another thread or, without
/// a deadline, for the channel.
fn wait_for_change(process: &mut Process, until: Option<Instant>, channel: bool) -> Flow {
    match until {
        Some(until) if until <= Instant::now() => Flow::Answer(Ok(0)),
        Some(_) => wait(process, Wait::Change, until),
        None if channel => Flow::Again(Pause::Idle),
        None => wait(process, Wait::Change, None),
    }
}

/// `poll`, with its duration in milliseconds.
pub(crate) fn poll(process: &mut Process, entries: u64, count: u64, timeout: i32) -> Flow {
    let wanted = u64::try_from(timeout).ok().map(Duration::from_millis);
    poll_for(process, entries, count, wanted)
}

/// `ppoll`, without blocking signals meanwhile.
pub(crate) fn ppoll(process: &mut Process, [entries, count, time, mask, ..]: [u64; 6]) -> Flow {
    match limit(process, time, (mask, 8)) {
        Ok(wanted) => poll_for(process, entries, count, wanted),
        Err(flow) => flow,
    }
}

/// The duration behind a pointer. A set of signals to be blocked meanwhile is not supported.
fn limit(
    process: &Process,
    time: u64,
    (mask, bytes): (u64, u64),
) -> Result<Option<Duration>, Flow> {
    let failed = |errno| Flow::Answer(Err(errno));
    if mask != 0 && long_at(process.space.read(mask, bytes).map_err(failed)?, 0) != 0 {
        return Err(Flow::Unknown);
    }
    if time == 0 { Ok(None) } else { duration(process, time).map(Some).map_err(failed) }
}

fn poll_for(process: &mut Process, entries: u64, count: u64, wanted: Option<Duration>) -> Flow {
    let mut channel = false;
    match poll_now(process, entries, count, &mut channel) {
        Ok(0) => {
            let until = wanted.map(|wanted| process.kernel.threads.limit(wanted));
            wait_for_change(process, until, channel)
        }
        answer => Flow::Answer(answer),
    }
}

/// Number of ready descriptors; notes whether the channel is among those asked about.
fn poll_now(process: &mut Process, entries: u64, count: u64, channel: &mut bool) -> Answer {
    if count > MAX_DESCRIPTORS as u64 {
        return Err(Errno::INVAL);
    }
    let mut bytes = process.space.read(entries, count * 8)?.to_vec();
    let mut ready = 0;
    for entry in bytes.chunks_exact_mut(8) {
        let number = i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
        let wanted = u16::from_le_bytes([entry[4], entry[5]]);
        let state = u64::try_from(number).map_or(0, |number| {
            let state = state(process, number).unwrap_or(INVALID);
            *channel |= wanted & IN != 0 && waits_for_worker(process, number, state);
            state
        });
        let answered = state & (wanted | ERROR | HANG_UP | INVALID);
        entry[6..].copy_from_slice(&answered.to_le_bytes());
        ready += u64::from(answered != 0);
    }
    process.space.write(entries, count * 8)?.copy_from_slice(&bytes);
    Ok(ready)
}

/// `select`: its duration is in microseconds, and may have more than a second's worth of them.
pub(crate) fn select(process: &mut Process, arguments: [u64; 6]) -> Flow {
    let time = arguments[4];
    let wanted = match time {
        0 => Ok(None),
        time => microseconds(process, time).map(Some),
    };
    match wanted {
        Ok(wanted) => select_in(process, arguments, wanted, 1000),
        Err(errno) => Flow::Answer(Err(errno)),
    }
}

fn microseconds(process: &Process, at: u64) -> Result<Duration, Errno> {
    let bytes = process.space.read(at, 16)?;
    let [seconds, rest] = [0, 8].map(|at| i64::try_from(long_at(bytes, at)));
    let (Ok(seconds), Ok(rest)) = (seconds.map(i64::unsigned_abs), rest.map(i64::unsigned_abs))
    else {
        return Err(Errno::INVAL);
    };
    Ok(Duration::from_secs(seconds).saturating_add(Duration::from_micros(rest)))
}

/// `pselect6`, without blocking signals meanwhile.
pub(crate) fn pselect(process: &mut Process, arguments: [u64; 6]) -> Flow {
    let [.., time, mask] = arguments;
    // Its argument points to the set's address, and its size.
    match limit(process, time, (mask, 16)) {
        Ok(wanted) => select_in(process, arguments, wanted, 1),
        Err(flow) => flow,
    }
}

/// Answers with the ready sets, and the time left in units of `unit` nanoseconds.
fn select_in(
    process: &mut Process,
    arguments: [u64; 6],
    wanted: Option<Duration>,
    unit: u32,
) -> Flow {
    let [count, read, write, exceptions, time, _] = arguments;
    let mut channel = false;
    let sets = Sets::read(process, count, [read, write, exceptions]);
    let (ready, found) = match sets.and_then(|sets| sets.ready(process, &mut channel)) {
        Ok(found) => found,
        Err(errno) => return Flow::Answer(Err(errno)),
    };
    let until = wanted.map(|wanted| process.kernel.threads.limit(wanted));
    if ready == 0 {
        let flow = wait_for_change(process, until, channel);
        if !matches!(flow, Flow::Answer(Ok(_))) {
            return flow;
        }
    }
    if let Err(errno) = found.write(process) {
        return Flow::Answer(Err(errno));
    }
    // Not when there was no time to wait. Where it cannot be written, it is left out.
    let left = until.map_or(Duration::ZERO, |it| it.saturating_duration_since(Instant::now()));
    if wanted.is_some_and(|wanted| !wanted.is_zero())
        && let Ok(place) = process.space.write(time, 16)
    {
        let rest = u64::from(left.subsec_nanos() / unit);
        let record = Record::<16>::new().long(0, left.as_secs()).long(8, rest);
        place.copy_from_slice(record.bytes());
    }
    Flow::Answer(Ok(ready))
}

/// Sets of descriptors, and their addresses in the guest; 0 for none.
struct Sets {
    count: usize,
    places: [u64; 3],
    bytes: [[u8; SET_BYTES]; 3],
}

impl Sets {
    fn read(process: &Process, count: u64, places: [u64; 3]) -> Result<Self, Errno> {
        let count = usize::try_from(signed(count)).map_err(|_| Errno::INVAL)?.min(MAX_DESCRIPTORS);
        let mut sets = Self { count, places, bytes: [[0; SET_BYTES]; 3] };
        let length = sets.length();
        for (place, bytes) in places.into_iter().zip(&mut sets.bytes) {
            if place != 0 {
                let bytes = &mut bytes[..length];
                bytes.copy_from_slice(process.space.read(place, bytes.len() as u64)?);
            }
        }
        Ok(sets)
    }

    /// Bytes of each set, in whole words.
    fn length(&self) -> usize {
        self.count.div_ceil(64) * 8
    }

    /// Number of ready descriptors, and which; notes whether the channel is among those asked
    /// about.
    fn ready(&self, process: &Process, channel: &mut bool) -> Result<(u64, Self), Errno> {
        let Self { count, places, bytes: asked } = self;
        let mut found = Self { count: *count, places: *places, bytes: [[0; SET_BYTES]; 3] };
        let mut ready = 0;
        for number in 0..*count {
            let (byte, bit) = (number / 8, 1 << (number % 8));
            if asked.iter().all(|set| set[byte] & bit == 0) {
                continue;
            }
            let state = state(process, number as u64)?;
            let reads = asked[0][byte] & bit != 0;
            *channel |= reads && waits_for_worker(process, number as u64, state);
            for (at, wanted) in WANTED.into_iter().enumerate() {
                if asked[at][byte] & bit != 0 && state & wanted != 0 {
                    found.bytes[at][byte] |= bit;
                    ready += 1;
                }
            }
        }
        Ok((ready, found))
    }

    fn write(&self, process: &mut Process) -> Result<(), Errno> {
        let length = self.length();
        for (place, bytes) in self.places.into_iter().zip(&self.bytes) {
            if place != 0 {
                process.space.write(place, length as u64)?.copy_from_slice(&bytes[..length]);
            }
        }
        Ok(())
    }
}
