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
use crate::layout::{BLOCK, PAGE, USER_END, pages};

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
    const MOST_RANGES: usize = 32;

    fn set(&mut self, range: &Range<u64>, whether: bool) {
        for (at, block) in (0..).zip(&mut self.blocks) {
            if touches(at, range) {
                *block = whether;
            }
        }
    }

    /// Those blocks that a range touches, as ranges.
    fn touched(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut found: Vec<Range<u64>> = Vec::new();
        for (at, block) in (0..).zip(&self.blocks) {
            if !block || !touches(at, range) {
                continue;
            }
            match found.last_mut() {
                Some(last) if last.end == at * BLOCK => last.end += BLOCK,
                _ => found.push(at * BLOCK..(at + 1) * BLOCK),
            }
        }
        found
    }

    fn are_too_many(&self) -> bool {
        self.touched(&(0..USER_END)).len() > Self::MOST_RANGES
    }
}

fn touches(block: u64, range: &Range<u64>) -> bool {
    block * BLOCK < range.end && range.start < (block + 1) * BLOCK
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
        for blocks in self.huge.touched(range) {
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
