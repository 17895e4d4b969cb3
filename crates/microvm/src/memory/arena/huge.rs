//! Which blocks of a clone's own memory the host may hold on huge pages.
//!
//! A huge page is spent whole, however little of it is touched. So only blocks are held on them that count as memory from
//! end to end: then a clone never takes more of the host than what it has mapped, and a limit of the one bounds the other.
//! Everywhere else the host is told to use small pages, whatever it does for others.
//!
//! A block of which a part is unmapped leaves its huge page at once. Linux alone would keep all of that until it is short of
//! memory: what is left of it moves.

use std::io;
use std::ops::Range;

use rustix::mm::{Advice, madvise};

use super::{Arena, Backing, Frozen, length_of};
use crate::memory::layout::{BLOCK, PAGE, USER_END, pages};

const MANY: usize = 1792;
const _: () = assert!(MANY as u64 * BLOCK == USER_END);

/// What of a clone may be on huge pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Huge {
    /// By block, whether it may.
    blocks: [bool; MANY],
    /// Whether more may come: no longer once they would be too many ranges.
    more: bool,
}

impl Default for Huge {
    fn default() -> Self {
        Self { blocks: [false; MANY], more: true }
    }
}

impl Huge {
    /// Ranges that there are at most: each is up to two mappings of the host's more, of which all machines of a monitor have
    /// 65 530 together.
    const MAX_RANGES: usize = 32;

    fn set(&mut self, range: &Range<u64>, whether: bool) {
        self.blocks[touches(range)].fill(whether);
    }

    /// Those blocks that a range touches, as ranges.
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

/// The numbers of those blocks.
fn touches(range: &Range<u64>) -> Range<usize> {
    let number = |block: u64| usize::try_from(block).unwrap_or(MANY).min(MANY);
    let (start, end) = (number(range.start / BLOCK), number(range.end.div_ceil(BLOCK)));
    start..if range.is_empty() { start } else { end }
}

impl Arena {
    /// Has the host hold blocks of a clone's own on small pages alone, where it begins. A host without huge pages refuses it.
    pub(super) fn begin_on_small(&self, frozen: &Frozen) {
        for zone in frozen.growth.iter().filter(|zone| !zone.is_empty()) {
            let _ = self.advise(zone, Advice::LinuxNoHugepage);
        }
    }

    /// Has the host hold whole blocks on huge pages, if they lie where a clone has memory of its own for it: all of them has to
    /// count as memory until [`Arena::hold_on_small`]. A wish: whoever makes too many ranges of it gets no more.
    pub(crate) fn hold_on_huge(&mut self, blocks: &Range<u64>) {
        let Backing::Clone(frozen) = &self.backing else { return };
        let blocks = blocks.start.max(frozen.huge)..blocks.end.min(frozen.growth[1].end);
        if blocks.is_empty() || !self.huge.more {
            return;
        }
        let mut huge = self.huge;
        huge.set(&blocks, true);
        if !huge.are_too_many() && self.advise(&blocks, Advice::LinuxHugepage).is_ok() {
            self.huge = huge;
        }
    }

    /// Before a range is given back: neither it nor what else is in the blocks of its ends is on huge pages any more. What the
    /// range itself holds may be lost.
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
            // Looking at what was never touched may have taken a huge page, too.
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
            // One was cut in two. What is on huge pages stays there, and has to move still where it is given back in part.
            self.end_advice()?;
            self.huge.more = false;
        }
        Ok(())
    }

    /// Has all be held on small pages again, when all memory of the clone's own was given back.
    ///
    /// # Errors
    /// When the host refuses.
    pub(crate) fn forget_huge(&mut self) -> io::Result<()> {
        if !self.huge.more || !self.huge.touched(&(0..USER_END)).is_empty() {
            self.end_advice()?;
            self.huge = Huge::default();
        }
        Ok(())
    }

    fn end_advice(&self) -> io::Result<()> {
        let Backing::Clone(frozen) = &self.backing else { return Ok(()) };
        self.advise(&(frozen.huge..frozen.growth[1].end), Advice::LinuxNoHugepage)
    }

    /// The pages of a range that are not zero, by address.
    fn copy(&self, range: Range<u64>) -> Vec<(u64, Vec<u8>)> {
        let all = pages(range).map(|page| (page, self.bytes(page..page + PAGE)));
        let filled = all.filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0));
        filled.map(|(page, bytes)| (page, bytes.to_vec())).collect()
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
    fn blocks_are_those_that_a_range_touches_and_those_beside_each_other_are_one_range() {
        let mut huge = Huge::default();
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
        for block in 3..=Huge::MAX_RANGES as u64 {
            assert!(!huge.are_too_many());
            huge.set(&((10 + 2 * block) * BLOCK..(11 + 2 * block) * BLOCK), true);
        }
        assert!(huge.are_too_many());
    }
}
