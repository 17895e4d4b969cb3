//! The code of ring 0: two instructions for each way in, and nothing more.
//!
//! A guest is always at CPL 3. An exception or a `syscall` takes the processor to a stub, whose
//! `out` hands over to the monitor. The monitor puts the processor back at CPL 3 itself, so ring 0
//! contains no instruction that returns.

use crate::memory::arena::Arena;
use crate::memory::layout::{HIGH, MONITOR, ring0};

/// The port on which the stub of `syscall` hands over. The stub of exception n uses port n.
pub const SYSCALL: u16 = 0xf0;
/// The port on which a patched `syscall` hands over, from CPL 3.
pub const PATCHED: u16 = 0xf1;
/// The port of unikernels' hypercalls, from CPL 3.
pub const HYPERCALL: u16 = 0xf2;

/// Selector of ring 0's code. The order is SYSRET's, which is never executed.
pub const KERNEL_CODE: u16 = 0x10;
/// Selector of the guest's stack and data.
pub const USER_DATA: u16 = 0x2b;
/// Selector of the guest's code.
pub const USER_CODE: u16 = 0x33;
/// Selector of the task state.
pub const TASK: u16 = 0x40;
/// Last byte of the task state: 104 bytes, a bit for each of 256 ports, and a closing byte of ones.
pub const TASK_LIMIT: u32 = 104 + 32;
/// Last byte of the segment descriptors.
pub const GDT_LIMIT: u16 = 0x4f;
/// Last byte of the exception gates: those of the 32 exceptions. Any other interrupt faults.
pub const IDT_LIMIT: u16 = 32 * 16 - 1;

const EXCEPTIONS: u8 = 32;
const BREAKPOINT: u8 = 3;

/// Writes descriptors, gates, stubs and the task state. Accessed and busy bits are set ahead of
/// time: the processor writes nothing here but frames on the stack.
pub fn lay_out(arena: &mut Arena) {
    let gdt = MONITOR + ring0::GDT;
    arena.set_word(gdt + 0x10, 0x00af_9b00_0000_ffff);
    arena.set_word(gdt + 0x18, 0x00cf_9300_0000_ffff);
    arena.set_word(gdt + 0x28, 0x00cf_f300_0000_ffff);
    arena.set_word(gdt + 0x30, 0x00af_fb00_0000_ffff);
    let task = HIGH + ring0::TSS;
    let busy_task = 0x8b_u64 << 40;
    let base = (task & 0xff_ffff) << 16 | (task >> 24 & 0xff) << 56;
    arena.set_word(gdt + 0x40, u64::from(TASK_LIMIT) | base | busy_task);
    arena.set_word(gdt + 0x48, task >> 32);
    lay_out_task(arena);
    for vector in 0..EXCEPTIONS {
        let offset = ring0::STUBS + u64::from(vector) * 16;
        let dpl = if vector == BREAKPOINT { 3_u64 << 45 } else { 0 };
        let stub = HIGH + offset;
        let selector = u64::from(KERNEL_CODE) << 16;
        let low = stub & 0xffff | selector | 0x8e_u64 << 40 | dpl | (stub >> 16 & 0xffff) << 48;
        let gate = MONITOR + ring0::IDT + u64::from(vector) * 16;
        arena.set_word(gate, low);
        arena.set_word(gate + 8, stub >> 32);
        write_stub(arena, offset, vector);
    }
    write_stub(arena, ring0::SYSCALL_STUB, SYSCALL.to_le_bytes()[0]);
}

/// `out imm8, al`, then `hlt`, which is never reached.
fn write_stub(arena: &mut Arena, offset: u64, port: u8) {
    let at = MONITOR + offset;
    arena.bytes_mut(at..at + 3).copy_from_slice(&[0xe6, port, 0xf4]);
}

fn lay_out_task(arena: &mut Arena) {
    let task = MONITOR + ring0::TSS;
    let stack = HIGH + ring0::STACK_TOP;
    arena.bytes_mut(task + 4..task + 12).copy_from_slice(&stack.to_le_bytes());
    let bitmap = 104;
    arena.bytes_mut(task + 0x66..task + 0x68).copy_from_slice(&104_u16.to_le_bytes());
    let ports = arena.bytes_mut(task + bitmap..task + u64::from(TASK_LIMIT) + 1);
    ports.fill(0xff);
    for open in [PATCHED, HYPERCALL] {
        ports[usize::from(open / 8)] &= !(1 << (open % 8));
    }
}
