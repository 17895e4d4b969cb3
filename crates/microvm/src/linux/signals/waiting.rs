//! Signals that are blocked, and wait.

use rustix::io::Errno;

use super::{Addressee, KILL, SET_BYTES, STOP, Signals, bit, ignored, raise};
use crate::linux::Answer;
use crate::linux::call::{Flow, signed};
use crate::linux::process::Process;
use crate::linux::record::long_at;
use crate::linux::threads::{self, Wait};

impl Signals {
    /// The first that waits, is not blocked any more, and is not ignored: the thread's own before the process's; and whose it
    /// is. It waits no longer.
    pub(super) fn next(&mut self) -> Option<(Addressee, usize)> {
        loop {
            let free = !self.mask;
            let own = self.waiting_own & free != 0;
            let waiting = if own { &mut self.waiting_own } else { &mut self.waiting };
            let ready = *waiting & free;
            // Bit 0 is signal 1.
            let number = (ready != 0).then(|| ready.trailing_zeros() as usize + 1)?;
            *waiting &= !bit(number);
            if !ignored(number, self.actions[number].handler) {
                return Some((if own { Addressee::Thread } else { Addressee::Process }, number));
            }
        }
    }
}

/// `rt_sigprocmask`. The signals that it unblocks come before it returns.
pub(in crate::linux) fn sigprocmask(
    process: &mut Process,
    how: u64,
    new: u64,
    old: u64,
    set_bytes: u64,
) -> Flow {
    let answer = set_mask(process, how, new, old, set_bytes).map(|()| 0);
    match process.kernel.signals.next() {
        Some((to, number)) => raise(process, to, number, answer),
        None => Flow::Answer(answer),
    }
}

fn set_mask(
    process: &mut Process,
    how: u64,
    new: u64,
    old: u64,
    set_bytes: u64,
) -> Result<(), Errno> {
    if set_bytes != SET_BYTES {
        return Err(Errno::INVAL);
    }
    let now = process.kernel.signals.mask;
    if new != 0 {
        let set = long_at(process.space.read(new, SET_BYTES)?, 0);
        let mask = match signed(how) {
            libc::SIG_BLOCK => now | set,
            libc::SIG_UNBLOCK => now & !set,
            libc::SIG_SETMASK => set,
            _ => return Err(Errno::INVAL),
        };
        process.kernel.signals.mask = mask & !(bit(KILL) | bit(STOP));
    }
    if old != 0 {
        process.space.write(old, SET_BYTES)?.copy_from_slice(&now.to_le_bytes());
    }
    Ok(())
}

/// `pause`: until a signal comes that has a handler. What another thread sends to the process while it blocks it itself may
/// come here; with no other thread there is nobody who could send one.
pub(in crate::linux) fn pause(process: &mut Process) -> Flow {
    match process.kernel.signals.next() {
        Some((to, number)) => raise(process, to, number, Err(Errno::INTR)),
        None => threads::wait(process, Wait::Change, None),
    }
}

/// `rt_sigpending`.
pub(in crate::linux) fn sigpending(process: &mut Process, set: u64, set_bytes: u64) -> Answer {
    if set_bytes > SET_BYTES {
        return Err(Errno::INVAL);
    }
    let Signals { waiting, waiting_own, mask, .. } = process.kernel.signals;
    let bytes = ((waiting | waiting_own) & mask).to_le_bytes();
    for (place, byte) in process.space.write(set, set_bytes)?.iter_mut().zip(bytes) {
        *place = byte;
    }
    Ok(0)
}
