//! Memory that is mapped and has no pages yet: demand paging. It counts for nothing until it is
//! touched.
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
//! Promised memory holds nothing, in the guest as on the host. What a template has promised is not
//! behind its file in a clone ([`Space::leave_to_clones`]): a first touch of a file's hole makes a
//! page of the file, which would count nowhere and stay for all other clones.
//!
//! Of a thread's stack (`MAP_STACK`, reserved without rights and then made writable) only the upper
//! end is present from the start. A thread touches hardly one of its eight megabytes.

use std::cmp::Reverse;
use std::io;
use std::ops::Range;

use rustix::io::Errno;

use super::limits::MAX_REGIONS;
use super::{Space, SpaceState, refused};
use crate::memory::layout::{BLOCK, PAGE, USER_END, USER_START, page_down, page_up};
use crate::memory::regions::{Mark, Regions};
use crate::memory::rights::Rights;
use crate::memory::tables;

/// Most bytes that one touch supplies, and bytes of a stack that are present from the start.
const STEP: u64 = 256 << 10;
/// A touch supplies at most this part of the room that is left, because pages beside it may never
/// be touched.
const PART: u64 = 64;
/// Scans in a row that may take back less than a step. After that the process has no room. Each
/// takes milliseconds, in which no deadline ends it.
const MAX_SCANS: u32 = 1024;
/// Zones of a clone's own beside those in which it grows: each takes two mappings of the host, of
/// which all machines of a monitor have 65 530 together.
const MAX_ZONES: usize = 32;

/// Why a mapped range has no pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    /// It is a thread's stack that has no rights yet. It never counted.
    Reserved,
    /// It gets pages when it is touched, and counts then.
    Promised,
}

impl Mark for Absent {
    /// Whether the range would count as memory if it had pages.
    fn counts(self) -> bool {
        self == Self::Promised
    }
}

impl SpaceState {
    /// Bytes that count as memory: those that are present.
    pub(crate) fn counted(&self) -> u64 {
        self.regions.counted() - self.promised.counted()
    }

    /// Bytes of `range` that count as memory.
    pub(super) fn counted_in(&self, range: Range<u64>) -> u64 {
        self.regions.counted_in(range.clone()) - self.promised.counted_in(range)
    }

    /// Whether a range is mapped, and counts as memory all over.
    pub(crate) fn is_present(&self, range: Range<u64>) -> bool {
        self.counted_in(range.clone()) == range.end - range.start
    }

    /// The parts of `range` that are not promised.
    pub(crate) fn present(&self, range: Range<u64>) -> Vec<Range<u64>> {
        self.promised.gaps(range)
    }

    /// The promised parts of `range`.
    fn promised_in(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let marked = self.promised.inside(range);
        marked.filter(|(_, mark)| *mark == Absent::Promised).map(|(part, _)| part).collect()
    }

    /// The zones that clones have to themselves, by address: `growth`, and the longest others in
    /// which nothing is present, those with most promised memory first.
    fn own_zones(&self, growth: [Range<u64>; 2]) -> Vec<Range<u64>> {
        let mut taken = Regions::default();
        for (range, rights) in self.regions.iter().filter(|(_, rights)| rights.count()) {
            self.present(range).into_iter().for_each(|part| taken.set(part, rights));
        }
        let growth = growth.into_iter().filter(|zone| !zone.is_empty());
        growth.clone().for_each(|zone| taken.set(zone, Rights::WRITE));
        let gaps =
            taken.gaps(USER_START..USER_END).into_iter().map(|gap| self.whole_blocks_of(gap));
        let length = |zone: &Range<u64>| zone.end.saturating_sub(zone.start);
        let mut zones: Vec<_> = gaps.filter(|zone| length(zone) >= BLOCK).collect();
        zones.sort_by_key(|zone| Reverse((self.promised.counted_in(zone.clone()), length(zone))));
        zones.truncate(MAX_ZONES);
        zones.extend(growth);
        zones.sort_by_key(|zone| zone.start);
        zones
    }

    /// The whole blocks of a range, so that a block at one of its ends may still be a huge page of
    /// the origin's; and all of what is promised there.
    fn whole_blocks_of(&self, range: Range<u64>) -> Range<u64> {
        let promised = self.promised_in(range.clone());
        let first = promised.first().map_or(range.end, |part| part.start);
        let last = promised.last().map_or(range.start, |part| part.end);
        range.start.next_multiple_of(BLOCK).min(first)..(range.end & !(BLOCK - 1)).max(last)
    }
}

