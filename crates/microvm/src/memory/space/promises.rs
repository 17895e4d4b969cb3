//! Memory that is mapped and has no pages yet. It counts for nothing until it is touched.
//!
//! ```text
//!   mmap ──┬── within the limit ───► present: in the page tables, counts
//!          │                           ▲ a touch, or a call that   │ no room is left, and it
//!          │                           │ writes there              ▼ was never touched
//!          └── beyond the limit ───► promised: mapped, and not in the page tables
//! ```
//!
//! So a program may map far more than it touches, as on Linux, and one that stays within its limit
//! takes no fault for that. Where present memory reaches the limit, what was never touched is taken
//! back ([`Space::take_back`]). Where that is not enough, the process ends: [`Space::is_exhausted`].
//!
//! Of a thread's stack (`MAP_STACK`, reserved without rights and then made writable) only the upper
//! end is present from the start. A thread touches hardly one of its eight megabytes.

use std::io;
use std::ops::Range;

use rustix::io::Errno;

use super::{Space, SpaceState, refused};
use crate::memory::layout::{PAGE, USER_END, page_down, page_up};
use crate::memory::regions::Regions;
use crate::memory::rights::Rights;
use crate::memory::tables;

/// Most bytes that one touch supplies, and bytes of a stack that are present from the start.
const STEP: u64 = 256 << 10;
/// A touch supplies at most this part of the room that is left, because pages beside it may never
/// be touched.
const PART: u64 = 64;
/// Marks of a stack that is only reserved, and of promised memory.
pub(super) const RESERVED: Rights = Rights::NONE;
pub(super) const PROMISED: Rights = Rights::WRITE;

impl SpaceState {
    /// Bytes that count as memory: those that are present.
    pub(crate) fn counted(&self) -> u64 {
        self.regions.counted() - self.promised.counted()
    }

    /// Bytes of `range` that count as memory.
    pub(super) fn counted_in(&self, range: Range<u64>) -> u64 {
        self.regions.counted_in(range.clone()) - self.promised.counted_in(range)
    }

    /// The parts of `range` that are not promised.
    pub(crate) fn present(&self, range: Range<u64>) -> Vec<Range<u64>> {
        self.promised.gaps(range)
    }
}

impl Space {
    /// A reserved range that gets rights of any kind is no reserved stack any more.
    pub(super) fn end_reservations(&mut self, range: &Range<u64>) {
        let marks = self.state.promised.inside(range.clone());
        let reserved: Vec<_> = marks.filter(|(_, mark)| *mark == RESERVED).collect();
        for (part, _) in reserved {
            self.state.promised.clear(part);
        }
    }

    /// Notes that a range just mapped without rights is a thread's stack.
    pub(crate) fn reserve_stack(&mut self, range: Range<u64>) {
        self.state.promised.set(range, RESERVED);
    }

    /// The part of a stack that stays promised when the stack gets its rights; empty if `range` is
    /// no such stack.
    pub(super) fn lower_stack(&self, range: &Range<u64>, rights: Rights) -> Range<u64> {
        let (mut stacks, mut regions) =
            (self.state.promised.inside(range.clone()), self.state.regions.inside(range.clone()));
        let is_stack = stacks.next() == Some((range.clone(), RESERVED))
            && regions.next() == Some((range.clone(), Rights::NONE));
        if !is_stack || rights != Rights::WRITE {
            return range.start..range.start;
        }
        range.start..range.end.saturating_sub(STEP).max(range.start)
    }

    /// Supplies the promised memory at an address that the guest touched. Returns whether the guest
    /// may go on: the page was promised, it has rights, and there was room.
    pub(crate) fn supply(&mut self, address: u64) -> bool {
        let page = page_down(address);
        let Some((part, PROMISED)) = self.state.promised.at(page) else { return false };
        let Some((region, rights)) = self.state.regions.at(page) else { return false };
        if rights.entry_flags() == 0 {
            return false;
        }
        // Where there is none, the promise below fails.
        let _ = self.make_room(PAGE);
        let step = 1 << (self.most_room() / PART).clamp(PAGE, STEP).ilog2();
        let start = page & !(step - 1);
        let end = (start + step).min(part.end).min(region.end);
        self.keep_promises(start.max(part.start).max(region.start)..end).is_ok()
    }

    /// Makes the promised memory of a range present.
    ///
    /// # Errors
    /// When there is no room: the space is exhausted.
    pub(super) fn keep_promises(&mut self, range: Range<u64>) -> Result<(), Errno> {
        let range = page_down(range.start)..page_up(range.end).min(USER_END);
        let promised = self.state.promised.inside(range);
        let parts: Vec<_> = promised.filter(|(_, mark)| *mark == PROMISED).collect();
        for (part, _) in parts {
            if let Err(errno) = self.make_room(part.end - part.start) {
                self.exhausted = true;
                return Err(errno);
            }
            self.make_present(part)?;
        }
        Ok(())
    }

    /// Enters promised memory into the page tables.
    pub(super) fn make_present(&mut self, range: Range<u64>) -> Result<(), Errno> {
        self.state.promised.clear(range.clone());
        let parts: Vec<_> = self.state.regions.inside(range).collect();
        parts.into_iter().try_for_each(|(part, rights)| self.enter(part, rights))
    }

