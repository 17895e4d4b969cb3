//! `futex`: waiting for a word of memory to change, which all locks are made of.

use rustix::io::Errno;

use crate::linux::abi::registers::{Answer, signed};
use crate::linux::scheduling::wait::wait;
use crate::linux::state::flow::Flow;
use crate::linux::state::host_clock;
use crate::linux::state::host_clock::deadline;
use crate::linux::state::process::Process;
use crate::linux::state::threads::{ANY, Wait};
use crate::linux::syscalls::clock;

/// Waits and wakes, with reasons and deadlines, and moves waiting threads. C libraries do without
/// locks with priorities, and without operations on a second word (FUTEX_WAKE_OP).
pub(crate) fn futex(process: &mut Process, arguments: [u64; 6]) -> Flow {
    const WAIT: i32 = 0;
    const WAKE: i32 = 1;
    const REQUEUE: i32 = 3;
    const COMPARE_AND_REQUEUE: i32 = 4;
    const WAIT_BITSET: i32 = 9;
    const WAKE_BITSET: i32 = 10;
    const REAL_TIME: i32 = 0x100;
    let [address, operation, value, time, _, reasons] = arguments;
    let operation = signed(operation);
    let reasons = match operation & 0x7f {
        WAIT | WAKE => ANY,
        WAIT_BITSET | WAKE_BITSET => signed(reasons).cast_unsigned(),
        REQUEUE => return Flow::Answer(requeue(process, arguments, false)),
        COMPARE_AND_REQUEUE => return Flow::Answer(requeue(process, arguments, true)),
        _ => return Flow::Answer(Err(Errno::NOSYS)),
    };
    if !address.is_multiple_of(4) || reasons == 0 {
        return Flow::Answer(Err(Errno::INVAL));
    }
    if matches!(operation & 0x7f, WAKE | WAKE_BITSET) {
        let most = usize::try_from(signed(value)).unwrap_or(0).max(1);
        return Flow::Answer(Ok(process.kernel.threads.wake(address, most, reasons)));
    }
    let until = match (time, operation & 0x7f) {
        (0, _) => Ok(None),
        (time, WAIT) => clock::duration(process, time).map(|wanted| Some(deadline(wanted))),
        (time, _) => {
            let clock = if operation & REAL_TIME == 0 {
                host_clock::MONOTONIC
            } else {
                host_clock::REALTIME
            };
            clock::duration(process, time)
                .and_then(|moment| Ok(Some(deadline(clock::left(process, clock, moment)?))))
        }
    };
    let expected = &value.to_le_bytes()[..4];
    match (until, process.space.read(address, 4)) {
        (Err(errno), _) | (_, Err(errno)) => Flow::Answer(Err(errno)),
        (Ok(_), Ok(word)) if word != expected => Flow::Answer(Err(Errno::AGAIN)),
        (Ok(until), Ok(_)) => wait(process, Wait::Futex(address, reasons), until),
    }
}

/// Wakes some threads that wait at one address, and moves others to a second one; returns how many
/// both are. musl wakes all threads of a condition in this way: one at once, each other one when it
/// can have their lock.
fn requeue(process: &mut Process, arguments: [u64; 6], compares: bool) -> Answer {
    let [from, _, woken, moved, to, expected] = arguments;
    let count = |register| usize::try_from(signed(register)).map_err(|_| Errno::INVAL);
    let (woken, moved) = (count(woken)?, count(moved)?);
    if !from.is_multiple_of(4) || !to.is_multiple_of(4) {
        return Err(Errno::INVAL);
    }
    if compares && process.space.read(from, 4)? != &expected.to_le_bytes()[..4] {
        return Err(Errno::AGAIN);
    }
    Ok(process.kernel.threads.requeue(from, woken, to, moved))
}
