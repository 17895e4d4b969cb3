//! The blocks of a clone's own memory that the host may hold on huge pages.
//!
//! A huge page takes all its memory, however little of it is touched. So only blocks that count as
//! memory from end to end may have one: a clone then never takes more of the host than it has
//! mapped, and a limit of the one bounds the other. For all other blocks the host is told to use
//! small pages.
//!
//! A block leaves its huge page as soon as a part of it is unmapped. Linux alone would keep the
//! whole page until it is short of memory; here the rest of the block is moved to small pages.

use std::io;
use std::ops::Range;

use rustix::mm::{Advice, madvise};

use super::{Arena, Backing, FrozenArena, length_of};
use crate::memory::layout::{BLOCK, PAGE, USER_END, pages};

const MANY: usize = 1792;
const _: () = assert!(MANY as u64 * BLOCK == USER_END);

/// The blocks of a clone that may be on huge pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct HugeBlocks {
    /// For each block, whether it may be on a huge page.
    blocks: [bool; MANY],
    /// Whether further blocks are accepted: not after the ranges became too many.
    more: bool,
}

impl Default for HugeBlocks {
    fn default() -> Self {
        Self { blocks: [false; MANY], more: true }
    }
}

impl HugeBlocks {
    /// Ranges of such blocks. Each may split two mappings of the host, of which all machines of a
    /// monitor have 65 530 together.
    const MAX_RANGES: usize = 32;

    fn set(&mut self, range: &Range<u64>, whether: bool) {
        self.blocks[touches(range)].fill(whether);
    }

    /// The blocks that a range touches, as ranges.
    fn touched(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut found: Vec<Range<u64>> = Vec::new();
        let touched = touches(range);
        let blocks = (touched.start as u64..).zip(&self.blocks[touched]);
        for start in blocks.filter(|(_, held)| **held).map(|(block, _)| block * BLOCK) {
            match found.last_mut() {
                Some(last) if last.end == start => last.end += BLOCK,
                _ => found.push(start..start + BLOCK),
            }
        }
        found
    }

    fn are_too_many(&self) -> bool {
        self.touched(&(0..USER_END)).len() > Self::MAX_RANGES
    }
}

/// The numbers of the blocks that a range touches.
fn touches(range: &Range<u64>) -> Range<usize> {
    let number = |block: u64| usize::try_from(block).unwrap_or(MANY).min(MANY);
    let (start, end) = (number(range.start / BLOCK), number(range.end.div_ceil(BLOCK)));
    start..if range.is_empty() { start } else { end }
}

impl Arena {
    /// Blocks that leave their huge pages at a time, at least: the search for what they leave out
    /// takes about as long.
    const LEAVE: usize = 16;

    /// Has the host hold a clone's own memory on small pages, when the clone begins. A host without
    /// huge pages refuses that.
    pub(super) fn begin_on_small(&self, frozen: &FrozenArena) {
        for zone in &frozen.own {
            let _ = self.advise(zone, Advice::LinuxNoHugepage);
        }
    }

    /// Has the host hold whole blocks on huge pages, where a clone has memory of its own. All of
    /// them count as memory until [`Arena::hold_on_small`]. Only a wish: a guest that makes too
    /// many ranges gets no more.
    pub(crate) fn hold_on_huge(&mut self, blocks: &Range<u64>) {
        let Backing::Clone(frozen) = &self.backing else { return };
        let blocks = blocks.start.max(frozen.huge)..blocks.end;
        if blocks.is_empty() || !self.huge.more {
            return;
        }
        let mut huge = self.huge;
        huge.set(&blocks, true);
        if !huge.are_too_many() && self.advise(&blocks, Advice::LinuxHugepage).is_ok() {
            self.huge = huge;
        }
    }

    /// Takes the blocks that a range touches off their huge pages, before the range is given back.
    /// The range's own bytes may be lost.
    ///
    /// # Errors
    /// When the host refuses.
    pub(crate) fn hold_on_small(&mut self, range: &Range<u64>) -> io::Result<()> {
        let touched = self.huge.touched(range);
        if touched.is_empty() {
            return Ok(());
        }
        for blocks in touched {
            let kept = [blocks.start..range.start, range.end..blocks.end];
            let kept = kept.map(|part| (!part.is_empty()).then(|| self.copy(part)));
            // Reading a page that was never touched may have taken a huge page, too.
            let ends = [blocks.start, blocks.end - BLOCK].into_iter().zip(&kept);
            for (block, _) in ends.filter(|(_, kept)| kept.is_some()) {
                self.discard(block..block + BLOCK)?;
            }
            let advised = self.advise(&blocks, Advice::LinuxNoHugepage);
            for (page, bytes) in kept.into_iter().flatten().flatten() {
                self.bytes_mut(page..page + PAGE).copy_from_slice(&bytes);
            }
            advised?;
            self.huge.set(&blocks, false);
        }
        if self.huge.more && self.huge.are_too_many() {
            // A range was split. Blocks already on huge pages stay, and still move when they are
            // given back in part.
            self.end_advice()?;
            self.huge.more = false;
        }
        Ok(())
    }

