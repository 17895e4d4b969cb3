//! A guest's address space: its regions, the page tables that say the same to the processor, and
//! the memory behind them.
//!
//! Three rules keep the three in step:
//!
//! 1. A right that is added changes the page-table entry alone.
//! 2. A right that is taken away is flushed before the guest runs again.
//! 3. Memory that is unmapped is given back at once, so that a later mapping of the address reads
//!    as zero.

mod journal;
mod limits;
mod promises;
mod resize;
mod rewind;
mod saved;
mod units;

use std::io;
use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;

use crate::memory::arena::{Arena, FrozenArena, MemoryKind};
use crate::memory::file_mappings::{FileMapping, FileMappings};
use crate::memory::layout::{
    BLOCK, BREAK_END, LOW_END, MAP_START, PAGE, PROGRAM, USER_END, USER_START, page_down, page_up,
};
use crate::memory::regions::Regions;
use crate::memory::rights::Rights;
use crate::memory::scan::Scanner;
use crate::memory::tables;
use journal::Journal;
use promises::Absent;
pub use rewind::Reset;
pub(crate) use saved::{SavedSpace, SpaceRestoreError};
pub use units::Units;

/// Bytes of a clone's own zone for mappings smaller than a block, unless that is more than half of
/// the zone.
const SMALL_BYTES: u64 = 256 << 20;

/// The rights with which shared memory is noted.
const SHARED: Rights = Rights::WRITE;

/// A guest's address space.
#[derive(Debug)]
pub struct Space {
    pub(crate) arena: Arena,
    pub(crate) state: SpaceState,
    /// What a reset has to undo; filled in clones only.
    journal: Journal,
    /// Bytes that may count as memory.
    limit: u64,
    /// Bytes beyond the limit that memory may borrow from scratch.
    loan: u64,
    /// The guest's own limit (`RLIMIT_AS`), for which inaccessible mappings count, too.
    own_limit: u64,
    /// Tells which pages of a clone hold anything.
    scanner: Option<Scanner>,
    /// Scans in a row that took back next to nothing.
    scans: u32,
    /// Whether the guest touched more than it may have, or the host failed in the middle of a
    /// change.
    exhausted: bool,
}

/// The state of an address space, beside the arena's bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpaceState {
    pub(crate) regions: Regions,
    /// The regions that show files.
    pub(crate) files: FileMappings,
    /// The regions that are shared but show no file: their bytes stay until they are unmapped. All
    /// are noted with the same rights.
    shared: Regions,
    /// The mapped ranges without pages: promised memory, and reserved stacks.
    promised: Regions<Absent>,
    break_start: u64,
    break_now: u64,
    /// The units in which something is or was mapped.
    units: Units,
    /// Address of the shared object that the kernel provides (vDSO); 0 without one.
    pub(crate) vdso: u64,
    /// Lowest address at which room is looked for: in a clone, the start of its own memory.
    floor: u64,
    /// The same for mappings of a block or more, which a clone has on huge pages.
    huge: u64,
    /// Bytes that counted when the first machine of this line was frozen. A clone that is frozen in
    /// its turn passes the number on: what it has mapped itself counts for its clones.
    pub(crate) given: Option<u64>,
}

/// What a new mapping takes the place of: bytes that stop to count, and to be mapped, once it is
/// made.
#[derive(Clone, Copy, Debug, Default)]
struct Replaced {
    counted: u64,
    mapped: u64,
}

/// When a mapping takes memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// When it is touched, if there is no room for all of it.
    OnTouch,
    /// At once: the monitor fills it.
    AtOnce,
}

/// The address of a new mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At any address, preferably this one.
    Hint(u64),
    /// At any address from which a block begins this many bytes on.
    BlockAt(u64),
    /// At any address below 2 GiB.
    Low,
    /// At this address, in place of what is mapped there.
    Fixed(u64),
    /// At this address, or not at all when something is mapped there.
    FixedIfFree(u64),
}

impl Space {
    /// An empty address space.
    ///
    /// # Errors
    /// When the host has no memory for it.
    pub fn new() -> io::Result<Self> {
        Self::made_of(MemoryKind::File)
    }

    /// As [`Space::new`], with memory of this kind.
    ///
    /// # Errors
    /// As for [`Space::new`].
    pub fn made_of(memory: MemoryKind) -> io::Result<Self> {
        let mut arena = Arena::made_of(memory)?;
        tables::lay_out(&mut arena);
        crate::memory::ring0::lay_out(&mut arena);
        Ok(Self::of(
            arena,
            SpaceState { floor: MAP_START, huge: MAP_START, ..SpaceState::default() },
        ))
    }

