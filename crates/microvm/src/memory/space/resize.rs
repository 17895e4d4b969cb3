//! Mappings that grow and shrink: `mremap` and the break.

use std::ops::Range;

use rustix::io::Errno;

use super::promises::Absent;
use super::{Pages, Place, Replaced, Space};
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
        // Where it may move, it does so rather than fail for a template's hole.
        let may_grow = |grown: &u64| {
            *grown <= USER_END
                && !self.state.regions.touch(end..*grown)
                && (!may_move || self.cost_of_holes(&(end..*grown), rights).is_some())
        };
        if let Some(grown) = start.checked_add(new).filter(may_grow) {
            self.grant(Replaced::default(), pages, end..grown, rights)?;
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
        let replaced = Replaced { counted: self.state.counted_in(start..end), mapped: old };
        let moved = self.map_instead(replaced, pages, Place::Hint(0), new, rights)?;
        let carried = if rights.count() { self.carry(start..end, moved) } else { Ok(()) };
        let carried = carried.and_then(|()| self.release(start..end));
        // Half moved, it is neither what the program nor what the counts take it for.
        self.exhausted |= carried.is_err();
        carried?;
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
        for start in (from.start..from.end).step_by(length_of(&(0..BLOCK))) {
            let block = start..from.end.min(start + BLOCK);
            for page in self.state.present(block.clone()).into_iter().flat_map(pages) {
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
            // Given back at once, so that not all of it exists, or counts, twice; and with one call
            // of the host's, however many parts of it are present.
            self.arena.discard(block.clone()).map_err(super::refused)?;
            self.state.promised.set(block, Absent::Promised);
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
            self.grant(Replaced::default(), Pages::OnTouch, old..new, Rights::WRITE)
        } else {
            self.release(new..old)
        };
        if moved.is_ok() {
            self.state.break_now = wanted;
        }
        self.state.break_now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::layout::{MAP_START, PROGRAM};

    /// A mapping may land where its template held data: zeros of the clone's own then count there.
    #[test]
    fn what_moves_counts_the_zeros_on_which_it_lands() {
        let mut origin = Space::new().unwrap();
        let template = MAP_START..MAP_START + 400 * PAGE;
        origin.map(Place::Fixed(template.start), 400 * PAGE, Rights::WRITE).unwrap();
        origin.arena.bytes_mut(template.start + 150 * PAGE..template.end).fill(7);
        let (frozen, state) = origin.freeze().unwrap();
        for (limit, moves) in [(300, false), (400, true)] {
            let mut space = Space::clone_of(&frozen, state.clone()).unwrap();
            space.unmap(template.start, 400 * PAGE).unwrap();
            // No other addresses are left.
            let rest = USER_END - template.end;
            space.map(Place::Fixed(template.end), rest, Rights::NONE).unwrap();
            space.limit = limit * PAGE;
            space.map(Place::Fixed(PROGRAM), 200 * PAGE, Rights::WRITE).unwrap();
            space.write(PROGRAM, 200 * PAGE).unwrap().fill(1);
            space.map(Place::Fixed(PROGRAM + 200 * PAGE), PAGE, Rights::NONE).unwrap();
            let moved = space.remap(PROGRAM, 200 * PAGE, 350 * PAGE, true);
            assert_eq!(moved.is_ok(), moves, "{moved:?}");
            let now = moved.unwrap_or(PROGRAM);
            assert!(space.arena.bytes(now..now + 200 * PAGE).iter().all(|byte| *byte == 1));
            assert!(!space.is_exhausted());
            assert!(space.counted() <= limit * PAGE, "{:#x}", space.counted() / PAGE);
        }
    }
}
