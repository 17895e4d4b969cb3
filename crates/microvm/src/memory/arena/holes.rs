//! The holes of a frozen arena: parts of its file that hold nothing, and that clones do not have to
//! themselves.
//!
//! A first touch of a hole, even to read, makes a page of the file. It counts for no clone, and
//! stays for as long as the template lives. So all clones of a template together may use
//! [`MAX_BYTES`] of them, each page counted once.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::memory::regions::Regions;
use crate::memory::rights::Rights;

/// Bytes of its holes that all clones of a template may use.
pub(crate) const MAX_BYTES: u64 = 64 << 20;

/// The holes of a frozen arena.
#[derive(Debug)]
pub(super) struct Holes {
    all: Regions,
    unused: Mutex<Unused>,
}

/// The holes that no clone has used, and the bytes that clones may still use.
#[derive(Debug)]
struct Unused {
    ranges: Regions,
    left: u64,
}

impl Unused {
    fn cost(&self, range: &Range<u64>) -> Option<u64> {
        let parts = self.ranges.inside(range.clone());
        let bytes = parts.map(|(part, _)| part.end - part.start).sum();
        (bytes <= self.left).then_some(bytes)
    }
}

impl Holes {
    pub(super) fn new(ranges: Vec<Range<u64>>) -> Self {
        let mut all = Regions::default();
        ranges.into_iter().for_each(|range| all.set(range, Rights::NONE));
        let unused = Mutex::new(Unused { ranges: all.clone(), left: MAX_BYTES });
        Self { all, unused }
    }

    /// Notes that a clone uses the holes of `range`. Returns whether it may.
    pub(super) fn open(&self, range: &Range<u64>) -> bool {
        let mut unused = self.unused();
        let Some(bytes) = unused.cost(range) else { return false };
        if bytes > 0 {
            unused.ranges.clear(range.clone());
            unused.left -= bytes;
        }
        true
    }

    /// Bytes that [`Holes::open`] would take of those that clones may still use; none where it
    /// would refuse.
    pub(super) fn cost(&self, range: &Range<u64>) -> Option<u64> {
        self.unused().cost(range)
    }

    fn unused(&self) -> MutexGuard<'_, Unused> {
        self.unused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The parts of a range that are holes.
    pub(super) fn inside(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        self.all.inside(range).map(|(part, _)| part)
    }

    /// The parts of a range between the holes. In the holes all is zero, whether clones have used
    /// them or not.
    pub(super) fn between(&self, range: Range<u64>) -> Vec<Range<u64>> {
        self.all.gaps(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_counted_once_and_up_to_a_limit() {
        let mib = |range: Range<u64>| range.start << 20..range.end << 20;
        let holes = Holes::new(vec![mib(10..50), mib(60..100)]);
        assert!(holes.open(&mib(0..10)) && holes.open(&mib(50..60)));
        assert!(holes.open(&mib(0..40)) && holes.open(&mib(20..40)));
        assert_eq!(holes.unused.lock().unwrap().left, 34 << 20);
        // Ten, and forty: nothing is used of what is refused, or asked about.
        assert_eq!(holes.cost(&mib(0..200)), None);
        assert_eq!(holes.cost(&mib(45..80)), Some(25 << 20));
        assert!(!holes.open(&mib(0..200)));
        assert!(holes.open(&mib(45..80)) && holes.open(&mib(90..99)));
        assert_eq!(holes.unused.lock().unwrap().left, 0);
        assert!(!holes.open(&mib(99..100)));
        assert!(holes.open(&mib(10..40)) && holes.open(&mib(100..200)));
        assert!(holes.inside(mib(45..70)).eq([mib(45..50), mib(60..70)]));
        assert_eq!(holes.between(mib(5..110)), [mib(5..10), mib(50..60), mib(100..110)]);
    }
}
