//! System calls about signals: actions, masks, stacks, and sending.

use rustix::io::Errno;

use crate::linux::abi::record::{Record, long_at};
use crate::linux::abi::registers::{Answer, register, signed};
use crate::linux::scheduling::deliver::{arrive_at_other, interrupt, raise, receiver};
use crate::linux::scheduling::frame;
use crate::linux::scheduling::wait::wait;
use crate::linux::state::flow::Flow;
use crate::linux::state::process::Process;
use crate::linux::state::signals::{
    Action, Addressee, AlternateStack, KILL, LEAST_STACK, MAX_SIGNAL, STOP, Signals, bit, ignored,
};
use crate::linux::state::threads::{ThreadPosition, Wait};

/// Bytes of a set of signals.
const SET_BYTES: u64 = 8;
/// SS_DISABLE: there is no alternate stack.
const DISABLED: u32 = 2;

pub(crate) fn sigaction(
    process: &mut Process,
    number: u64,
    new: u64,
    old: u64,
    set_bytes: u64,
) -> Answer {
    let number = usize::try_from(number).ok().filter(|number| (1..=MAX_SIGNAL).contains(number));
    let number = number.ok_or(Errno::INVAL)?;
    if set_bytes != SET_BYTES || new != 0 && matches!(number, KILL | STOP) {
        return Err(Errno::INVAL);
    }
    let wanted = if new == 0 {
        None
    } else {
        let bytes = process.space.read(new, 32)?;
        let field = |number: usize| long_at(bytes, number * 8);
        Some(Action {
            handler: field(0),
            flags: field(1),
            restorer: field(2),
            mask: field(3) & !(bit(KILL) | bit(STOP)),
        })
    };
    if old != 0 {
        let now = process.kernel.signals.actions[number];
        let record = Record::<32>::new()
            .long(0, now.handler)
            .long(8, now.flags)
            .long(16, now.restorer)
            .long(24, now.mask);
        process.space.write(old, 32)?.copy_from_slice(record.bytes());
    }
    if let Some(wanted) = wanted {
        process.kernel.signals.actions[number] = wanted;
        if ignored(number, wanted.handler) {
            process.kernel.signals.waiting &= !bit(number);
            process.kernel.signals.waiting_own &= !bit(number);
        }
    }
    Ok(0)
}

pub(crate) fn sigaltstack(process: &mut Process, new: u64, old: u64) -> Answer {
    let now = process.kernel.signals.stack;
    let wanted = if new == 0 {
        None
    } else {
        let bytes = process.space.read(new, 24)?;
        let (start, flags, length) = (long_at(bytes, 0), long_at(bytes, 8), long_at(bytes, 16));
        let disabled = flags & u64::from(DISABLED) != 0;
        if !disabled && length < LEAST_STACK {
            return Err(Errno::NOMEM);
        }
        Some(if disabled { AlternateStack::default() } else { AlternateStack { start, length } })
    };
    if old != 0 {
        let flags = if now.length == 0 { DISABLED } else { 0 };
        let record = Record::<24>::new().long(0, now.start).int(8, flags).long(16, now.length);
        process.space.write(old, 24)?.copy_from_slice(record.bytes());
    }
    if let Some(wanted) = wanted {
        process.kernel.signals.stack = wanted;
    }
    Ok(0)
}

/// `kill`: to the process itself, the only one there is.
pub(crate) fn kill(process: &mut Process, target: i32, signal: i32) -> Flow {
    let own = i64::from(target).unsigned_abs() == process.pid || target == 0;
    if !own {
        return Flow::Answer(Err(Errno::SRCH));
    }
    send(process, None, signal)
}

/// `tkill` and `tgkill`.
pub(crate) fn kill_thread(process: &mut Process, target: u64, signal: i32) -> Flow {
    let target = process.meant_thread(target);
    if !process.kernel.threads.live(target) {
        return Flow::Answer(Err(Errno::SRCH));
    }
    send(process, Some(target), signal)
}

/// Sends a signal to a thread, or to any thread that takes it.
fn send(process: &mut Process, thread: Option<u64>, signal: i32) -> Flow {
    let number = usize::try_from(signal).ok().filter(|number| *number <= MAX_SIGNAL);
    let Some(number) = number else { return Flow::Answer(Err(Errno::INVAL)) };
    if number == 0 {
        return Flow::Answer(Ok(0));
    }
    let to = if thread.is_some() { Addressee::Thread } else { Addressee::Process };
    let receiver = thread.unwrap_or_else(|| receiver(process, number, ThreadPosition::Between));
    if receiver == process.kernel.threads.running() {
        return raise(process, to, number, Ok(0));
    }
    process.vcpu.registers().rax = register(Ok(0));
    let arrived = arrive_at_other(process, to, number, receiver, ThreadPosition::Between);
    arrived.unwrap_or(Flow::Answer(Ok(0)))
}

/// `rt_sigprocmask`. Signals that it unblocks are delivered before it returns.
pub(crate) fn sigprocmask(
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

/// `pause`: until a signal with a handler comes. Another thread may send one to the process; with
/// no other thread, only an alarm can end the wait.
pub(crate) fn pause(process: &mut Process) -> Flow {
    match process.kernel.signals.next() {
        Some((to, number)) => raise(process, to, number, Err(Errno::INTR)),
        None => wait(process, Wait::Change, None),
    }
}

/// `rt_sigpending`.
pub(crate) fn sigpending(process: &mut Process, set: u64, set_bytes: u64) -> Answer {
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

/// `rt_sigreturn`: back to where a signal interrupted the program, or to the handler of the next
/// one.
pub(crate) fn sigreturn(process: &mut Process) -> Flow {
    if frame::leave(process).is_err() {
        return Flow::Kill(libc::SIGSEGV);
    }
    match process.kernel.signals.next() {
        Some((to, number)) => interrupt(process, to, number),
        None => Flow::Resumed,
    }
}
