//! The frame that a handler finds on its stack, and that takes the program back to where it was
//! interrupted: `struct rt_sigframe`.
//!
//! ```text
//!   frame    return address │ ucontext │ siginfo
//!                                 └─ fpregs ─► floating point and vectors, at a multiple of 64
//!   … below the red zone, or at the alternate stack's end          (crate::machine::cpu::xsave_frame)
//! ```
//!
//! A handler begins with initial floating point and vectors, and may change them: the program's
//! come back from the frame. Returning by memory that is no frame, or cannot be read, ends the
//! process by SIGSEGV.

use rustix::io::Errno;

use crate::linux::abi::record::{Record, long_at};
use crate::linux::state::ids::USER;
use crate::linux::state::process::Process;
use crate::linux::state::signals::{Addressee, KILL, PIPE, STOP, bit};
use crate::machine::Fault;
use crate::machine::cpu::xsave_frame;
use crate::memory::layout::USER_HALF_END;

/// Parts of the frame: return address, `ucontext`, `siginfo`.
const CONTEXT_AT: usize = 8;
const CONTEXT_BYTES: usize = 304;
const INFO_AT: usize = CONTEXT_AT + CONTEXT_BYTES;
const FRAME_BYTES: usize = INFO_AT + 128;
const RED_ZONE: u64 = 128;
/// Offsets in `ucontext` of the registers, and of the pointer to the extended states.
const REGISTERS_AT: usize = 40;
const STATES_AT: usize = REGISTERS_AT + 23 * 8;
/// UC_FP_XSTATE: there are more states than FXSAVE's.
const EXTENDED: u64 = 1;
/// Bytes of x87 and SSE.
const LEGACY: u64 = 512;

const ON_STACK: u64 = 0x0800_0000;
const RESET: u64 = 0x8000_0000;
const NO_DEFER: u64 = 0x4000_0000;

/// A signal as `siginfo_t` describes it to a handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignalInfo {
    pub(crate) number: usize,
    /// The origin (SI_*), or the kind of fault.
    pub(crate) code: i32,
    /// The address that was touched; or the sender's process, and its user in the upper half.
    pub(crate) detail: u64,
}

impl SignalInfo {
    /// A signal that the process or one of its threads sent itself.
    pub(crate) fn sent(process: &Process, to: Addressee, number: usize) -> Self {
        let code = match to {
            Addressee::Thread if number != PIPE => libc::SI_TKILL,
            _ => libc::SI_USER,
        };
        Self { number, code, detail: process.pid | USER << 32 }
    }
}

