//! Mappings that grow and shrink: `mremap` and the break.

use rustix::io::Errno;

use super::{Place, Space};
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
        self.keep_promises(&(start..end));
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
        let grown = start.checked_add(new).filter(|grown| *grown <= USER_END);
        if let Some(grown) = grown.filter(|grown| !self.state.regions.touch(end..*grown)) {
            self.grant(end..grown, rights)?;
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
        let credit = if rights.count() { old } else { 0 };
        let moved = self.with_credit(credit, |space| space.map(Place::Hint(0), new, rights))?;
        for block in (0..old.div_ceil(BLOCK)).map(|block| block * BLOCK) {
            let block = block..old.min(block + BLOCK);
            for page in pages(block.clone()) {
                let copy: Vec<u8> = self.arena.bytes(start + page..start + page + PAGE).to_vec();
                // A page of zeros stays untouched, and unallocated.
                if copy.iter().any(|byte| *byte != 0) {
                    let to = moved + page;
                    self.arena.bytes_mut(to..to + PAGE).copy_from_slice(&copy);
                }
            }
            // Given back at once, so that not all of it exists twice.
            self.arena.discard(start + block.start..start + block.end).map_err(super::refused)?;
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
            self.grant(old..new, Rights::WRITE)
        } else {
            self.release(new..old)
        };
        if moved.is_ok() {
            self.state.break_now = wanted;
        }
        self.state.break_now
    }
}
