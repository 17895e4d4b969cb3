//! The guest's page tables, written by the monitor alone.
//!
//! Every address maps to itself. Each block has a frame for its page entries at a fixed offset, so
//! a change of rights never allocates; a block with the same rights throughout is a huge page, and
//! leaves its frame unused. Accessed and dirty bits are set ahead of time, so that only this module
//! writes to a table.

use std::io;
use std::ops::Range;

use crate::memory::arena::Arena;
use crate::memory::layout::{
    BLOCK, HIGH, MONITOR, PAGE, USER_END, page_down, pages, ring0, tables,
};
use crate::memory::rights::Rights;

const ACCESSED: u64 = 0x20;
const DIRTY: u64 = 0x40;
const HUGE: u64 = 0x80;
/// A table's own entry allows everything; the last level decides. Supervisor tables lack the user
/// bit (4).
const TABLE: u64 = 0x27;
const SUPERVISOR_TABLE: u64 = 0x23;

/// Writes the levels that never change: two for the guest, four for ring 0's five pages.
pub fn lay_out(arena: &mut Arena) {
    let [third, second, first] = tables::HIGH;
    arena.set_word(tables::ROOT, tables::LOW | TABLE);
    arena.set_word(tables::ROOT + entry_of(HIGH, 39), third | SUPERVISOR_TABLE);
    arena.set_word(third + entry_of(HIGH, 30), second | SUPERVISOR_TABLE);
    arena.set_word(second + entry_of(HIGH, 21), first | SUPERVISOR_TABLE);
    for gigabyte in 0..USER_END.div_ceil(1 << 30) {
        let blocks = tables::BLOCKS + gigabyte * PAGE;
        arena.set_word(tables::LOW + gigabyte * 8, blocks | TABLE);
    }
    let of_user = Rights::READ.entry_flags() & 4;
    for page in 0..ring0::PAGES {
        let rights = match page * PAGE {
            ring0::STUBS => Rights::EXECUTE,
            ring0::GDT | ring0::IDT => Rights::READ,
            _ => Rights::WRITE,
        };
        let flags = rights.entry_flags() & !of_user;
        arena.set_word(first + page * 8, (MONITOR + page * PAGE) | flags);
    }
}

fn entry_of(address: u64, shift: u32) -> u64 {
    (address >> shift & 511) * 8
}

/// Gives whole pages of the guest these rights. A caller that takes a right away flushes the range
/// afterwards; where a huge page has to be split, it is flushed here.
///
/// # Errors
/// When the host refuses the flush.
pub fn set(arena: &mut Arena, range: Range<u64>, rights: Rights) -> io::Result<()> {
    let flags = rights.entry_flags();
    let mut block = range.start & !(BLOCK - 1);
    while block < range.end {
        let inside = range.start.max(block)..range.end.min(block + BLOCK);
        let whole = inside.end - inside.start == BLOCK;
        let slot = tables::BLOCKS + (block / BLOCK) * 8;
        if whole {
            let entry = if flags == 0 { 0 } else { block | flags | HUGE };
            arena.set_word(slot, entry);
        } else {
            open(arena, block)?;
            for page in pages(inside) {
                arena.set_word(page_entry(page), if flags == 0 { 0 } else { page | flags });
            }
        }
        block += BLOCK;
    }
    Ok(())
}

/// Clears the accessed and dirty bits that are set ahead of time, page by page: from now on the
/// processor marks what it uses. For a machine that has not run yet.
///
/// # Errors
/// When the host refuses to change a huge page.
pub fn forget_use(arena: &mut Arena, range: Range<u64>) -> io::Result<()> {
    for block in (range.start / BLOCK..range.end.div_ceil(BLOCK)).map(|block| block * BLOCK) {
        if arena.word(tables::BLOCKS + (block / BLOCK) * 8) != 0 {
            open(arena, block)?;
        }
    }
    for (_, slot) in entries(arena, range) {
        arena.set_word(slot, arena.word(slot) & !(ACCESSED | DIRTY));
    }
    Ok(())
}

/// The pages used since [`forget_use`], and whether each was written.
pub fn used(arena: &Arena, range: Range<u64>) -> Vec<(u64, bool)> {
    let marks = entries(arena, range).into_iter().map(|(page, slot)| (page, arena.word(slot)));
    let used = marks.filter(|(_, marks)| marks & ACCESSED != 0);
    used.map(|(page, marks)| (page, marks & DIRTY != 0)).collect()
}

/// The guest's pages that have an entry each, with the address of the entry.
fn entries(arena: &Arena, range: Range<u64>) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for block in (range.start / BLOCK..range.end.div_ceil(BLOCK)).map(|block| block * BLOCK) {
        let entry = arena.word(tables::BLOCKS + (block / BLOCK) * 8);
        if entry == 0 || entry & HUGE != 0 {
            continue;
        }
        let inside = range.start.max(block)..range.end.min(block + BLOCK);
        let entries = pages(inside).map(|page| (page, page_entry(page)));
        found.extend(entries.filter(|(_, slot)| arena.word(*slot) != 0));
    }
    found
}

/// Splits a block into pages.
fn open(arena: &mut Arena, block: u64) -> io::Result<()> {
    let slot = tables::BLOCKS + (block / BLOCK) * 8;
    let entry = arena.word(slot);
    if entry != 0 && entry & HUGE == 0 {
        return Ok(());
    }
    let flags = if entry == 0 { 0 } else { entry & !HUGE & !(block) };
    for page in pages(block..block + BLOCK) {
        arena.set_word(page_entry(page), if flags == 0 { 0 } else { page | flags });
    }
    arena.set_word(slot, page_down(page_entry(block)) | TABLE);
    if entry == 0 { Ok(()) } else { arena.flush(block..block + BLOCK) }
}

const fn page_entry(address: u64) -> u64 {
    tables::PAGES + (address / PAGE) * 8
}

/// The entry that the processor finds for an address of the guest; 0 for none.
#[cfg(test)]
pub(crate) fn entry(arena: &Arena, address: u64) -> u64 {
    let block = arena.word(tables::BLOCKS + (address / BLOCK) * 8);
    match block {
        0 => 0,
        huge if huge & HUGE != 0 => (huge & !HUGE) + page_down(address & (BLOCK - 1)),
        _ => arena.word(page_entry(address)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RIGHTS: [Rights; 4] = [Rights::NONE, Rights::READ, Rights::WRITE, Rights::EXECUTE];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Three blocks, each page written as often as the case says.
        #[test]
        fn a_page_has_the_rights_it_was_last_given(
            steps in prop::collection::vec((0u64..1536, 1u64..1536, 0usize..4), 1..40),
        ) {
            let mut arena = Arena::new().unwrap();
            lay_out(&mut arena);
            let mut model = vec![Rights::NONE; 1536];
            let base = 4 * BLOCK;
            for (start, length, rights) in steps {
                let end = (start + length).min(1536);
                let rights = RIGHTS[rights];
                set(&mut arena, base + start * PAGE..base + end * PAGE, rights).unwrap();
                for page in start..end {
                    model[usize::try_from(page).unwrap()] = rights;
                }
            }
            for (page, rights) in model.iter().enumerate() {
                let address = base + page as u64 * PAGE;
                let flags = rights.entry_flags();
                let expected = if flags == 0 { 0 } else { address | flags };
                prop_assert_eq!(entry(&arena, address), expected, "page {}", page);
            }
        }
    }
}
