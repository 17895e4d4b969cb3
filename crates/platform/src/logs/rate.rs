//! How fast a function may fill its log: one that prints without end must not take the writer, and the disk's time, from
//! the others. What comes too fast is dropped, and the next piece that fits says how much it was. Both count by what they take
//! in the log.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::limits::bucket::{Bucket, Rate};
use crate::limits::shares::{Share, Shares};

/// What is left to each function, by the names of their directories.
#[derive(Debug)]
pub(super) struct Buckets {
    rate: Rate,
    /// Places of the writer's queue, by function.
    places: Arc<Shares>,
    of: HashMap<String, Function>,
}

#[derive(Debug)]
struct Function {
    bucket: Bucket,
    /// Dropped bytes that no line of the log has mentioned yet.
    dropped: u64,
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
#[derive(Debug)]
pub(super) enum Verdict {
    /// It does, and has a place in the queue. So many bytes of text before it did not.
    Passes { place: Share, dropped: u64 },
    /// It does not: it comes too fast, or too much of its function's waits already.
    Dropped,
    /// It is of a function that is gone.
    Gone,
}

impl Buckets {
    /// For a queue of so many pieces.
    pub(super) fn new(rate: Rate, queue: usize) -> Self {
        Self { rate, places: Shares::new(queue as u64), of: HashMap::new() }
    }

    /// Judges a piece of a function's output. Of an unknown function it asks whether that exists: a call that outlives its
    /// function would otherwise leave an entry here for good.
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
            let bucket = Bucket::full(self.rate, now);
            self.of.insert(name.to_owned(), Function { bucket, dropped: 0 });
        }
        let Some(function) = self.of.get_mut(name) else { return Verdict::Dropped };
        let takes = piece.weight + if function.dropped > 0 { TOLD } else { 0 };
        let place = self.places.try_take(name, 1);
        match place.filter(|_| function.bucket.take(takes as f64, self.rate, now).is_ok()) {
            Some(place) => {
                Verdict::Passes { place, dropped: std::mem::take(&mut function.dropped) }
            }
            None => {
                function.dropped += piece.text as u64;
                Verdict::Dropped
            }
        }
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
        let mut buckets = Buckets::new(Rate { each_second: 1000.0, burst: 1000.0 }, 100);
        let begin = Instant::now();
        let piece = |weight| Piece { text: weight / 10, weight };
        let mut told =
            |name: &str, weight, now| match buckets.judge(name, piece(weight), now, || true) {
                Verdict::Passes { dropped, .. } => Some(dropped),
                _ => None,
            };
        assert_eq!(told("loud", 1010, begin), None);
        assert_eq!(told("loud", 810, begin), None, "nor what says so does fit");
        assert_eq!(told("loud", 800, begin), Some(182));
        assert_eq!(told("quiet", 1000, begin), Some(0));
        let later = begin + Duration::from_secs(1);
        assert_eq!(told("loud", 1000, later), Some(0));
        buckets.forget("loud");
        let again = buckets.judge("loud", piece(1000), later, || true);
        assert!(matches!(again, Verdict::Passes { dropped: 0, .. }), "{again:?}");
        buckets.forget("loud");
        let gone = buckets.judge("loud", piece(10), later, || false);
        assert!(matches!(gone, Verdict::Gone), "{gone:?}");
        assert!(!buckets.of.contains_key("loud"), "nothing is kept of what is gone");
    }
}