    pub(crate) fn of(arena: Arena, state: SpaceState) -> Self {
        let journal = Journal::default();
        let (limit, loan, own_limit) = (u64::MAX, 0, u64::MAX);
        let (scanner, scans, exhausted) = (None, 0, false);
        Self { arena, state, journal, limit, loan, own_limit, scanner, scans, exhausted }
    }

    /// A clone of a frozen address space.
    ///
    /// # Errors
    /// When the host has no address space for it.
    pub(crate) fn clone_of(frozen: &Arc<FrozenArena>, state: SpaceState) -> io::Result<Self> {
        Ok(Self::of(Arena::clone_of(frozen)?, state))
    }

    /// Freezes it, to be cloned. Blocks with the same rights throughout become huge pages of the
    /// guest's.
    ///
    /// # Errors
    /// When the host refuses.
    pub(crate) fn freeze(mut self) -> io::Result<(Arc<FrozenArena>, SpaceState)> {
        let break_end = self.state.break_now.next_multiple_of(BLOCK).max(PROGRAM);
        let break_growth = if self.state.regions.touch(break_end..BREAK_END) {
            BREAK_END..BREAK_END
        } else {
            break_end..BREAK_END
        };
        let floor = self.state.regions.end_below(USER_END).max(MAP_START).next_multiple_of(BLOCK);
        let huge = (floor + SMALL_BYTES).min(floor.midpoint(USER_END).next_multiple_of(BLOCK));
        (self.state.floor, self.state.huge) = (floor, huge);
        let own = self.leave_to_clones([break_growth, floor..USER_END])?;
        for (range, rights) in self.state.regions.iter() {
            for part in self.state.present(range) {
                let whole = part.start.next_multiple_of(BLOCK)..part.end & !(BLOCK - 1);
                if !whole.is_empty() {
                    tables::set(&mut self.arena, whole, rights)?;
                }
            }
        }
        let state = &self.state;
        self.arena.collapse(0..USER_END, |block| state.counted_in(block))?;
        self.state.given = Some(self.given());
        let holes = self.state.holes(&own);
        let frozen = self.arena.freeze(own, huge, holes)?;
        Ok((frozen, self.state))
    }

    /// The arena, to be changed.
    pub fn arena_mut(&mut self) -> &mut Arena {
        &mut self.arena
    }

    /// The arena behind the address space.
    #[must_use]
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// The mapped regions.
    #[must_use]
    pub fn regions(&self) -> &Regions {
        &self.state.regions
    }

    /// The units in which something is or was mapped.
    #[must_use]
    pub fn units(&self) -> &Units {
        &self.state.units
    }

    /// Sets the lowest address at which room is looked for, until it is frozen.
    pub fn map_from(&mut self, start: u64) {
        (self.state.floor, self.state.huge) = (start, start);
    }

    /// `mmap` without a file: `length` bytes of zeros. Returns the address. What is beyond the
    /// limit has no memory until it is touched.
    ///
    /// # Errors
    /// Those of `mmap(2)`.
    pub fn map(&mut self, place: Place, length: u64, rights: Rights) -> Result<u64, Errno> {
        self.map_for(Pages::OnTouch, place, length, rights)
    }

    /// The same; `pages` tells when memory is taken.
    ///
    /// # Errors
    /// Those of `mmap(2)`.
    pub(crate) fn map_for(
        &mut self,
        pages: Pages,
        place: Place,
        length: u64,
        rights: Rights,
    ) -> Result<u64, Errno> {
        self.map_instead(Replaced::default(), pages, place, length, rights)
    }

