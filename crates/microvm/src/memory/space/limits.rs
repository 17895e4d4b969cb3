//! Limits of a guest's mappings: bytes, and number of regions.

use std::io;
use std::ops::Range;

use rustix::io::Errno;

use super::{Space, SpaceState, refused};
use crate::memory::layout::USER_END;
use crate::memory::rights::Rights;
use crate::memory::scan::Scanner;

/// Regions of an address space: Linux refuses more mappings as well.
pub(super) const MAX_REGIONS: usize = 65_530;

impl Space {
    /// Bytes from which a limit counts: see [`Space::allow`].
    pub(super) fn given(&self) -> u64 {
        self.state.given.unwrap_or_else(|| self.state.counted())
    }

    /// Allows `more` bytes beyond those that counted when the first machine of this line was
    /// frozen, or that count now if none was. Pages that were never accessible do not count.
    pub fn allow(&mut self, more: u64) {
        self.limit = self.given().saturating_add(more);
    }

    /// Bytes that count as memory.
    pub(crate) fn counted(&self) -> u64 {
        self.state.counted()
    }

    /// The limit without the bytes that counted when the first machine was frozen; none where there
    /// is no limit.
    pub(crate) fn own_bytes(&self) -> Option<u64> {
        let limited = self.limit != u64::MAX;
        limited.then(|| self.limit.saturating_sub(self.state.given.unwrap_or(0)))
    }

    /// Whether there is room for this many regions more.
    pub(crate) fn has_room_for(&self, regions: usize) -> bool {
        self.check_count(regions).is_ok()
    }

    /// ENOMEM where `more` regions, or mappings of files, would be too many.
    pub(super) fn check_count(&self, more: usize) -> Result<(), Errno> {
        let SpaceState { regions, files, shared, .. } = &self.state;
        let now = regions.count().max(files.count()).max(shared.count());
        let too_many = more > 0 && now + more > MAX_REGIONS;
        if too_many { Err(Errno::NOMEM) } else { Ok(()) }
    }

    /// Regions that a mapping with these rights consists of beside itself: each part in which its
    /// template's bytes are hidden, and what follows it.
    pub(super) fn hidden_by(&self, range: &Range<u64>, rights: Rights) -> usize {
        if rights.count() { 0 } else { 2 * self.arena.stale(range.clone()).len() }
    }

    /// Whether the address space has one region more without `range`.
    pub(super) fn surround(&self, range: &Range<u64>) -> bool {
        let SpaceState { regions, files, shared, .. } = &self.state;
        regions.surround(range) || files.surround(range) || shared.surround(range)
    }

    /// Bytes that may still count as memory within the limit.
    pub(crate) fn room(&self) -> u64 {
        self.limit.saturating_sub(self.state.counted())
    }

    /// The same, with what may be borrowed beyond the limit.
    pub(super) fn most_room(&self) -> u64 {
        self.limit.saturating_add(self.loan).saturating_sub(self.state.counted())
    }

    /// Bytes that count beyond the limit.
    pub(crate) fn borrowed(&self) -> u64 {
        self.state.counted().saturating_sub(self.limit)
    }

    /// Sets how many bytes may count beyond the limit.
    pub(crate) fn borrow(&mut self, bytes: u64) {
        self.loan = bytes;
    }

    /// Makes room for the bytes that `need` tells, by taking back what was never touched: first
    /// whole pages, then parts of huge pages. Hardly more than is needed, so that the time that it
    /// takes is bounded by what the caller does with the room. `need` is asked again after each
    /// step: what is taken back may be a part of what is needed. ENOMEM where that is not enough.
    pub(super) fn make_room(&mut self, need: impl Fn(&SpaceState) -> u64) -> Result<(), Errno> {
        let lack = |space: &Self| need(&space.state).saturating_sub(space.most_room());
        let is_enough = |space: &Self| lack(space) == 0;
        if is_enough(self) {
            return Ok(());
        }
        let can_be = need(&self.state) <= self.reachable_room();
        if can_be && self.take_back(is_enough) {
            // All of them where those that hold enough are a part of what is needed.
            for wanted in [lack(self), u64::MAX] {
                if is_enough(self) || !self.leave_huge(wanted)? {
                    break;
                }
                self.take_back(is_enough);
            }
        }
        if is_enough(self) { Ok(()) } else { Err(Errno::NOMEM) }
    }

    /// Moves blocks to small pages until these leave out so many bytes that may be taken back.
    /// Returns whether any did.
    fn leave_huge(&mut self, wanted: u64) -> Result<bool, Errno> {
        let files = &self.state.files;
        let may_take = |block: &Range<u64>| files.inside(block.clone()).next().is_none();
        self.arena.leave_huge(wanted, may_take).map_err(refused)
    }

    /// Room beyond which taking back never comes: what a clone shares with its origin is not taken
    /// back.
    fn reachable_room(&self) -> u64 {
        let shared = self.arena.inherited(0..USER_END).into_iter();
        let stays: u64 = shared.map(|part| self.state.counted_in(part)).sum();
        self.limit.saturating_add(self.loan).saturating_sub(stays)
    }

    /// Sets what tells which pages of a clone hold anything. Without it, what is mapped within the
    /// limit counts whether it was touched or not.
    pub(crate) fn measure_by(&mut self, scanner: Scanner) {
        self.scanner = Some(scanner);
    }

    /// After this process was forked: a scanner asks about the process that opened it.
    ///
    /// # Errors
    /// When the host refuses another one.
    pub(crate) fn measure_anew(&mut self) -> io::Result<()> {
        self.scanner = self.scanner.take().map(|_| Scanner::open()).transpose()?;
        Ok(())
    }

    /// Sets the guest's own limit, whatever is mapped already.
    pub(crate) fn set_own_limit(&mut self, bytes: u64) {
        self.own_limit = bytes;
    }

    /// Bytes of its template's holes that a clone would use by these rights to a range; none where
    /// they are too many.
    pub(super) fn cost_of_holes(&self, range: &Range<u64>, rights: Rights) -> Option<u64> {
        if rights.count() { self.arena.cost_of_holes(range) } else { Some(0) }
    }

    /// Uses them. ENOMEM where they are too many.
    pub(super) fn check_holes(&self, range: &Range<u64>, rights: Rights) -> Result<(), Errno> {
        let may = !rights.count() || self.arena.open_holes(range);
        if may { Ok(()) } else { Err(Errno::NOMEM) }
    }

    /// ENOMEM where `more` bytes would be more than the guest allows itself.
    pub(super) fn check_own_room(&self, more: u64) -> Result<(), Errno> {
        if self.own_limit == u64::MAX {
            return Ok(());
        }
        let mapped: u64 = self.state.regions.iter().map(|(it, _)| it.end - it.start).sum();
        if mapped.saturating_add(more) > self.own_limit { Err(Errno::NOMEM) } else { Ok(()) }
    }

    /// Number of regions that are split when those parts of them get these rights.
    pub(super) fn cuts(&self, parts: &[(Range<u64>, Rights)], rights: Rights) -> usize {
        let cut = |address: u64, now: Rights| {
            usize::from(now.turned_into(rights) != now && self.state.regions.cut_at(address))
        };
        let (first, last) = (parts.first(), parts.last());
        first.map_or(0, |(part, now)| cut(part.start, *now))
            + last.map_or(0, |(part, now)| cut(part.end, *now))
    }
}