    /// Moves blocks that a clone holds on huge pages to small ones, and leaves out the pages of
    /// zeros: blocks that have any, until they are [`Self::LEAVE`] and leave out `wanted` bytes
    /// where `counts` says so. Returns whether there was any such block.
    ///
    /// # Errors
    /// When the host refuses; its bytes are what they were, unless it refused their memory.
    pub(crate) fn leave_huge(
        &mut self,
        wanted: u64,
        counts: impl Fn(&Range<u64>) -> bool,
    ) -> io::Result<bool> {
        let blocks = self.huge.touched(&(0..USER_END));
        let (mut moved, mut left_out) = (0, 0);
        for start in blocks.iter().flat_map(|it| (it.start..it.end).step_by(length_of(&(0..BLOCK))))
        {
            let block = start..start + BLOCK;
            if moved >= Self::LEAVE && left_out >= wanted {
                break;
            }
            let zeros = BLOCK - self.filled_pages(block.clone()).count() as u64 * PAGE;
            if zeros == 0 {
                continue;
            }
            moved += 1;
            left_out += if counts(&block) { zeros } else { 0 };
            let kept = self.copy(block.clone());
            self.discard(block.clone())?;
            let advised = self.advise(&block, Advice::LinuxNoHugepage);
            for (page, bytes) in kept {
                self.bytes_mut(page..page + PAGE).copy_from_slice(&bytes);
            }
            advised?;
            self.huge.set(&block, false);
        }
        Ok(moved > 0)
    }

    /// Has the host hold everything on small pages again, when all memory of the clone's own was
    /// given back.
    ///
    /// # Errors
    /// When the host refuses.
    pub(crate) fn forget_huge(&mut self) -> io::Result<()> {
        if !self.huge.more || !self.huge.touched(&(0..USER_END)).is_empty() {
            self.end_advice()?;
            self.huge = HugeBlocks::default();
        }
        Ok(())
    }

    fn end_advice(&self) -> io::Result<()> {
        let Backing::Clone(frozen) = &self.backing else { return Ok(()) };
        self.advise(&(frozen.huge..USER_END), Advice::LinuxNoHugepage)
    }

    /// The pages of a range that are not zero, by address.
    fn copy(&self, range: Range<u64>) -> Vec<(u64, Vec<u8>)> {
        self.filled_pages(range).map(|(page, bytes)| (page, bytes.to_vec())).collect()
    }

    fn filled_pages(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &[u8])> {
        let all = pages(range).map(|page| (page, self.bytes(page..page + PAGE)));
        all.filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0))
    }

    fn advise(&self, range: &Range<u64>, advice: Advice) -> io::Result<()> {
        let (at, length) = (self.at(range).cast(), length_of(range));
        // SAFETY: says how the range is to be held, and changes nothing in it.
        Ok(unsafe { madvise(at, length, advice) }?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_blocks_of_a_range_are_one_range() {
        let mut huge = HugeBlocks::default();
        huge.set(&(BLOCK..3 * BLOCK), true);
        huge.set(&(4 * BLOCK..5 * BLOCK), true);
        huge.set(&(USER_END - BLOCK..USER_END), true);
        let all = [BLOCK..3 * BLOCK, 4 * BLOCK..5 * BLOCK, USER_END - BLOCK..USER_END];
        assert_eq!(huge.touched(&(0..u64::MAX)), all);
        assert_eq!(
            huge.touched(&(2 * BLOCK + 1..4 * BLOCK + 1)),
            [2 * BLOCK..3 * BLOCK, all[1].clone()]
        );
        assert_eq!(huge.touched(&(3 * BLOCK..4 * BLOCK)), []);
        assert_eq!(huge.touched(&(BLOCK + 5..BLOCK + 5)), []);
        huge.set(&(2 * BLOCK + 5..2 * BLOCK + 6), false);
        assert_eq!(huge.touched(&(0..3 * BLOCK)), vec![BLOCK..2 * BLOCK]);
        // There are three.
        for block in 3..=HugeBlocks::MAX_RANGES as u64 {
            assert!(!huge.are_too_many());
            huge.set(&((10 + 2 * block) * BLOCK..(11 + 2 * block) * BLOCK), true);
        }
        assert!(huge.are_too_many());
    }
}