    /// The same, before the caller unmaps what this replaces.
    ///
    /// # Errors
    /// Those of `mmap(2)`.
    fn map_instead(
        &mut self,
        replaced: Replaced,
        pages: Pages,
        place: Place,
        length: u64,
        rights: Rights,
    ) -> Result<u64, Errno> {
        let length = page_up(length);
        if length == 0 {
            return Err(Errno::INVAL);
        }
        if length > USER_END {
            return Err(Errno::NOMEM);
        }
        self.check_count(1)?;
        let start = match place {
            Place::Hint(hint) => self.anywhere(page_down(hint), length, rights)?,
            Place::BlockAt(offset) => {
                // With room for less than a block before it, wherever the room begins.
                let start = self.anywhere(0, length + BLOCK, rights)?;
                (start + offset).next_multiple_of(BLOCK) - offset
            }
            Place::Low => {
                let gap = self.state.regions.gap(self.state.floor..LOW_END, length, PAGE);
                let gap = gap.or_else(|| self.wherever(MAP_START..LOW_END, length, rights));
                gap.ok_or(Errno::NOMEM)?
            }
            Place::Fixed(start) => {
                let range = user(start, length)?;
                // Checked before anything is unmapped: the mapping that is there may be cut in two.
                let hidden = self.hidden_by(&range, rights);
                self.check_count(1 + hidden + usize::from(self.surround(&range)))?;
                self.release(range)?;
                start
            }
            Place::FixedIfFree(start) => {
                if self.state.regions.touch(user(start, length)?) {
                    return Err(Errno::EXIST);
                }
                start
            }
        };
        self.grant(replaced, pages, start..start + length, rights)?;
        Ok(start)
    }

    /// Maps a range that is free.
    fn grant(
        &mut self,
        replaced: Replaced,
        pages: Pages,
        range: Range<u64>,
        rights: Rights,
    ) -> Result<(), Errno> {
        self.check_count(1 + self.hidden_by(&range, rights))?;
        let length = range.end - range.start;
        self.check_own_room(length.saturating_sub(replaced.mapped))?;
        // A clone puts zeros in the place of its template's pages: they are its own memory,
        // accessible or not.
        let zeros = self.arena.stale(range.clone());
        let more = length.saturating_sub(replaced.counted);
        let is_present = rights.count() && (pages == Pages::AtOnce || more <= self.room());
        // The zeros are there before anything that is replaced goes.
        let filled = zeros.iter().map(|part| part.end - part.start).sum();
        self.make_room(|_| if is_present { more.max(filled) } else { filled })?;
        // Last, because a call that fails is to use nothing that siblings may need.
        self.check_holes(&range, rights)?;
        for part in &zeros {
            self.arena.bytes_mut(part.clone()).fill(0);
        }
        self.state.regions.set(range.clone(), rights);
        if !rights.count() {
            for part in zeros {
                self.state.regions.set(part, Rights::HIDDEN);
            }
        } else if !is_present {
            self.state.promised.set(range.clone(), Absent::Promised);
            zeros.into_iter().for_each(|part| self.state.promised.clear(part));
        } else if rights.allow(Rights::WRITE) {
            // A range that cannot be written yet, as a thread's stack at first, will hardly be
            // touched all over.
            self.arena.hold_on_huge(&self.whole_blocks(&range));
        }
        self.enter(range, rights)
    }

    /// The blocks of a range, without those at its ends that do not count as memory throughout.
    fn whole_blocks(&self, range: &Range<u64>) -> Range<u64> {
        let (mut start, mut end) = (range.start / BLOCK * BLOCK, range.end.next_multiple_of(BLOCK));
        let counts = |block: Range<u64>| self.state.counted_in(block) == BLOCK;
        if !counts(start..start + BLOCK) {
            start += BLOCK;
        }
        if start < end && !counts(end - BLOCK..end) {
            end -= BLOCK;
        }
        start..end
    }

    fn anywhere(&self, hint: u64, length: u64, rights: Rights) -> Result<u64, Errno> {
        let regions = &self.state.regions;
        if hint >= MAP_START
            && let Ok(range) = user(hint, length)
            && !regions.touch(range.clone())
            && self.cost_of_holes(&range, rights).is_some()
        {
            return Ok(hint);
        }
        let align = if length >= BLOCK { BLOCK } else { PAGE };
        // As above: a range that cannot be written yet will hardly be touched all over.
        let from = match length >= BLOCK && rights.allow(Rights::WRITE) {
            true => self.state.huge,
            false => self.state.floor,
        };
        let gap = regions.gap(from..USER_END, length, align);
        let gap = gap.or_else(|| self.wherever(MAP_START..USER_END, length, rights));
        gap.ok_or(Errno::NOMEM)
    }

