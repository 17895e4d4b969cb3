//! The part of a mapping whose bytes are still to be copied from its file. Plain data:
//! [`mapped_files::deferred`](crate::linux::mapped_files::deferred) decides when they are copied.

use std::ops::Range;

use crate::memory::layout::PAGE;
use crate::memory::rights::Rights;
use crate::vfs::NodeId;

/// The part of one mapping that is owed to the guest.
#[derive(Debug)]
pub(crate) struct DeferredCopy {
    /// The owed parts, by address, and the guest's rights to each afterwards.
    pub(crate) parts: Vec<(Range<u64>, Rights)>,
    /// The file, and the offset of the address `start` in it.
    pub(crate) node: NodeId,
    pub(crate) start: u64,
    pub(crate) offset: u64,
}

impl DeferredCopy {
    pub(crate) fn new(range: Range<u64>, node: NodeId, offset: u64, rights: Rights) -> Self {
        let start = range.start;
        Self { parts: vec![(range, rights)], node, start, offset }
    }

    /// Another mapping took this range, which is not owed any more.
    pub(crate) fn cut(&mut self, range: &Range<u64>) {
        let parts = std::mem::take(&mut self.parts).into_iter().flat_map(|(part, rights)| {
            let before = part.start..part.end.min(range.start);
            let behind = part.start.max(range.end)..part.end;
            [(before, rights), (behind, rights)]
        });
        self.parts = parts.filter(|(part, _)| part.start < part.end).collect();
    }

    /// Takes the rights from a range of whole pages, if it lies in one part. Returns whether it
    /// does.
    pub(crate) fn hide(&mut self, range: Range<u64>) -> bool {
        let mut parts = self.parts.iter().map(|(part, _)| part);
        let is_in_one = parts.any(|part| part.start <= range.start && range.end <= part.end);
        let is_one = is_in_one && range.start.is_multiple_of(PAGE);
        if is_one && !range.is_empty() {
            self.cut(&range);
            self.parts.push((range, Rights::NONE));
        }
        is_one
    }

    pub(crate) fn hold(&self, address: u64) -> bool {
        self.parts.iter().any(|(part, rights)| part.contains(&address) && rights.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten pages, from the tenth on.
    fn owed() -> DeferredCopy {
        DeferredCopy::new(pages(10..20), NodeId(1), 0, Rights::READ)
    }

    fn pages(numbers: Range<u64>) -> Range<u64> {
        numbers.start * PAGE..numbers.end * PAGE
    }

    fn numbers(deferred: &DeferredCopy) -> Vec<u64> {
        let parts = deferred.parts.iter().map(|(part, _)| part.start / PAGE..part.end / PAGE);
        let mut all: Vec<u64> = parts.flatten().collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_part_that_is_mapped_over_is_no_longer_owed() {
        let left = |cuts: &[Range<u64>]| {
            let mut deferred = owed();
            cuts.iter().for_each(|cut| deferred.cut(&pages(cut.clone())));
            (deferred.parts.len(), numbers(&deferred))
        };
        assert_eq!(left(&[]), (1, (10..20).collect()));
        assert_eq!(left(&[0..10, 20..30]), (1, (10..20).collect()));
        assert_eq!(left(&[12..13, 13..14]), (2, [10, 11].into_iter().chain(14..20).collect()));
        assert_eq!(left(&[12..14, 13..16, 5..11]), (2, [11].into_iter().chain(16..20).collect()));
        assert_eq!(left(&[12..14, 0..30]), (0, vec![]));
    }

    #[test]
    fn a_hidden_part_stays_owed_and_must_not_be_touched() {
        let mut deferred = owed();
        let is_something_elses = [5..12, 18..21].map(|range| !deferred.hide(pages(range)));
        assert_eq!(is_something_elses, [true; 2]);
        assert!(deferred.hide(pages(12..18)));
        deferred.cut(&pages(14..16));
        let held = (8..22).filter(|page| deferred.hold(page * PAGE + 7)).collect::<Vec<u64>>();
        assert_eq!(held, [10, 11, 18, 19]);
        assert!(!deferred.hide(pages(13..15)) && deferred.hide(pages(16..18)));
        assert_eq!(numbers(&deferred), [10, 11, 12, 13, 16, 17, 18, 19]);
    }

    #[test]
    fn a_range_that_begins_within_a_page_is_not_hidden() {
        let mut deferred = owed();
        assert!(!deferred.hide(11 * PAGE + 16..13 * PAGE + 16));
        assert_eq!(deferred.parts.len(), 1);
    }
}
