//! Signals: those that a program raises itself, and those that its own faults become.
//!
//! Nobody else is there who could send one. A handler gets the frame that the kernel would build. What is blocked when it is sent
//! waits for whichever thread unblocks it.

mod frame;
mod saved;
mod waiting;

use rustix::io::Errno;

use super::Answer;
use super::call::{Flow, register};
use super::deferred;
use super::identity::meant;
use super::process::{Pause, Process};
use super::record::{Record, long_at};
use super::start::USER;
use super::threads::{self, Standing};
use crate::machine::Fault;
use crate::memory::layout::PAGE;
use frame::push;
pub(super) use frame::sigreturn;
pub(super) use saved::SavedSignals;
pub(super) use waiting::{pause, sigpending, sigprocmask};

const MOST: usize = 64;
/// Bytes of a set of signals.
const SET_BYTES: u64 = 8;
const ON_STACK: u64 = 0x0800_0000;
const RESTART: u64 = 0x1000_0000;
const RESET: u64 = 0x8000_0000;
const NO_DEFER: u64 = 0x4000_0000;
/// The alternate stack's state: disabled.
const DISABLED: u32 = 2;
/// Bytes of an alternate stack at least.
const LEAST_STACK: u64 = 2048;

const ILL: usize = 4;
const TRAP: usize = 5;
const BUS: usize = 7;
const FPE: usize = 8;
const KILL: usize = 9;
/// Sent to whoever writes to a pipe that nobody reads.
pub(super) const PIPE: usize = 13;
const SEGV: usize = 11;
pub(super) const ALRM: usize = 14;
/// Sent where the processor's time is over: `RLIMIT_CPU`.
pub(super) const XCPU: usize = 24;
/// Sent where a file would be too long: `RLIMIT_FSIZE`.
pub(super) const XFSZ: usize = 25;
const STOP: usize = 19;

/// What a process wants done about signals.
#[derive(Clone, Debug)]
pub(super) struct Signals {
    actions: [Action; MOST + 1],
    mask: u64,
    stack: AlternateStack,
    /// Sent to the process while they were blocked.
    waiting: u64,
    /// Sent to the running thread while they were blocked.
    waiting_own: u64,
}

/// A signal as its handler is told of it: `siginfo_t`.
#[derive(Clone, Copy, Debug)]
struct Info {
    number: usize,
    /// How it came: SI_*, or what was wrong.
    code: i32,
    /// The address that was touched; or who sent it, and as which user.
    detail: u64,
}

impl Info {
    /// Of one that the process sent itself, or one of its threads.
    fn sent(process: &Process, to: Addressee, number: usize) -> Self {
        let code = match to {
            Addressee::Thread if number != PIPE => libc::SI_TKILL,
            _ => libc::SI_USER,
        };
        Self { number, code, detail: process.pid | USER << 32 }
    }
}

/// Whom a signal is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Addressee {
    /// Whichever thread does not block it.
    Process,
    /// The running one.
    Thread,
}

/// What of it is a thread's own.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnSignals {
    mask: u64,
    stack: AlternateStack,
    waiting: u64,
}

impl OwnSignals {
    /// As a thread begins that was started where these are: with its mask alone.
    pub(super) fn of_child(self) -> Self {
        Self { stack: AlternateStack::default(), waiting: 0, ..self }
    }

    /// Whether the thread blocks a signal.
    pub(super) fn block(&self, number: usize) -> bool {
        self.mask & bit(number) != 0
    }

    /// A signal waits for it from now on.
    pub(super) fn keep(&mut self, number: usize) {
        self.waiting |= bit(number);
    }
}

impl Signals {
    /// What is the running thread's own.
    pub(super) fn own(&self) -> OwnSignals {
        OwnSignals { mask: self.mask, stack: self.stack, waiting: self.waiting_own }
    }

