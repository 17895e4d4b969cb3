//! Delivers signals to the running thread, to another one, or to a thread that takes them.

use rustix::io::Errno;

use crate::linux::abi::registers::{Answer, register};
use crate::linux::mapped_files::deferred;
use crate::linux::scheduling::frame::{SignalInfo, push};
use crate::linux::scheduling::switch::{go_behind_call, interrupted, is_restarted, turn_to};
use crate::linux::state::flow::{Flow, Pause};
use crate::linux::state::process::Process;
use crate::linux::state::signals::{
    Action, Addressee, BUS, FPE, ILL, SEGV, Signals, TRAP, bit, ignored,
};
use crate::linux::state::threads::ThreadPosition;
use crate::machine::Fault;
use crate::memory::layout::PAGE;

const RESTART: u64 = 0x1000_0000;

/// The thread that a signal to the process goes to: as on Linux the first one, else the running
/// one, else any that does not block it.
pub(crate) fn receiver(process: &Process, number: usize, standing: ThreadPosition) -> u64 {
    let Signals { mask, .. } = process.kernel.signals;
    let is_taken = mask & bit(number) == 0 && !matches!(standing, ThreadPosition::Ended);
    process.kernel.threads.receiver(number, is_taken)
}

/// Sends a signal from inside a system call. The call returns `answer`, after the handler.
pub(crate) fn raise(process: &mut Process, to: Addressee, number: usize, answer: Answer) -> Flow {
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

/// Sends a signal to the process that does not come from a call of its own. None: the running
/// thread goes on.
pub(crate) fn arrive(
    process: &mut Process,
    number: usize,
    standing: ThreadPosition,
) -> Option<Flow> {
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
    if mask & bit(number) != 0 || matches!(standing, ThreadPosition::Ended) {
        process.kernel.signals.waiting |= bit(number);
        return None;
    }
    let call = process.vcpu.registers().rax;
    let ThreadPosition::Waiting(wait, until) = standing else {
        // A call that waits for a change is repeated again and again; in between it waits, too.
        if let Some(until) = go_behind_call(process) {
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
    let told = interrupted(wait, process, until);
    Some(raise(process, to, number, Err(told.err().unwrap_or(Errno::INTR))))
}

/// Sends a signal to a thread that does not run. None: the running thread goes on.
pub(crate) fn arrive_at_other(
    process: &mut Process,
    to: Addressee,
    number: usize,
    receiver: u64,
    standing: ThreadPosition,
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
    Some(match turn_to(process, receiver, standing, flags & RESTART != 0) {
        Ok(()) => interrupt_between(process, to, number),
        Err(error) => Flow::Lost(error),
    })
}

/// Interrupts the guest between two instructions.
fn interrupt_between(process: &mut Process, to: Addressee, number: usize) -> Flow {
    // The frame may lie in memory whose bytes are owed.
    deferred::settle(process);
    match process.vcpu.settle() {
        Ok(()) => interrupt(process, to, number),
        Err(error) => Flow::Lost(error),
    }
}

/// Has a signal's handler run where the guest stands, and on top of it the handlers of signals that
/// wait. A signal without a handler ends the process.
pub(crate) fn interrupt(process: &mut Process, to: Addressee, first: usize) -> Flow {
    let mut next = Some((to, first));
    while let Some((to, number)) = next {
        if process.kernel.signals.actions[number].handler == 0 {
            return Flow::Kill(i32::try_from(number).unwrap_or(0));
        }
        let registers = process.vcpu.registers();
        let (rip, rsp, rflags) = (registers.rip, registers.rsp, registers.rflags);
        let at = Fault { vector: 0, code: 0, address: 0, rip, rsp, rflags };
        let info = SignalInfo::sent(process, to, number);
        if push(process, info, at).is_err() {
            return Flow::Kill(libc::SIGSEGV);
        }
        next = process.kernel.signals.next();
    }
    Flow::Resumed
}

impl Process {
    /// Turns an exception into Linux's signal for it. Without a handler the process ends.
    pub(crate) fn deliver(&mut self, fault: Fault) -> Option<Pause> {
        let (signal, code) = match fault.vector {
            0 => (FPE, 1),
            1 | 3 => (TRAP, 1),
            6 => (ILL, 2),
            16 | 19 => (FPE, 0),
            17 => (BUS, 1),
            // Mapped without the right, or not mapped.
            14 if self.space.regions().at(fault.address & !(PAGE - 1)).is_some() => (SEGV, 2),
            14 => (SEGV, 1),
            _ => (SEGV, 0x80),
        };
        let action = self.kernel.signals.actions[signal];
        let blocked = self.kernel.signals.mask & bit(signal) != 0;
        let number = i32::try_from(signal).unwrap_or(0);
        let info = SignalInfo { number: signal, code, detail: fault.address };
        if blocked || action.handler < 2 || push(self, info, fault).is_err() {
            return Some(Pause::Killed(number, Some(fault)));
        }
        None
    }
}