impl Space {
    /// A reserved range that gets rights of any kind is no reserved stack any more.
    pub(super) fn end_reservations(&mut self, range: &Range<u64>) {
        let marks = self.state.promised.inside(range.clone());
        let reserved: Vec<_> = marks.filter(|(_, mark)| *mark == Absent::Reserved).collect();
        for (part, _) in reserved {
            self.state.promised.clear(part);
        }
    }

    /// Notes that a range just mapped without rights is a thread's stack. Of too many nothing is
    /// noted: then they are like any other memory.
    pub(crate) fn reserve_stack(&mut self, range: Range<u64>) {
        if self.state.promised.count() < MAX_REGIONS {
            self.state.promised.set(range, Absent::Reserved);
        }
    }

    /// The part of a stack that stays promised when the stack gets its rights; empty if `range` is
    /// no such stack.
    pub(super) fn lower_stack(&self, range: &Range<u64>, rights: Rights) -> Range<u64> {
        let (mut stacks, mut regions) =
            (self.state.promised.inside(range.clone()), self.state.regions.inside(range.clone()));
        let is_stack = stacks.next() == Some((range.clone(), Absent::Reserved))
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
        let Some((part, Absent::Promised)) = self.state.promised.at(page) else { return false };
        let Some((region, rights)) = self.state.regions.at(page) else { return false };
        if rights.entry_flags() == 0 {
            return false;
        }
        if self.make_room(|_| PAGE).is_err() {
            self.exhausted = true;
            return false;
        }
        let step = 1 << (self.most_room() / PART).clamp(PAGE, STEP).ilog2();
        let start = page & !(step - 1);
        let end = (start + step).min(part.end).min(region.end);
        self.keep_promises(start.max(part.start).max(region.start)..end).is_ok()
    }

    /// Makes the promised memory of a range present: of whole pages, if the range is not empty.
    ///
    /// # Errors
    /// When there is no room for all of it: the space is exhausted.
    pub(super) fn keep_promises(&mut self, range: Range<u64>) -> Result<(), Errno> {
        if range.is_empty() {
            return Ok(());
        }
        let range = page_down(range.start)..page_up(range.end).min(USER_END);
        // Room for all parts before the first is present: there it would be taken back again.
        if let Err(errno) = self.make_room(|state| state.promised.counted_in(range.clone())) {
            self.exhausted = true;
            return Err(errno);
        }
        self.state.promised_in(range).into_iter().try_for_each(|part| self.make_present(part))
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
        // Before the mark: what is marked and still in the page tables could be touched and would
        // not count.
        tables::set(&mut self.arena, range.clone(), Rights::NONE)?;
        self.state.promised.set(range.clone(), Absent::Promised);
        // The processor forgets the range with that.
        self.arena.discard(range)
    }

    /// Promises what counts and was never touched, in a clone's own memory. Returns whether the
    /// host told what was touched.
    pub(super) fn take_back(&mut self) -> bool {
        // A call may still write its other parts after the one that exhausted the space.
        let may = self.arena.origin().is_some() && self.scans < MAX_SCANS && !self.exhausted;
        let scanner = self.scanner.as_ref().filter(|_| may);
        let Some(scanner) = scanner else { return false };
        let base = self.arena.address();
        let Ok(touched) = scanner.touched(base..base + USER_END) else { return false };
        let SpaceState { regions, promised, files, .. } = &self.state;
        let touched = touched.into_iter().map(|it| it.start - base..it.end - base);
        let inherited = self.arena.inherited(0..USER_END);
        let promised = promised.iter().map(|(range, _)| range);
        // Pages behind the end of a file are written by the monitor.
        let files = files.iter().map(|(range, _)| range);
        let mut taken = Regions::default();
        for range in touched.chain(inherited).chain(promised).chain(files) {
            taken.set(range, Absent::Promised);
        }
        let counted = regions.iter().filter(|(_, rights)| rights.count());
        let untouched: Vec<_> = counted.flat_map(|(range, _)| taken.gaps(range)).collect();
        let bytes: u64 = untouched.iter().map(|range| range.end - range.start).sum();
        self.scans = if bytes < STEP { self.scans + 1 } else { 0 };
        for range in untouched {
            if let Err(error) = self.promise(range) {
                tracing::warn!(%error, "the host refused to take a guest's memory back");
                return false;
            }
        }
        true
    }

