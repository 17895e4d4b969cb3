//! What a clone has to undo in its page tables when it is reset.

use std::ops::Range;

use crate::memory::arena::Arena;
use crate::memory::layout::BLOCK;

/// The entries of the page tables that a clone has changed since it was cloned or reset.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// Ranges in which it shares pages with its origin.
    inherited: Vec<Range<u64>>,
    /// How far each zone of its own memory was used: the highest address. As many as there are
    /// zones, or none.
    own: Vec<u64>,
}

impl Journal {
    /// Ranges noted one by one; beyond that, one range covers them all.
    const MAX_RANGES: usize = 64;

    /// Notes that the entries of `range` change.
    pub(crate) fn note(&mut self, arena: &Arena, range: &Range<u64>) {
        let Some(origin) = arena.origin() else { return };
        self.own.resize(origin.own().len(), 0);
        for (zone, top) in origin.own().iter().zip(&mut self.own) {
            if range.start < zone.end && zone.start < range.end {
                *top = (*top).max(range.end.min(zone.end));
            }
        }
        for part in arena.inherited(range.clone()) {
            match self.inherited.last_mut() {
                Some(last) if last.end == part.start => last.end = part.end,
                Some(last) if *last == part => {}
                _ => self.inherited.push(part),
            }
        }
        if self.inherited.len() > Self::MAX_RANGES {
            let start = self.inherited.iter().map(|part| part.start).min().unwrap_or(0);
            let end = self.inherited.iter().map(|part| part.end).max().unwrap_or(0);
            self.inherited.clear();
            self.inherited.push(start..end);
        }
    }

    /// The ranges to be flushed, and the memory of its own (`zones`) to be given back. The journal
    /// is empty afterwards.
    pub(super) fn take(&mut self, zones: &[Range<u64>]) -> (Vec<Range<u64>>, Vec<Range<u64>>) {
        let journal = std::mem::take(self);
        let used = zones.iter().zip(journal.own);
        let used = used.map(|(zone, top)| zone.start..top.next_multiple_of(BLOCK).min(zone.end));
        (journal.inherited, used.filter(|zone| !zone.is_empty()).collect())
    }
}