    /// The lowest free range that takes nothing of a template's holes, among those that begin a gap
    /// or a zone of the clone's own; otherwise the lowest that takes what may be taken.
    fn wherever(&self, among: Range<u64>, length: u64, rights: Rights) -> Option<u64> {
        let gaps = self.state.regions.gaps(among).into_iter();
        let zones = self.arena.origin().map_or(&[][..], |origin| origin.own());
        let starts = gaps.filter(|gap| gap.end - gap.start >= length).flat_map(|gap| {
            let own = zones.iter().map(|zone| zone.start);
            let last = gap.end - length;
            let own = own.filter(move |start| gap.start < *start && *start <= last);
            std::iter::once(gap.start).chain(own)
        });
        // What has no rights yet takes nothing now, and may be refused them later.
        let unless_used = (!rights.count()).then_some(u64::MAX);
        let cost = |start: u64| self.arena.cost_of_holes(&(start..start + length)).or(unless_used);
        let mut may = starts.filter_map(|start| Some((cost(start)?, start))).peekable();
        let first = may.peek().map(|(_, start)| *start);
        may.find(|(cost, _)| *cost == 0).map(|(_, start)| start).or(first)
    }

    /// `munmap`.
    ///
    /// # Errors
    /// Those of `munmap(2)`.
    pub fn unmap(&mut self, start: u64, length: u64) -> Result<(), Errno> {
        if length == 0 || !start.is_multiple_of(PAGE) {
            return Err(Errno::INVAL);
        }
        let end = start.checked_add(page_up(length)).filter(|end| *end <= USER_END);
        self.release(start..end.ok_or(Errno::INVAL)?)
    }

    fn release(&mut self, range: Range<u64>) -> Result<(), Errno> {
        self.check_count(usize::from(self.surround(&range)))?;
        self.arena.hold_on_small(&range).map_err(refused)?;
        let parts: Vec<_> =
            self.state.regions.inside(range.clone()).map(|(part, _)| part).collect();
        self.state.regions.clear(range.clone());
        self.state.files.clear(range.clone());
        self.state.shared.clear(range.clone());
        self.state.promised.clear(range);
        for part in parts {
            self.enter(part.clone(), Rights::NONE)?;
            self.arena.discard(part).map_err(refused)?;
        }
        Ok(())
    }

    /// `mprotect`.
    ///
    /// # Errors
    /// Those of `mprotect(2)`.
    pub fn protect(&mut self, start: u64, length: u64, rights: Rights) -> Result<(), Errno> {
        if !start.is_multiple_of(PAGE) {
            return Err(Errno::INVAL);
        }
        let end = start.checked_add(page_up(length)).ok_or(Errno::NOMEM)?;
        let range = start..end;
        if range.is_empty() {
            return Ok(());
        }
        if end > USER_END || !self.state.regions.cover(range.clone()) {
            // As on Linux, the part before the hole is changed.
            let hole = self.state.regions.gaps(range).first().map_or(start, |hole| hole.start);
            self.protect(start, hole - start, rights)?;
            return Err(Errno::NOMEM);
        }
        let parts: Vec<_> = self.state.regions.inside(range.clone()).collect();
        self.check_count(self.cuts(&parts, rights))?;
        self.check_holes(&range, rights)?;
        let stack = self.lower_stack(&range, rights);
        let new = parts.iter().filter(|(_, now)| rights.count() && !now.count());
        let new: Vec<_> = new.map(|(part, _)| part.start.max(stack.end)..part.end).collect();
        let more: u64 = new.iter().map(|part| part.end - part.start).sum();
        let shrinking = parts.iter().filter(|(_, now)| now.shrink_to(rights));
        let shrinking = shrinking.map(|(part, _)| part.clone());
        let shrinking = shrinking.reduce(|all, part| all.start..part.end);
        for (part, now) in parts {
            self.state.regions.set(part, now.turned_into(rights));
        }
        self.end_reservations(&range);
        let promised = if more > self.room() { new } else { Vec::new() };
        for part in promised.into_iter().chain([stack]).filter(|part| !part.is_empty()) {
            self.state.promised.set(part, Absent::Promised);
        }
        self.enter(range, rights)?;
        shrinking.map_or(Ok(()), |range| self.arena.flush(range).map_err(refused))
    }

