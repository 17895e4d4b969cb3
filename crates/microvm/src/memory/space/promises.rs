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
//! page of the file, which would count nowhere and stay for all other clones. Where that cannot be,
//! all clones share a limit ([`Arena::open_holes`](crate::memory::arena::Arena::open_holes)).
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
/// Ranges that are taken back before it is asked whether there is enough room: each takes a call of
/// the host's, and a scan for too few of them would take longer.
const BATCH: usize = 4096;
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

    /// The parts of `range` that are present, reserved, or not mapped.
    pub(super) fn unpromised(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut promised = Regions::default();
        let parts = self.promised_in(range.clone()).into_iter();
        parts.for_each(|part| promised.set(part, Absent::Promised));
        promised.gaps(range)
    }

    /// All that is present.
    fn taken(&self) -> Regions {
        let mut taken = Regions::default();
        for (range, rights) in self.regions.iter().filter(|(_, rights)| rights.count()) {
            self.present(range).into_iter().for_each(|part| taken.set(part, rights));
        }
        taken
    }

    /// The ranges outside these zones in which nothing is present.
    pub(super) fn holes(&self, zones: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut taken = self.taken();
        zones.iter().for_each(|zone| taken.set(zone.clone(), Rights::WRITE));
        taken.gaps(USER_START..USER_END)
    }

    /// The zones that clones have to themselves, by address: `growth`, and the longest others in
    /// which nothing is present, those with most promised memory first.
    fn own_zones(&self, growth: [Range<u64>; 2]) -> Vec<Range<u64>> {
        let mut taken = self.taken();
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
        let range = start.max(part.start).max(region.start)..end;
        // Of a template's hole the page alone may be free of charge, or fit in what is left.
        let whole = self.check_holes(&range, rights).is_ok();
        self.keep_promises(if whole { range } else { page..page + PAGE }).is_ok()
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
        if !self.state.promised.touch(range.clone()) {
            return Ok(());
        }
        // Room for all parts before the first is present: there it would be taken back again.
        let room = self.make_room(|state| state.promised.counted_in(range.clone()));
        let room = room.and_then(|()| self.check_holes(&range, Rights::WRITE));
        if room.is_err() {
            self.exhausted = true;
            return room;
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

    /// Promises what counts and was never touched, in a clone's own memory: the longest ranges
    /// first, a batch at a time, until there is enough room. Returns whether the host told what was
    /// touched.
    pub(super) fn take_back(&mut self, is_enough: impl Fn(&Self) -> bool) -> bool {
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
        let mut untouched: Vec<_> = counted.flat_map(|(range, _)| taken.gaps(range)).collect();
        untouched.sort_by_key(|range| Reverse(range.end - range.start));
        let bytes: u64 = untouched.iter().map(|range| range.end - range.start).sum();
        self.scans = if bytes < STEP { self.scans + 1 } else { 0 };
        for batch in untouched.chunks(BATCH) {
            if let Err(error) = batch.iter().try_for_each(|range| self.promise(range.clone())) {
                tracing::warn!(%error, "the host refused to take a guest's memory back");
                return false;
            }
            if is_enough(self) {
                break;
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
    /// [`SpaceState::own_zones`]. What is promised elsewhere becomes present, and counts, while
    /// half of the room is left; the rest stays promised in the template's holes.
    pub(super) fn leave_to_clones(
        &mut self,
        growth: [Range<u64>; 2],
    ) -> io::Result<Vec<Range<u64>>> {
        let zones = self.state.own_zones(growth);
        let mut own = Regions::default();
        zones.iter().for_each(|zone| own.set(zone.clone(), Absent::Promised));
        let promised = self.state.promised_in(0..USER_END).into_iter();
        let mut others: Vec<_> = promised.flat_map(|part| own.gaps(part)).collect();
        others.sort_by_key(|part| part.end - part.start);
        let mut room = self.most_room() / 2;
        for part in others {
            let Some(left) = room.checked_sub(part.end - part.start) else { break };
            room = left;
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
mod tests;
