//! Where everything lies. A guest address, the guest's physical address and the offset in the arena
//! are the same number, so translating one is a bounds check.
//!
//! ```text
//!   0        64 KiB     64 MiB                         768 MiB               3.5 GiB     + 10 MiB
//!   │ never  │ programs │ stack · vdso · interpreter · │ mappings without an │ monitor's │
//!   │ mapped │ at fixed │ PIE, break, close to each    │ address             │ own pages │
//!   │        │ addresses│ other                        │                     │           │
//! ```
//!
//! The beginnings of the last two zones of a guest are drawn for each machine that is started:
//! [`Places`].

use std::io;
use std::ops::Range;

use rustix::rand::{GetRandomFlags, getrandom};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Bytes of a block: what one page table covers, and a huge page.
pub const BLOCK: u64 = 2 << 20;
/// End of a guest's mappings. With the monitor's pages it lies just below 4 GiB, where the
/// processor's interrupt controller and KVM have addresses of their own.
pub const USER_END: u64 = 0xe000_0000;
/// End of the addresses that `MAP_32BIT` asks for: `mmap(2)`.
pub const LOW_END: u64 = 2 << 30;
/// End of the lower half of the addresses. The processor cannot continue at an address beyond it
/// and below the upper half.
pub const USER_HALF_END: u64 = 1 << 47;
/// The first address that can be mapped: a null pointer with any small offset faults.
pub const USER_START: u64 = 0x1_0000;

/// Bytes of the first thread's stack. Nothing is mapped below it.
pub const STACK_BYTES: u64 = 8 << 20;
/// The lowest address of a stack.
const FIRST: u64 = 0x0400_0000;
/// Addresses at which a stack may begin, a block apart.
const FIRSTS: u64 = 256;
/// The lowest address of a position-independent program; the break follows it.
pub const PROGRAM: u64 = FIRST + PROGRAM_BEHIND;
/// End of the break.
pub const BREAK_END: u64 = 0x3000_0000;
/// Start of the zone for what is mapped without an address.
pub const MAP_START: u64 = 0x3000_0000;

/// Bytes from the stack's lowest address to the vDSO, to the dynamic linker, and to the program.
const VDSO_BEHIND: u64 = STACK_BYTES + PAGE;
const INTERPRETER_BEHIND: u64 = STACK_BYTES + BLOCK;
const PROGRAM_BEHIND: u64 = 16 << 20;

/// Addresses drawn for one machine. An address learnt in one machine is of little use against
/// another; clones have their origin's.
///
/// What lies close to something else shares a memory slot with it: KVM takes time and memory for
/// each slot of each clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// End of the stack's memory.
    pub stack_end: u64,
    /// Bytes of the stack above the first that is used: a multiple of 16.
    pub stack_gap: u64,
    /// Address of the shared object that the kernel provides (vDSO); the page before it is the one
    /// that it reads.
    pub vdso: u64,
    /// Address of the dynamic linker.
    pub interpreter: u64,
    /// Address of a position-independent program.
    pub program: u64,
    /// Bytes between the program and its break.
    pub break_gap: u64,
    /// Lowest address of mappings without an address.
    pub maps: u64,
}

impl Places {
    /// Draws addresses clear of `fixed`, the pages that a program is linked to. None where that
    /// leaves no room.
    ///
    /// # Errors
    /// When the host has no randomness.
    pub fn draw(fixed: &[Range<u64>]) -> io::Result<Option<Self>> {
        let clear = |first: &u64| {
            let all = *first..*first + PROGRAM_BEHIND;
            fixed.iter().all(|it| it.end <= all.start || all.end <= it.start)
        };
        let firsts: Vec<u64> =
            (0..FIRSTS).map(|block| FIRST + block * BLOCK).filter(clear).collect();
        if firsts.is_empty() {
            return Ok(None);
        }
        let mut random = [0; 16];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let mut left = u128::from_ne_bytes(random);
        let mut below = |many: u64| {
            let drawn = left % u128::from(many);
            left /= u128::from(many);
            u64::try_from(drawn).unwrap_or_default()
        };
        let first = firsts[usize::try_from(below(firsts.len() as u64)).unwrap_or_default()];
        Ok(Some(Self {
            stack_end: first + STACK_BYTES,
            stack_gap: below(4096) * 16,
            vdso: first + VDSO_BEHIND + below(480) * PAGE,
            interpreter: first + INTERPRETER_BEHIND,
            program: first + PROGRAM_BEHIND,
            break_gap: below(1024) * PAGE,
            maps: MAP_START + below(128) * BLOCK,
        }))
    }

    /// Whether a machine can have its vDSO there.
    pub(crate) fn can_have_vdso(at: u64) -> bool {
        (FIRST..BREAK_END).contains(&at) && at.is_multiple_of(PAGE)
    }
}

