//! `futex`: what locks of all kinds wait by.

use rustix::io::Errno;

use super::call::{Flow, signed};
use super::clock;
use super::process::Process;
use super::threads::{ANY, Wait, deadline, wait};

/// Waiting and waking, with reasons and limits of time; nothing is requeued, which C libraries do without.
pub(super) fn futex(process: &mut Process, arguments: [u64; 6]) -> Flow {
    const WAIT: i32 = 0;
    const WAKE: i32 = 1;
    const WAIT_BITSET: i32 = 9;
    const WAKE_BITSET: i32 = 10;
    const REAL_TIME: i32 = 0x100;
    let [address, operation, value, time, _, reasons] = arguments;
    let operation = signed(operation);
    let reasons = match operation & 0x7f {
        WAIT | WAKE => ANY,
        WAIT_BITSET | WAKE_BITSET => signed(reasons).cast_unsigned(),
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
            let clock = if operation & REAL_TIME == 0 { clock::MONOTONIC } else { clock::REALTIME };
            clock::duration(process, time)
                .and_then(|moment| Ok(Some(deadline(clock::left(clock, moment)?))))
        }
    };
    let expected = &value.to_le_bytes()[..4];
    match (until, process.space.read(address, 4)) {
        (Err(errno), _) | (_, Err(errno)) => Flow::Answer(Err(errno)),
        (Ok(_), Ok(word)) if word != expected => Flow::Answer(Err(Errno::AGAIN)),
        (Ok(until), Ok(_)) => wait(process, Wait::Futex(address, reasons), until),
    }
}
