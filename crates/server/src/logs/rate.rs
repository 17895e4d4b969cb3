//! How fast a function may fill its log: one that prints without end must not take the writer, and the disk's time, from
//! the others. What comes too fast is dropped, and the next piece that fits says how much it was. Both count by what they take
//! in the log.

use std::collections::HashMap;
use std::time::Instant;

use crate::bucket::{Bucket, Rate};

/// What is left to each function, by the names of their directories.
#[derive(Debug)]
pub(super) struct Buckets {
    rate: Rate,
    of: HashMap<String, (Bucket, u64)>,
}

/// What the words take in the log, at most, that say how much was dropped.
const TOLD: usize = 200;

/// A piece of output, by its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// What was written.
    pub(super) text: usize,
    /// What it takes in the log.
    pub(super) weight: usize,
}

/// Whether a piece passes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It does. So many bytes of text before it did not.
    Passes { dropped: u64 },
    /// It does not.
    Dropped,
    /// It is of a function that is gone.
    Gone,
}

impl Buckets {
    pub(super) fn new(rate: Rate) -> Self {
        Self { rate, of: HashMap::new() }
    }

    /// Judges a piece of a function's output. Whether the function is there is asked where nothing is known of it: a call that
    /// outlives its function would else leave something here that nobody forgets.
    pub(super) fn judge(
        &mut self,
        name: &str,
        piece: Piece,
        now: Instant,
        is_there: impl FnOnce() -> bool,
    ) -> Verdict {
        if !self.of.contains_key(name) {
            if !is_there() {
                return Verdict::Gone;
            }
            self.of.insert(name.to_owned(), (Bucket::full(self.rate, now), 0));
        }
        let Some((bucket, dropped)) = self.of.get_mut(name) else { return Verdict::Dropped };
        let takes = piece.weight + if *dropped > 0 { TOLD } else { 0 };
        if bucket.take(takes as f64, self.rate, now).is_err() {
            *dropped += piece.text as u64;
            return Verdict::Dropped;
        }
        Verdict::Passes { dropped: std::mem::take(dropped) }
    }

    /// Forgets a function.
    pub(super) fn forget(&mut self, name: &str) {
        self.of.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_was_dropped_is_told_once_and_takes_nothing_from_another_function() {
        let mut buckets = Buckets::new(Rate { each_second: 1000.0, burst: 1000.0 });
        let begin = Instant::now();
        let piece = |weight| Piece { text: weight / 10, weight };
        let mut judge =
            |name: &str, weight, now| buckets.judge(name, piece(weight), now, || true);
        assert_eq!(judge("loud", 1010, begin), Verdict::Dropped);
        assert_eq!(judge("loud", 810, begin), Verdict::Dropped, "nor what says so does fit");
        assert_eq!(judge("loud", 800, begin), Verdict::Passes { dropped: 182 });
        assert_eq!(judge("quiet", 1000, begin), Verdict::Passes { dropped: 0 });
        let later = begin + Duration::from_secs(1);
        assert_eq!(judge("loud", 1000, later), Verdict::Passes { dropped: 0 });
        buckets.forget("loud");
        let again = buckets.judge("loud", piece(1000), later, || true);
        assert_eq!(again, Verdict::Passes { dropped: 0 });
        buckets.forget("loud");
        assert_eq!(buckets.judge("loud", piece(10), later, || false), Verdict::Gone);
        assert!(!buckets.of.contains_key("loud"), "nothing is kept of what is gone");
    }
}