    /// MADV_DONTNEED: the pages stay mapped and read as zero. Shared pages keep their bytes, which
    /// are not this mapping's own.
    ///
    /// # Errors
    /// Those of `madvise(2)`.
    pub fn forget(&mut self, start: u64, length: u64) -> Result<(), Errno> {
        if !start.is_multiple_of(PAGE) {
            return Err(Errno::INVAL);
        }
        let end = start.checked_add(page_up(length)).filter(|end| *end <= USER_END);
        let range = start..end.ok_or(Errno::NOMEM)?;
        if !self.state.regions.cover(range.clone()) {
            // As on Linux, the mapped parts are forgotten all the same.
            let parts: Vec<_> = self.state.regions.inside(range).map(|(part, _)| part).collect();
            for part in parts {
                self.forget(part.start, part.end - part.start)?;
            }
            return Err(Errno::NOMEM);
        }
        if range.is_empty() {
            return Ok(());
        }
        for range in self.state.shared.gaps(range) {
            self.arena.discard(range.clone()).map_err(refused)?;
            // Promised memory is zero already, and does not count.
            for part in self.state.unpromised(range.clone()) {
                self.arena.zero_on_reuse(part);
            }
            self.promise_if_short(&range)?;
        }
        Ok(())
    }

    /// Notes that a range just mapped is shared, and shows no file.
    pub(crate) fn share(&mut self, range: Range<u64>) {
        self.state.shared.set(range, SHARED);
    }

    /// Whether any byte of a range is shared without a file.
    pub(crate) fn is_shared(&self, range: Range<u64>) -> bool {
        self.state.shared.touch(range)
    }

    /// Notes the file that a range just mapped shows.
    pub(crate) fn show(&mut self, range: Range<u64>, file: FileMapping) {
        self.state.files.set(range, file);
    }

    /// Notes that shared pages may become newer than their files: for a whole mapping when a part
    /// of it becomes writable, so that it stays one mapping.
    pub(crate) fn write_to_files(&mut self, range: &Range<u64>) {
        for (whole, file) in self.state.files.around(range) {
            if file.shared && !file.written {
                self.state.files.set(whole, FileMapping { written: true, ..file });
            }
        }
    }

    /// The mappings of files.
    pub(crate) fn files(&self) -> &FileMappings {
        &self.state.files
    }

    /// The bytes behind a guest's pointer.
    ///
    /// # Errors
    /// EFAULT when the guest itself could not read all of it; ENOMEM as for [`Space::check_holes`].
    pub fn read(&self, start: u64, length: u64) -> Result<&[u8], Errno> {
        let range = self.checked(start, length, Rights::READ)?;
        let pages = page_down(range.start)..page_up(range.end);
        if self.state.promised.touch(pages.clone()) {
            self.check_holes(&pages, Rights::READ)?;
        }
        Ok(self.arena.bytes(range))
    }

    /// The bytes behind a guest's pointer, to be written.
    ///
    /// # Errors
    /// EFAULT when the guest itself could not write all of it.
    pub fn write(&mut self, start: u64, length: u64) -> Result<&mut [u8], Errno> {
        let range = self.checked(start, length, Rights::WRITE)?;
        self.keep_promises(range.clone())?;
        Ok(self.arena.bytes_mut(range))
    }

    fn checked(&self, start: u64, length: u64, wanted: Rights) -> Result<Range<u64>, Errno> {
        let end = start.checked_add(length).filter(|end| *end <= USER_END).ok_or(Errno::FAULT)?;
        if length > 0 && !self.state.regions.allow(page_down(start)..page_up(end), wanted) {
            return Err(Errno::FAULT);
        }
        // An empty range is not read, but it must lie in the arena.
        Ok(start..end)
    }

    /// Writes the page tables; the caller has changed the regions.
    fn enter(&mut self, range: Range<u64>, rights: Rights) -> Result<(), Errno> {
        if range.is_empty() {
            return Ok(());
        }
        self.state.units.cover(&range);
        self.journal.note(&self.arena, &range);
        let parts = self.state.present(range);
        let set = |part| tables::set(&mut self.arena, part, rights);
        parts.into_iter().try_for_each(set).map_err(refused)
    }
}

fn user(start: u64, length: u64) -> Result<Range<u64>, Errno> {
    if !start.is_multiple_of(PAGE) {
        return Err(Errno::INVAL);
    }
    match start.checked_add(length) {
        Some(end) if start >= USER_START && end <= USER_END => Ok(start..end),
        _ => Err(Errno::NOMEM),
    }
}

/// The host refused to change the arena: the guest is told that memory is short.
fn refused(error: io::Error) -> Errno {
    tracing::warn!(%error, "the host refused to change a guest's memory");
    Errno::NOMEM
}