    /// Another thread runs.
    pub(super) fn set_own(&mut self, OwnSignals { mask, stack, waiting }: OwnSignals) {
        (self.mask, self.stack, self.waiting_own) = (mask, stack, waiting);
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Action {
    handler: u64,
    flags: u64,
    restorer: u64,
    mask: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct AlternateStack {
    start: u64,
    length: u64,
}

impl Default for Signals {
    fn default() -> Self {
        let actions = [Action::default(); MOST + 1];
        Self { actions, mask: 0, stack: AlternateStack::default(), waiting: 0, waiting_own: 0 }
    }
}

impl AlternateStack {
    fn holds(self, address: u64) -> bool {
        self.length > 0 && address.wrapping_sub(self.start) < self.length
    }
}

pub(super) fn sigaction(
    process: &mut Process,
    number: u64,
    new: u64,
    old: u64,
    set_bytes: u64,
) -> Answer {
    let number = usize::try_from(number).ok().filter(|number| (1..=MOST).contains(number));
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

pub(super) fn sigaltstack(process: &mut Process, new: u64, old: u64) -> Answer {
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

/// `kill`: to itself, the only process there is.
pub(super) fn kill(process: &mut Process, target: i32, signal: i32) -> Flow {
    let own = i64::from(target).unsigned_abs() == process.pid || target == 0;
    if !own {
        return Flow::Answer(Err(Errno::SRCH));
    }
    send(process, None, signal)
}

/// `tkill` and `tgkill`.
pub(super) fn kill_thread(process: &mut Process, target: u64, signal: i32) -> Flow {
    let target = meant(process, target);
    if !process.kernel.threads.live(target) {
        return Flow::Answer(Err(Errno::SRCH));
    }
    send(process, Some(target), signal)
}

/// To a thread, or to whichever there is that takes it.
fn send(process: &mut Process, thread: Option<u64>, signal: i32) -> Flow {
    let number = usize::try_from(signal).ok().filter(|number| *number <= MOST);
    let Some(number) = number else { return Flow::Answer(Err(Errno::INVAL)) };
    if number == 0 {
        return Flow::Answer(Ok(0));
    }
    let to = if thread.is_some() { Addressee::Thread } else { Addressee::Process };
    let receiver = thread.unwrap_or_else(|| receiver(process, number, Standing::Between));
    if receiver == process.kernel.threads.running() {
        return raise(process, to, number, Ok(0));
    }
    process.vcpu.registers().rax = register(Ok(0));
    let arrived = arrive_at_other(process, to, number, receiver, Standing::Between);
    arrived.unwrap_or(Flow::Answer(Ok(0)))
}

/// Which thread a signal to the process comes to: as on Linux the first one, else the one that runs, else any that takes it.
fn receiver(process: &Process, number: usize, standing: Standing) -> u64 {
    let Signals { mask, .. } = process.kernel.signals;
    let is_taken = mask & bit(number) == 0 && !matches!(standing, Standing::Ended);
    process.kernel.threads.receiver(number, is_taken)
}

/// Sends a signal from inside a system call, which returns `answer`, and before a handler runs.
pub(super) fn raise(process: &mut Process, to: Addressee, number: usize, answer: Answer) -> Flow {
    let signals = &mut process.kernel.signals;
    if signals.mask & bit(number) != 0 {
        match to {
            Addressee::Process => signals.waiting |= bit(number),
            Addressee::Thread => signals.waiting_own |= bit(number),
        }
        return Flow::Answer(answer);
    }
    if ignored(number, signals.actions[number].handler) {
        return Flow::Answer(answer);
    }
    if process.vcpu.settle().is_err() {
        return Flow::Kill(i32::try_from(number).unwrap_or(0));
    }
    process.vcpu.registers().rax = register(answer);
    interrupt(process, to, number)
}

/// A signal that nobody in the process has sent just now. None: nothing changes for whoever runs.
pub(super) fn arrive(process: &mut Process, number: usize, standing: Standing) -> Option<Flow> {
    let to = Addressee::Process;
    let receiver = receiver(process, number, standing);
    if receiver != process.kernel.threads.running() {
        return arrive_at_other(process, to, number, receiver, standing);
    }
    let Signals { mask, .. } = process.kernel.signals;
    let Action { handler, flags, .. } = process.kernel.signals.actions[number];
    if ignored(number, handler) {
        return None;
    }
    if mask & bit(number) != 0 || matches!(standing, Standing::Ended) {
        process.kernel.signals.waiting |= bit(number);
        return None;
    }
    let call = process.vcpu.registers().rax;
    let Standing::Waiting(wait, until) = standing else {
        // A call that waits for a change is looked at again and again, and waits all the while.
        if let Some(until) = threads::go_behind_call(process) {
            let registers = process.vcpu.registers();
            if until.is_none() && flags & RESTART != 0 && is_restarted(call) {
                registers.rip = registers.rip.wrapping_sub(2);
            } else {
                registers.rax = register(Err(Errno::INTR));
            }
        }
        return Some(interrupt_between(process, to, number));
    };
    if until.is_none() && flags & RESTART != 0 && is_restarted(call) {
        return Some(match process.vcpu.before_call() {
            Ok(()) => interrupt(process, to, number),
            Err(error) => Flow::Lost(error),
        });
    }
    let told = wait.interrupted(process, until);
    Some(raise(process, to, number, Err(told.err().unwrap_or(Errno::INTR))))
}

/// One that comes to a thread that does not run. None: it goes on with what it does.
fn arrive_at_other(
    process: &mut Process,
    to: Addressee,
    number: usize,
    receiver: u64,
    standing: Standing,
) -> Option<Flow> {
    let Action { handler, flags, .. } = process.kernel.signals.actions[number];
    if process.kernel.threads.blocks(receiver, number) {
        match to {
            Addressee::Process => process.kernel.signals.waiting |= bit(number),
            Addressee::Thread => process.kernel.threads.keep(receiver, number),
        }
        return None;
    }
    if ignored(number, handler) {
        return None;
    }
    Some(match threads::turn_to(process, receiver, standing, flags & RESTART != 0) {
        Ok(()) => interrupt_between(process, to, number),
        Err(error) => Flow::Lost(error),
    })
}

/// Where the guest is about to execute an instruction.
fn interrupt_between(process: &mut Process, to: Addressee, number: usize) -> Flow {
    // The frame may lie in what is owed.
    deferred::settle(process);
    match process.vcpu.settle() {
        Ok(()) => interrupt(process, to, number),
        Err(error) => Flow::Lost(error),
    }
}

/// Whether a call that waited, without a limit of time, is made once more behind a handler with SA_RESTART: signal(7).
pub(super) fn is_restarted(number: u64) -> bool {
    !libc::c_long::try_from(number).is_ok_and(|number| {
        matches!(
            number,
            libc::SYS_poll
                | libc::SYS_ppoll
                | libc::SYS_select
                | libc::SYS_pselect6
                | libc::SYS_nanosleep
                | libc::SYS_clock_nanosleep
                | libc::SYS_pause
        )
    })
}

/// Whether a signal is ignored that is handled like this.
fn ignored(number: usize, handler: u64) -> bool {
    // Children, windows, continuation, urgent data: unless somebody wants them.
    handler == 1 || handler == 0 && matches!(number, 17 | 18 | 23 | 28)
}

/// Has the handler of a signal run where the guest stands, and on top of it those of others that wait; without one, the
/// process ends.
fn interrupt(process: &mut Process, to: Addressee, first: usize) -> Flow {
    let mut next = Some((to, first));
    while let Some((to, number)) = next {
        if process.kernel.signals.actions[number].handler == 0 {
            return Flow::Kill(i32::try_from(number).unwrap_or(0));
        }
        let registers = process.vcpu.registers();
        let (rip, rsp, rflags) = (registers.rip, registers.rsp, registers.rflags);
        let at = Fault { vector: 0, code: 0, address: 0, rip, rsp, rflags };
        let info = Info::sent(process, to, number);
        if push(process, info, at).is_err() {
            return Flow::Kill(libc::SIGSEGV);
        }
        next = process.kernel.signals.next();
    }
    Flow::Resumed
}

impl Process {
    /// Turns an exception into the signal that Linux makes of it; ends the process when it has no handler.
    pub(super) fn deliver(&mut self, fault: Fault) -> Option<Pause> {
        let (signal, code) = match fault.vector {
            0 => (FPE, 1),
            1 | 3 => (TRAP, 1),
            6 => (ILL, 2),
            16 | 19 => (FPE, 0),
            17 => (BUS, 1),
            // Mapped, but not for this; or not mapped at all.
            14 if self.space.regions().at(fault.address & !(PAGE - 1)).is_some() => (SEGV, 2),
            14 => (SEGV, 1),
            _ => (SEGV, 0x80),
        };
        let action = self.kernel.signals.actions[signal];
        let blocked = self.kernel.signals.mask & bit(signal) != 0;
        let number = i32::try_from(signal).unwrap_or(0);
        let info = Info { number: signal, code, detail: fault.address };
        if blocked || action.handler < 2 || push(self, info, fault).is_err() {
            return Some(Pause::Killed(number, Some(fault)));
        }
        None
    }
}

fn bit(signal: usize) -> u64 {
    1 << (signal - 1)
}
