//! Where things are. A guest address, the guest's physical address and the offset in the arena are the same number, so
//! translating one is a bounds check.
//!
//! ```text
//!   0          64 KiB     64 MiB      128 MiB  256 MiB  384 MiB                                   2 GiB      + 8 MiB
//!   │ never    │ programs │ stack     │ interp │ PIE,   │ everything that is mapped              │ monitor's │
//!   │ mapped   │ at fixed │ (top of   │ reter  │ break  │ without an address                     │ own pages │
//! ```

use std::ops::Range;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Bytes of a block: what one page table covers, and a huge page.
pub const BLOCK: u64 = 2 << 20;
/// End of what a guest can have mapped.
pub const USER_END: u64 = 2 << 30;
/// End of the addresses that a program can have at all. A processor does not start at what is neither below it nor in the
/// upper half.
pub const USER_HALF_END: u64 = 1 << 47;
/// The first address that can be mapped: a null pointer with any small offset faults.
pub const USER_START: u64 = 0x1_0000;

/// Top of the stack, and its greatest length. Below it nothing is mapped.
pub const STACK_TOP: u64 = 0x07e0_0000;
/// Bytes of the stack.
pub const STACK_BYTES: u64 = 8 << 20;
/// Where the shared object is that the kernel provides; a page for it to read from lies before it.
pub const VDSO: u64 = 0x07f0_0000;
/// Where the dynamic linker is loaded.
pub const INTERPRETER: u64 = 0x0800_0000;
/// Where position-independent programs are loaded; the break follows them.
pub const PROGRAM: u64 = 0x1000_0000;
/// End of the break.
pub const BREAK_END: u64 = 0x1700_0000;
/// Start of the zone for what is mapped without an address.
pub const MAP_START: u64 = 0x1800_0000;

/// The monitor's own pages begin here: descriptor tables, stubs, the ring-0 stack, and all page tables. They are part of
/// the arena so that a reset restores them like everything else.
pub const MONITOR: u64 = USER_END;
/// Bytes of the monitor's own pages.
pub const MONITOR_BYTES: u64 = 8 << 20;
/// Bytes of the whole arena.
pub const ARENA_BYTES: u64 = USER_END + MONITOR_BYTES;

/// Where ring 0 sees the monitor's first pages.
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
    /// Stub of `syscall`, behind those of the 32 exceptions.
    pub const SYSCALL_STUB: u64 = STUBS + 0x800;
    /// End of the one page of stack.
    pub const STACK_TOP: u64 = 0x5000;
    /// Pages that ring 0 sees.
    pub const PAGES: u64 = 5;
}

/// Page tables: of four levels, the lowest two are linear arrays with one entry per block and per page.
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
