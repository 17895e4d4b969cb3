//! Putting a clone's address space back to the state of its template, and copying it into one of
//! its own.

use std::collections::BTreeSet;
use std::io;

use super::{Space, SpaceState};
use crate::memory::arena::Arena;
use crate::memory::layout::{ARENA_BYTES, MONITOR, PAGE, pages};
use crate::memory::scan::Scanner;
use crate::mutant::{self, Mutant};

/// What a reset did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reset {
    /// Pages whose bytes were copied back from the template.
    pub pages: u64,
    /// Ranges of page-table entries that the processor had to forget.
    pub flushed: usize,
}

impl Space {
    /// Puts a clone back to the state that it was cloned with.
    pub(crate) fn reset(&mut self, state: &SpaceState, scanner: &Scanner) -> io::Result<Reset> {
        let origin = self.arena.origin().cloned();
        let origin = origin.ok_or_else(|| io::Error::other("not a clone"))?;
        let (changed, used) = self.journal.take(origin.own());
        for zone in used {
            self.arena.discard(zone)?;
        }
        self.arena.forget_huge()?;
        let mut reset = Reset { pages: 0, flushed: changed.len() };
        let base = self.arena.address();
        for part in self.arena.inherited(0..ARENA_BYTES) {
            for page in scanner.private(base + part.start..base + part.end)? {
                reset.pages += self.arena.put_back(page.start - base..page.end - base)? / PAGE;
            }
        }
        // After the tables are back: KVM and the processor forget what they derived from the
        // changed entries.
        if !mutant::leaves_out(Mutant::NoFlush) {
            for range in changed {
                self.arena.flush(range)?;
            }
        }
        self.state.clone_from(state);
        (self.scans, self.exhausted) = (0, false);
        Ok(reset)
    }

    /// A copy with an arena of its own, which can be frozen. What was never touched is promised in
    /// it, in clones of it as far as [`Space::leave_to_clones`] says.
    pub(crate) fn into_own(mut self, scanner: &Scanner) -> io::Result<Self> {
        self.measure_by(scanner.clone());
        // Whole pages alone: zeros on a huge page that was touched are seldom a block together.
        self.take_back(|_| false);
        let origin = self.arena.origin().cloned();
        let origin = origin.ok_or_else(|| io::Error::other("not a clone"))?;
        let base = self.arena.address();
        let mut own = Self::of(Arena::new()?, self.state.clone());
        (own.limit, own.loan) = (self.limit, self.loan);
        let mapped = self.state.regions.iter().map(|(range, _)| range);
        for range in mapped.chain(std::iter::once(MONITOR..ARENA_BYTES)) {
            let mut filled = Vec::new();
            for part in self.arena.inherited(range.clone()) {
                filled.extend(origin.filled(part)?);
            }
            let private = scanner.private(base + range.start..base + range.end)?;
            filled.extend(private.iter().map(|part| part.start - base..part.end - base));
            for page in filled.into_iter().flat_map(pages) {
                let bytes = self.arena.bytes(page..page + PAGE);
                // A page of zeros is one already.
                if bytes.iter().any(|byte| *byte != 0) {
                    own.arena.bytes_mut(page..page + PAGE).copy_from_slice(bytes);
                }
            }
        }
        Ok(own)
    }

    /// Names each difference from the state that it was cloned with.
    pub(crate) fn differences(
        &self,
        state: &SpaceState,
        scanner: &Scanner,
    ) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        let Some(origin) = self.arena.origin() else {
            return Err(io::Error::other("not a clone"));
        };
        let base = self.arena.address();
        for zone in origin.own() {
            for page in scanner.touched(base + zone.start..base + zone.end)? {
                found.push(format!("memory at {:#x} that was to be given back", page.start - base));
            }
        }
        // Not by the scanner, on which a reset relies: all mapped pages, the page tables, and all
        // else that the origin holds. The rest of the arena is zero; reading it would take
        // gigabytes.
        let mapped = state.regions.iter().flat_map(|(range, _)| self.arena.inherited(range));
        let mut looked_at: BTreeSet<u64> =
            mapped.chain(std::iter::once(MONITOR..ARENA_BYTES)).flat_map(pages).collect();
        for part in self.arena.inherited(0..ARENA_BYTES) {
            looked_at.extend(origin.filled(part.clone())?.into_iter().flat_map(pages));
            let private = scanner.private(base + part.start..base + part.end)?;
            let here = private.into_iter().map(|part| part.start - base..part.end - base);
            looked_at.extend(here.flat_map(pages));
        }
        for page in looked_at {
            if self.arena.bytes(page..page + PAGE) != origin.bytes(page..page + PAGE) {
                found.push(format!("the page at {page:#x}"));
            }
        }
        if self.state != *state {
            found.push(format!("mappings: {:x?} instead of {state:x?}", self.state));
        }
        Ok(found)
    }
}