    /// Allows as many scans again as a process may need before it waits.
    pub(crate) fn begin_run(&mut self) {
        self.scans = 0;
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

    /// Before it is frozen, the zones that clones have to themselves: see
    /// [`SpaceState::own_zones`]. What is promised elsewhere becomes present, and counts.
    pub(super) fn leave_to_clones(
        &mut self,
        growth: [Range<u64>; 2],
    ) -> io::Result<Vec<Range<u64>>> {
        let zones = self.state.own_zones(growth);
        let mut own = Regions::default();
        zones.iter().for_each(|zone| own.set(zone.clone(), Absent::Promised));
        let promised = self.state.promised_in(0..USER_END).into_iter();
        for part in promised.flat_map(|part| own.gaps(part)).collect::<Vec<_>>() {
            self.make_present(part)?;
        }
        // Calls may have read there.
        zones.iter().try_for_each(|zone| self.arena.discard(zone.clone()))?;
        Ok(zones)
    }

    /// Whether the process touched more memory than it may have: it has to end.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::{Pages, Place};
    use super::*;
    use crate::memory::arena::Arena;
    use crate::memory::layout::{MAP_START, pages};
    use crate::memory::scan::Scanner;

    const RIGHTS: [Rights; 4] = [Rights::NONE, Rights::READ, Rights::WRITE, Rights::WRITE];
    /// Pages in which mappings are made, and pages of the limit.
    const ZONE: u64 = 2048;
    const LIMIT: u64 = 300;
    const MIB: u64 = 1 << 20;

    /// A clone of such a space; none before Linux 6.7.
    fn clone_of(origin: Space, limit: u64) -> Option<Space> {
        let (frozen, state) = origin.freeze().unwrap();
        let mut space = Space::clone_of(&frozen, state).unwrap();
        let scanner = Scanner::open().unwrap();
        if scanner.private(0..PAGE).is_err() {
            skips::skip("linux 6.7", "the host does not tell what was touched");
            return None;
        }
        space.measure_by(scanner);
        space.allow(limit);
        Some(space)
    }

    /// What a guest does at a page.
    fn touch(space: &mut Space, page: u64) -> bool {
        let is_so = tables::entry(&space.arena, page) & 2 != 0
            || space.supply(page) && tables::entry(&space.arena, page) & 2 != 0;
        if is_so {
            space.arena.set_word(page, page);
        }
        is_so
    }

    /// What the host spends for a clone.
    fn touched(space: &Space) -> Vec<Range<u64>> {
        let base = space.arena.address();
        let touched = space.scanner.as_ref().unwrap().touched(base..base + USER_END).unwrap();
        touched.into_iter().map(|it| it.start - base..it.end - base).collect()
    }

    /// What a call does that writes to a range.
    fn write(space: &mut Space, range: Range<u64>, value: u64, written: &mut BTreeMap<u64, u64>) {
        if space.write(range.start, range.end - range.start).is_ok() {
            for at in pages(range.start..page_up(range.end)) {
                space.arena.set_word(at, value);
                written.insert(at, value);
            }
        }
    }

    fn bytes(ranges: &[Range<u64>]) -> u64 {
        ranges.iter().map(|range| range.end - range.start).sum()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn page_tables_and_counts_agree_with_what_is_promised(
            steps in prop::collection::vec((0_u8..9, 0_u64..ZONE, 1_u64..900, 0_usize..4), 1..40),
        ) {
            let Some(mut space) = clone_of(Space::new().unwrap(), LIMIT * PAGE) else { return Ok(()) };
            let mut written = BTreeMap::new();
            for (step, (what, page, length, rights)) in steps.into_iter().enumerate() {
                let value = step as u64 + 1;
                let length = length.min(ZONE - page);
                let (start, bytes) = (MAP_START + BLOCK + page * PAGE, length * PAGE);
                let range = start..start + bytes;
                match what {
                    0 => {
                        let place = Place::Fixed(start);
                        prop_assert_eq!(space.map(place, bytes, RIGHTS[rights]), Ok(start));
                        written.retain(|at, _| !range.contains(at));
                    }
                    // The first half may be present, and the second one promised.
                    1 => {
                        let middle = start + length / 2 * PAGE;
                        for part in [start..middle, middle..start + bytes] {
                            let length = part.end - part.start;
                            let _ = space.map(Place::Fixed(part.start), length, Rights::WRITE);
                        }
                        written.retain(|at, _| !range.contains(at));
                        write(&mut space, range, value, &mut written);
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
                    5 => {
                        // A part of it, where all of it has to have the right.
                        let bytes = if step % 2 == 0 { bytes } else { bytes / 8 + 5 };
                        write(&mut space, start..start + bytes, value, &mut written);
                    }
                    6 => if let Some((region, _)) = space.state.regions.at(start) {
                        let old = bytes.min(region.end - start);
                        let moved = space.remap(start, old, old + rights as u64 * 150 * PAGE, true);
                        if let Ok(to) = moved {
                            let rest = written.split_off(&start);
                            written.extend(rest.into_iter().map(|(at, value)| {
                                (if at < start + old { to + (at - start) } else { at }, value)
                            }));
                        }
                    },
                    _ => for at in pages(range).step_by(1 + step % 5) {
                        if touch(&mut space, at) {
                            space.arena.set_word(at, value);
                            written.insert(at, value);
                        }
                    },
                }
                // What a machine would not do any more is no worse.
                space.exhausted = false;
                prop_assert!(space.state.counted() <= LIMIT * PAGE);
                prop_assert!(written.len() as u64 <= space.state.counted() / PAGE);
                for range in touched(&space) {
                    let promised = space.state.promised_in(range.clone());
                    prop_assert!(promised.is_empty(), "step {}: {:x?} of {:x?}", step, promised, range);
                }
                for page in pages(MAP_START..MAP_START + ZONE * PAGE + 2 * BLOCK) {
                    let promised = space.state.promised.at(page).is_some();
                    let rights = space.state.regions.at(page).map_or(Rights::NONE, |it| it.1);
                    let expected = if promised { 0 } else { rights.entry_flags() };
                    let entry = tables::entry(&space.arena, page);
                    prop_assert_eq!(entry, if expected == 0 { 0 } else { page | expected });
                    if rights.count() && !written.contains_key(&page) {
                        prop_assert_eq!(space.arena.word(page), 0, "at {:#x}", page);
                    }
                }
                for (page, value) in &written {
                    prop_assert_eq!(space.arena.word(*page), *value, "at {:#x}", page);
                }
            }
        }
    }

    #[test]
    fn a_call_over_much_promised_memory_looks_once_for_what_was_touched() {
        let Some(mut space) = clone_of(Space::new().unwrap(), 300 * PAGE) else { return };
        let at = space.map(Place::Hint(0), 598 * PAGE, Rights::WRITE).unwrap();
        assert!((0..299).all(|number| touch(&mut space, at + 2 * number * PAGE)));
        assert_eq!((space.room(), space.scans), (PAGE, 0));
        assert_eq!(space.write(at, 598 * PAGE).err(), Some(Errno::NOMEM));
        assert!(space.is_exhausted());
        assert_eq!(space.write(at, 598 * PAGE).err(), Some(Errno::NOMEM));
        assert_eq!(space.scans, 1);
        assert_eq!(bytes(&touched(&space)), 299 * PAGE);
    }

    #[test]
    fn nothing_is_taken_back_for_what_can_have_no_room() {
        let Some(mut space) = clone_of(Space::new().unwrap(), 300 * PAGE) else { return };
        let at = space.map(Place::Hint(0), 300 * PAGE, Rights::WRITE).unwrap();
        let map = |space: &mut Space, pages| {
            space.map_for(Pages::AtOnce, Place::Hint(0), pages * PAGE, Rights::WRITE)
        };
        assert_eq!(map(&mut space, 301), Err(Errno::NOMEM));
        assert!(space.state.is_present(at..at + 300 * PAGE));
        // What has room gets it, from what was never touched.
        assert!((0..100).all(|number| touch(&mut space, at + number * PAGE)));
        let more = map(&mut space, 200).unwrap();
        space.write(more, 200 * PAGE).unwrap().fill(1);
        assert_eq!(space.room(), 0);
        // In vain so often, and no more.
        space.scans = MAX_SCANS - 1;
        assert_eq!(map(&mut space, 1), Err(Errno::NOMEM));
        assert_eq!(space.scans, MAX_SCANS);
        assert!(!space.take_back());
        space.begin_run();
        assert!(space.take_back());
    }

    #[test]
    fn a_write_of_nothing_supplies_nothing() {
        let Some(mut space) = clone_of(Space::new().unwrap(), 10 * PAGE) else { return };
        let at = space.map(Place::Hint(0), 20 * PAGE, Rights::READ).unwrap();
        assert!(space.write(at + 5, 0).is_ok());
        assert_eq!(space.state.counted(), 0);
    }

    #[test]
    fn clones_share_no_file_where_their_template_only_promised() {
        let Some(mut loaded) = clone_of(Space::new().unwrap(), 32 * MIB) else { return };
        let scanner = loaded.scanner.clone().unwrap();
        let all = loaded.map(Place::Hint(0), 1024 * MIB, Rights::WRITE).unwrap();
        let own = [all, all + 700 * MIB];
        assert!(own.into_iter().all(|page| touch(&mut loaded, page)));
        let (frozen, state) = loaded.into_own(&scanner).unwrap().freeze().unwrap();
        assert!(state.counted() <= 2 * STEP);
        let held = || bytes(&frozen.filled(0..USER_END).unwrap());
        let before = held();
        let mut space = Space::clone_of(&frozen, state.clone()).unwrap();
        space.measure_by(scanner.clone());
        space.allow(32 * MIB);
        for round in 0..20 {
            let start = all + MIB + round * 48 * MIB;
            assert!(pages(start..start + 20 * MIB).all(|page| touch(&mut space, page)));
            assert_eq!(bytes(&touched(&space)), 20 * MIB);
            assert!((20 * MIB..=32 * MIB).contains(&space.state.counted()));
            space.reset(&state, &scanner).unwrap();
            assert_eq!(space.differences(&state, &scanner).unwrap(), Vec::<String>::new());
            assert_eq!(bytes(&touched(&space)), 0);
            assert!(own.into_iter().all(|page| space.arena.word(page) == page));
        }
        assert_eq!(held(), before);
    }

    #[test]
    fn what_was_never_touched_when_a_clone_is_frozen_is_promised() {
        let Some(mut loaded) = clone_of(Space::new().unwrap(), 64 * MIB) else { return };
        let scanner = loaded.scanner.clone().unwrap();
        let all = loaded.map(Place::Hint(0), 48 * MIB, Rights::WRITE).unwrap();
        // To the last page of a huge page, where the host has them.
        assert!(pages(all..all + 8 * MIB).skip(1).step_by(2).all(|page| touch(&mut loaded, page)));
        assert_eq!(loaded.state.counted(), 48 * MIB);
        let (frozen, state) = loaded.into_own(&scanner).unwrap().freeze().unwrap();
        assert_eq!(state.counted(), 8 * MIB);
        let shares =
            |range: &Range<u64>| !frozen.own().iter().any(|own| own.contains(&range.start));
        assert!(!state.promised_in(0..USER_END).iter().any(shares));
    }

    #[test]
    fn promised_memory_in_too_many_ranges_counts_in_clones() {
        const MANY: u64 = MAX_ZONES as u64 + 8;
        let mut space = Space::new().unwrap();
        let length = |number: u64| BLOCK + number * PAGE;
        for number in 0..MANY {
            let start = MAP_START + number * 2 * BLOCK;
            space.map(Place::Fixed(start), 2 * BLOCK, Rights::WRITE).unwrap();
            space.promise(start..start + length(number)).unwrap();
        }
        // One that is too short.
        let short = MAP_START + MANY * 2 * BLOCK;
        space.map(Place::Fixed(short), 2 * BLOCK, Rights::WRITE).unwrap();
        space.promise(short..short + BLOCK - PAGE).unwrap();
        let (frozen, state) = space.freeze().unwrap();
        // The longest are promised still, and clones have these to themselves.
        let promised = (8..MANY).map(|number| MAP_START + number * 2 * BLOCK..0);
        let promised = promised.zip(8..).map(|(it, number)| it.start..it.start + length(number));
        let promised: Vec<_> = promised.collect();
        assert_eq!(state.promised_in(0..USER_END), promised);
        assert!(promised.iter().all(|it| frozen.own().contains(it)));
        assert!(state.is_present(short..short + 2 * BLOCK));
        for page in [MAP_START, short] {
            assert_ne!(tables::entry(&Arena::clone_of(&frozen).unwrap(), page), 0);
        }
    }
}
