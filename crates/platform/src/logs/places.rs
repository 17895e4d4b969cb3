//! Shares the places of the writer's queue among functions: each has at most as many as are free. A single function takes
//! half of them, and the next one finds places however much the first writes. A function that writes nothing holds none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many places there are, and how many are taken.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    taken: Arc<AtomicUsize>,
}

/// How many of them one function has.
#[derive(Debug, Default)]
pub(super) struct Share(Arc<AtomicUsize>);

/// A piece's place. Given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place([Arc<AtomicUsize>; 2]);

impl Places {
    pub(super) fn new(most: usize) -> Self {
        Self { most, taken: Arc::default() }
    }

    /// Takes a place for a function; none, when it has as many as are free. By one thread at a time: others only give places
    /// back meanwhile.
    pub(super) fn take(&mut self, share: &Share) -> Option<Place> {
        let free = self.most.saturating_sub(self.taken.load(Ordering::Relaxed));
        if share.0.load(Ordering::Relaxed) >= free {
            return None;
        }
        let counts = [Arc::clone(&self.taken), Arc::clone(&share.0)];
        for count in &counts {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Some(Place(counts))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for count in &self.0 {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_all_it_gets_leaves_half_of_the_places_and_gives_back_its_own() {
        let mut places = Places::new(100);
        let (loud, louder, quiet) = (Share::default(), Share::default(), Share::default());
        let mut all =
            |share: &Share| -> Vec<Place> { std::iter::from_fn(|| places.take(share)).collect() };
        let (of_loud, of_louder) = (all(&loud), all(&louder));
        assert_eq!((of_loud.len(), of_louder.len()), (50, 25));
        assert_eq!(all(&quiet).len(), 13);
        drop(of_loud);
        assert_eq!(all(&quiet).len(), 38);
        drop(of_louder);
        assert_eq!(all(&quiet).len(), 50);
    }
}
