//! Mappings that grow and shrink: `mremap` and the break.

use std::ops::Range;

use rustix::io::Errno;

use super::promises::PROMISED;
use super::{Pages, Place, Space};
use crate::memory::arena::length_of;
use crate::memory::layout::{BLOCK, BREAK_END, PAGE, USER_END, page_up, pages};
use crate::memory::rights::Rights;

impl Space {
    /// `mremap`, with MREMAP_MAYMOVE or without; never to an address of the caller's choice. New
    /// pages are zero, also where a file is shown.
    ///
    /// # Errors
    /// Those of `mremap(2)`.
    pub fn remap(&mut self, start: u64, old: u64, new: u64, may_move: bool) -> Result<u64, Errno> {
        let (old, new) = (page_up(old), page_up(new));
        if !start.is_multiple_of(PAGE) || new == 0 || old == 0 {
            return Err(Errno::INVAL);
        }
        let end = start.checked_add(old).filter(|end| *end <= USER_END).ok_or(Errno::FAULT)?;
        let (region, rights) = self.state.regions.at(start).ok_or(Errno::FAULT)?;
        if new <= old {
            if new < old {
                self.release(start + new..end)?;
            }
            return Ok(start);
        }
        if region.end < end {
            return Err(Errno::FAULT);
        }
        // Each file is a mapping of its own, as on Linux.
        let file = self.state.files.whole(&(start..end)).map_err(|_| Errno::FAULT)?;
        let shared = self.state.shared.cover(start..end);
        if !shared && self.state.shared.touch(start..end) {
            return Err(Errno::FAULT);
        }
        if file.is_some_and(|file| file.offset.checked_add(new).is_none()) {
            return Err(Errno::INVAL);
        }
        let pages = if file.is_some() { Pages::AtOnce } else { Pages::OnTouch };
        let grown = start.checked_add(new).filter(|grown| *grown <= USER_END);
        if let Some(grown) = grown.filter(|grown| !self.state.regions.touch(end..*grown)) {
            self.grant(pages, end..grown, rights)?;
            if let Some(file) = file {
                self.show(start..grown, file);
            }
            if shared {
                self.share(start..grown);
            }
            return Ok(start);
        }
        if !may_move {
            return Err(Errno::NOMEM);
        }
        // One region for the new range, and one for the rest of a region that is cut in two.
        self.check_count(2)?;
        // The old range stops counting.
        let credit = self.state.counted_in(start..end);
        let to = Place::Hint(0);
        let moved =
            self.with_credit((credit, old), |space| space.map_for(pages, to, new, rights))?;
        if rights.count() {
            self.carry(start..end, moved)?;
        }
        self.release(start..end)?;
        if let Some(file) = file {
            self.show(moved..moved + new, file);
        }
        if shared {
            self.share(moved..moved + new);
        }
        Ok(moved)
    }

    /// Moves the bytes of a range of one region to another, and makes their pages present there.
    fn carry(&mut self, from: Range<u64>, to: u64) -> Result<(), Errno> {
        for part in self.state.present(from.clone()) {
            for start in (part.start..part.end).step_by(length_of(&(0..BLOCK))) {
                let block = start..part.end.min(start + BLOCK);
                for page in pages(block.clone()) {
                    let copy: Vec<u8> = self.arena.bytes(page..page + PAGE).to_vec();
                    // A page of zeros stays untouched, and unallocated.
                    if copy.iter().any(|byte| *byte != 0) {
                        let page = to + (page - from.start);
                        if self.state.promised.touch(page..page + PAGE) {
                            self.make_present(page..page + PAGE)?;
                        }
                        self.arena.bytes_mut(page..page + PAGE).copy_from_slice(&copy);
                    }
                }
                // Given back at once, so that not all of it exists, or counts, twice.
                self.arena.discard(block.clone()).map_err(super::refused)?;
                self.state.promised.set(block, PROMISED);
            }
        }
        Ok(())
    }

    /// Sets the start of the break, behind the program. Once.
    pub fn set_break(&mut self, start: u64) {
        self.state.break_start = page_up(start);
        self.state.break_now = self.state.break_start;
    }

    /// `brk`: moves the break if that is possible; returns its end.
    pub fn move_break(&mut self, wanted: u64) -> u64 {
        let (start, now) = (self.state.break_start, self.state.break_now);
        if wanted < start || wanted > BREAK_END {
            return now;
        }
        let (old, new) = (page_up(now), page_up(wanted));
        let moved = if new > old {
            if self.state.regions.touch(old..new) {
                return now;
            }
            self.grant(Pages::OnTouch, old..new, Rights::WRITE)
        } else {
            self.release(new..old)
        };
        if moved.is_ok() {
            self.state.break_now = wanted;
        }
        self.state.break_now
    }
}
