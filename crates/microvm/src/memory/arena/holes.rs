//! The holes of a frozen arena: parts of its file that hold nothing, and that clones do not have to
//! themselves.
//!
//! A first touch of a hole, even to read, makes a page of the file. It counts for no clone, and
//! stays for as long as the template lives. So all clones of a template together may use
//! [`MAX_BYTES`] of them, each page counted once.

use std::ops::Range;

use crate::memory::regions::Regions;
use crate::memory::rights::Rights;

/// Bytes of its holes that all clones of a template may use.
pub(crate) const MAX_BYTES: u64 = 64 << 20;

/// The holes that no clone has used, and the bytes that clones may still use.
#[derive(Debug)]
pub(super) struct Holes {
    unused: Regions,
    left: u64,
}

impl Holes {
    pub(super) fn new(ranges: Vec<Range<u64>>) -> Self {
        let mut unused = Regions::default();
        ranges.into_iter().for_each(|range| unused.set(range, Rights::NONE));
        Self { unused, left: MAX_BYTES }
    }

    /// Notes that a clone uses the holes of `range`. Returns whether it may.
    pub(super) fn open(&mut self, range: &Range<u64>) -> bool {
        let parts = self.unused.inside(range.clone());
        let bytes: u64 = parts.map(|(part, _)| part.end - part.start).sum();
        let Some(left) = self.left.checked_sub(bytes) else { return false };
        if bytes > 0 {
            self.unused.clear(range.clone());
            self.left = left;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_counted_once_and_up_to_a_limit() {
        let mib = |range: Range<u64>| range.start << 20..range.end << 20;
        let mut holes = Holes::new(vec![mib(10..50), mib(60..100)]);
        assert!(holes.open(&mib(0..10)) && holes.open(&mib(50..60)));
        assert!(holes.open(&mib(0..40)) && holes.open(&mib(20..40)));
        assert_eq!(holes.left, 34 << 20);
        // Ten, and forty: nothing is used of what is refused.
        assert!(!holes.open(&mib(0..200)));
        assert!(holes.open(&mib(45..80)) && holes.open(&mib(90..99)));
        assert_eq!(holes.left, 0);
        assert!(!holes.open(&mib(99..100)));
        assert!(holes.open(&mib(10..40)) && holes.open(&mib(100..200)));
    }
}