    /// Takes present memory that holds nothing, and promises it.
    pub(super) fn promise(&mut self, range: Range<u64>) -> io::Result<()> {
        self.arena.hold_on_small(&range)?;
        self.state.promised.set(range.clone(), PROMISED);
        tables::set(&mut self.arena, range.clone(), Rights::NONE)?;
        // The processor forgets the range with that.
        self.arena.discard(range)
    }

    /// Promises what counts and was never touched, in a clone's own memory. Does nothing where the
    /// host does not tell what was touched.
    pub(super) fn take_back(&mut self) {
        let Some(scanner) = &self.scanner else { return };
        let base = self.arena.address();
        let Ok(touched) = scanner.touched(base..base + USER_END) else { return };
        let SpaceState { regions, promised, files, .. } = &self.state;
        let touched = touched.into_iter().map(|it| it.start - base..it.end - base);
        let inherited = self.arena.inherited(0..USER_END);
        let promised = promised.iter().map(|(range, _)| range);
        // Pages behind the end of a file are written by the monitor.
        let files = files.iter().map(|(range, _)| range);
        let mut taken = Regions::default();
        for range in touched.chain(inherited).chain(promised).chain(files) {
            taken.set(range, PROMISED);
        }
        let counted = regions.iter().filter(|(_, rights)| rights.count());
        let untouched: Vec<_> = counted.flat_map(|(range, _)| taken.gaps(range)).collect();
        for range in untouched {
            if let Err(error) = self.promise(range) {
                tracing::warn!(%error, "the host refused to take a guest's memory back");
                return;
            }
        }
    }

    /// After pages were given back: promises them if room is short.
    pub(super) fn promise_if_short(&mut self, range: &Range<u64>) -> Result<(), Errno> {
        let is_short = self.room() < self.own_bytes().unwrap_or(0) / 8;
        let is_own = self.arena.inherited(range.clone()).is_empty()
            && self.state.files.inside(range.clone()).next().is_none();
        if !is_short || !is_own {
            return Ok(());
        }
        let parts = self.state.regions.inside(range.clone()).filter(|(_, rights)| rights.count());
        let parts: Vec<_> = parts.map(|(part, _)| part).collect();
        parts.into_iter().try_for_each(|part| self.promise(part)).map_err(refused)
    }

    /// Whether the process touched more memory than it may have: it has to end.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Place;
    use super::*;
    use crate::memory::layout::{BLOCK, MAP_START, pages};
    use crate::memory::scan::Scanner;

    const RIGHTS: [Rights; 4] = [Rights::NONE, Rights::READ, Rights::WRITE, Rights::WRITE];
    /// Pages in which mappings are made, and pages of the limit.
    const ZONE: u64 = 2048;
    const LIMIT: u64 = 300;

    /// A clone of an empty space.
    fn clone() -> Space {
        let (frozen, state) = Space::new().unwrap().freeze().unwrap();
        let mut space = Space::clone_of(&frozen, state).unwrap();
        space.measure_by(Scanner::open().unwrap());
        space.allow(LIMIT * PAGE);
        space
    }

    /// What a guest does at a page.
    fn touch(space: &mut Space, page: u64) -> bool {
        tables::entry(&space.arena, page) & 2 != 0
            || space.supply(page) && tables::entry(&space.arena, page) & 2 != 0
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn page_tables_and_counts_agree_with_what_is_promised(
            steps in prop::collection::vec((0_u8..7, 0_u64..ZONE, 1_u64..900, 0_usize..4), 1..40),
        ) {
            let mut space = clone();
            if space.scanner.as_ref().unwrap().private(0..PAGE).is_err() {
                return Ok(());
            }
            let mut written = std::collections::BTreeMap::new();
            for (step, (what, page, length, rights)) in steps.into_iter().enumerate() {
                let length = length.min(ZONE - page);
                let (start, bytes) = (MAP_START + BLOCK + page * PAGE, length * PAGE);
                let range = start..start + bytes;
                match what {
                    0 | 1 => {
                        let place = Place::Fixed(start);
                        prop_assert_eq!(space.map(place, bytes, RIGHTS[rights]), Ok(start));
                        written.retain(|at, _| !range.contains(at));
                    }
                    2 => { let _ = space.protect(start, bytes, RIGHTS[rights]); }
                    3 => {
                        let _ = space.forget(start, bytes);
                        written.retain(|at, _| !range.contains(at));
                    }
                    4 => {
                        space.unmap(start, bytes).unwrap();
                        written.retain(|at, _| !range.contains(at));
                    }
                    _ => for at in pages(range).step_by(1 + step % 5) {
                        if touch(&mut space, at) {
                            space.arena.set_word(at, step as u64 + 1);
                            written.insert(at, step as u64 + 1);
                        }
                    },
                }
                prop_assert!(space.state.counted() <= LIMIT * PAGE);
                prop_assert!(written.len() as u64 <= space.state.counted() / PAGE);
                for page in pages(MAP_START..MAP_START + ZONE * PAGE + 2 * BLOCK) {
                    let promised = space.state.promised.at(page).is_some();
                    let rights = space.state.regions.at(page).map_or(Rights::NONE, |it| it.1);
                    let expected = if promised { 0 } else { rights.entry_flags() };
                    let entry = tables::entry(&space.arena, page);
                    prop_assert_eq!(entry, if expected == 0 { 0 } else { page | expected });
                    let bytes = written.get(&page).copied().unwrap_or(0);
                    if rights.count() {
                        prop_assert_eq!(space.arena.word(page), bytes, "at {:#x}", page);
                    }
                    prop_assert!(!promised || bytes == 0);
                }
            }
        }
    }
}