/// Start of the monitor's own pages: descriptor tables, stubs, the stack of ring 0, and all page
/// tables. They are part of the arena, so a reset restores them too.
pub const MONITOR: u64 = USER_END;
/// Bytes of the monitor's own pages.
pub const MONITOR_BYTES: u64 = 10 << 20;
/// Bytes of the whole arena.
pub const ARENA_BYTES: u64 = USER_END + MONITOR_BYTES;

/// Address of the monitor's first pages in ring 0.
pub const HIGH: u64 = 0xffff_ffff_8000_0000;
/// Offsets of the monitor's pages that ring 0 sees, from [`MONITOR`] as from [`HIGH`].
pub mod ring0 {
    /// Segment descriptors.
    pub const GDT: u64 = 0;
    /// Exception gates.
    pub const IDT: u64 = 0x1000;
    /// Task state, with the I/O bitmap.
    pub const TSS: u64 = 0x2000;
    /// One stub per exception, and the one for `syscall`.
    pub const STUBS: u64 = 0x3000;
    /// The stub of `syscall`, behind those of the 32 exceptions.
    pub const SYSCALL_STUB: u64 = STUBS + 0x800;
    /// End of the one page of stack.
    pub const STACK_TOP: u64 = 0x5000;
    /// Pages that ring 0 sees.
    pub const PAGES: u64 = 5;
}

/// Page tables of four levels. The lowest two are linear arrays, with one entry for each block and
/// each page.
pub mod tables {
    use super::MONITOR;

    /// What CR3 holds.
    pub const ROOT: u64 = MONITOR + 0x1_0000;
    /// Third level of the lower half.
    pub const LOW: u64 = MONITOR + 0x1_1000;
    /// Third, second and first level of ring 0's pages.
    pub const HIGH: [u64; 3] = [MONITOR + 0x1_2000, MONITOR + 0x1_3000, MONITOR + 0x1_4000];
    /// One entry per block.
    pub const BLOCKS: u64 = MONITOR + 0x2_0000;
    /// One entry per page.
    pub const PAGES: u64 = MONITOR + 0x20_0000;

    const _: () = assert!(BLOCKS + super::USER_END / super::BLOCK * 8 <= PAGES);
    const _: () = assert!(PAGES + super::USER_END / super::PAGE * 8 <= super::ARENA_BYTES);
}

/// Rounds up to a page.
#[must_use]
pub const fn page_up(address: u64) -> u64 {
    address.saturating_add(PAGE - 1) & !(PAGE - 1)
}

/// Rounds down to a page.
#[must_use]
pub const fn page_down(address: u64) -> u64 {
    address & !(PAGE - 1)
}

/// The pages of a range of whole pages, by their addresses.
pub fn pages(range: Range<u64>) -> impl Iterator<Item = u64> {
    (range.start / PAGE..range.end / PAGE).map(|page| page * PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_addresses_lie_in_their_zones_and_apart() {
        for _ in 0..2000 {
            let Places { stack_end, stack_gap, vdso, interpreter, program, break_gap, maps } =
                Places::draw(&[]).unwrap().unwrap();
            assert!(FIRST + STACK_BYTES <= stack_end);
            assert!(stack_gap < STACK_BYTES / 16 && stack_gap.is_multiple_of(16));
            assert!(stack_end < vdso && vdso + 16 * PAGE < interpreter);
            assert!(Places::can_have_vdso(vdso));
            // A linker of a few megabytes, a program of a hundred.
            assert!(interpreter + (4 << 20) <= program && PROGRAM <= program);
            assert!(program + break_gap + (128 << 20) <= BREAK_END);
            assert!(MAP_START <= maps && maps + (2560 << 20) <= USER_END);
            let blocks = [stack_end, interpreter, program, maps];
            assert!(blocks.iter().all(|start| start.is_multiple_of(BLOCK)));
        }
    }

    #[test]
    fn drawn_addresses_are_clear_of_a_programs_fixed_pages() {
        let last = FIRST + (FIRSTS - 1) * BLOCK;
        for fixed in [
            USER_START..0x40_0000,
            0x1000_0000..0x1000_3000,
            0x1000_0000..0x1000_0000 + (300 << 20),
            USER_START..last - 1,
            FIRST + PROGRAM_BEHIND..USER_END,
        ] {
            for _ in 0..200 {
                let Places { stack_end, .. } =
                    Places::draw(std::slice::from_ref(&fixed)).unwrap().unwrap();
                let all = stack_end - STACK_BYTES..stack_end - STACK_BYTES + PROGRAM_BEHIND;
                assert!(all.end <= fixed.start || fixed.end <= all.start, "{all:x?} {fixed:x?}");
            }
        }
        let everywhere = [FIRST..last, last + PAGE..USER_END];
        assert_eq!(Places::draw(&everywhere).unwrap(), None);
    }
}