/// Writes the frame and enters the handler.
pub(crate) fn push(process: &mut Process, info: SignalInfo, at: Fault) -> Result<(), Errno> {
    let SignalInfo { number: signal, code, detail } = info;
    let action = process.kernel.signals.actions[signal];
    if action.handler >= USER_HALF_END {
        return Err(Errno::FAULT);
    }
    let stack = process.kernel.signals.stack;
    let on_alternate = action.flags & ON_STACK != 0 && stack.length > 0 && !stack.holds(at.rsp);
    let top = if on_alternate {
        stack.start.wrapping_add(stack.length)
    } else {
        at.rsp.wrapping_sub(RED_ZONE)
    };
    let extended = xsave_frame::save(&process.vcpu).map_err(|_| Errno::FAULT)?;
    let states = top.wrapping_sub(extended.len() as u64) & !63;
    // As after a call: a multiple of 16, less the return address.
    let frame = (states.wrapping_sub(FRAME_BYTES as u64) & !15).wrapping_sub(8);
    // A frame that does not fit must not overwrite what lies below the stack.
    if (on_alternate || stack.holds(at.rsp)) && !stack.holds(frame) {
        return Err(Errno::FAULT);
    }
    let number = u32::try_from(signal).unwrap_or(0);
    let mask = process.kernel.signals.mask;
    let registers = process.vcpu.registers();
    let saved = [
        registers.r8,
        registers.r9,
        registers.r10,
        registers.r11,
        registers.r12,
        registers.r13,
        registers.r14,
        registers.r15,
        registers.rdi,
        registers.rsi,
        registers.rbp,
        registers.rbx,
        registers.rdx,
        registers.rax,
        registers.rcx,
        at.rsp,
        at.rip,
        at.rflags,
        0x002b_0000_0000_0033,
        at.code,
        u64::from(at.vector),
        mask,
        at.address,
        states,
    ];
    let mut record = Record::<FRAME_BYTES>::new().long(0, action.restorer);
    // uc_flags, uc_link and the stack precede the registers; the reserved words and the mask follow
    // them.
    record = record.long(CONTEXT_AT, EXTENDED);
    record = record.long(CONTEXT_AT + 16, stack.start).long(CONTEXT_AT + 32, stack.length);
    for (number, value) in saved.into_iter().enumerate() {
        record = record.long(CONTEXT_AT + REGISTERS_AT + number * 8, value);
    }
    record = record
        .long(CONTEXT_AT + CONTEXT_BYTES - 8, mask)
        .int(INFO_AT, number)
        .int(INFO_AT + 8, code.cast_unsigned())
        .long(INFO_AT + 16, detail);
    process.space.write(states, extended.len() as u64)?.copy_from_slice(&extended);
    process.space.write(frame, FRAME_BYTES as u64)?.copy_from_slice(record.bytes());
    xsave_frame::begin(&process.vcpu).map_err(|_| Errno::FAULT)?;

    process.vcpu.enter(action.handler, frame, 0);
    let registers = process.vcpu.registers();
    registers.rax = 0;
    registers.rdi = signal as u64;
    registers.rsi = frame + INFO_AT as u64;
    registers.rdx = frame + CONTEXT_AT as u64;
    process.kernel.signals.mask |= action.mask;
    if action.flags & NO_DEFER == 0 {
        process.kernel.signals.mask |= bit(signal);
    }
    if action.flags & RESET != 0 {
        process.kernel.signals.actions[signal].handler = 0;
    }
    Ok(())
}

/// Takes the program back to where the frame at its stack pointer interrupted it.
///
/// # Errors
/// When there is no frame, or one with an impossible address.
pub(crate) fn leave(process: &mut Process) -> Result<(), Errno> {
    process.vcpu.settle().map_err(|_| Errno::FAULT)?;
    // The handler's `ret` has taken the return address.
    let context = process.vcpu.registers().rsp;
    let bytes = process.space.read(context, CONTEXT_BYTES as u64)?;
    let saved = |number: usize| long_at(bytes, REGISTERS_AT + number * 8);
    let values: [u64; 18] = std::array::from_fn(saved);
    let (states, mask) = (long_at(bytes, STATES_AT), long_at(bytes, CONTEXT_BYTES - 8));
    let [r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, rflags] =
        values;
    if rip >= USER_HALF_END {
        return Err(Errno::FAULT);
    }
    restore(process, states)?;
    process.vcpu.enter(rip, rsp, rflags);
    let registers = process.vcpu.registers();
    (registers.r8, registers.r9, registers.r10, registers.r11) = (r8, r9, r10, r11);
    (registers.r12, registers.r13, registers.r14, registers.r15) = (r12, r13, r14, r15);
    (registers.rdi, registers.rsi, registers.rbp, registers.rbx) = (rdi, rsi, rbp, rbx);
    (registers.rdx, registers.rax, registers.rcx) = (rdx, rax, rcx);
    process.kernel.signals.mask = mask & !(bit(KILL) | bit(STOP));
    Ok(())
}

/// Loads the extended states to which a frame points; initial ones without a pointer.
fn restore(process: &Process, states: u64) -> Result<(), Errno> {
    let restored = if states == 0 {
        xsave_frame::begin(&process.vcpu)
    } else {
        let head = process.space.read(states, LEGACY)?;
        let length = xsave_frame::claimed(process.vcpu.states(), head) as u64;
        // A frame of x87 and SSE alone has no magic number behind it, and perhaps no memory.
        let behind = if length > LEGACY { 4 } else { 0 };
        xsave_frame::restore(&process.vcpu, process.space.read(states, length + behind)?)
    };
    restored.map_err(|_| Errno::FAULT)
}
