//! How many calls of a function run at once, and how many may.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What a function's own limit is kept as, beside the function: a number, as text. No limit: it is not there.
pub const RESERVED: &str = "reserved-concurrency";

/// In place of a limit.
const UNLIMITED: u32 = u32::MAX;

/// Counts the calls of a function, whichever of its versions they are of.
#[derive(Debug)]
pub struct Concurrency {
    running: AtomicU32,
    most: AtomicU32,
}

impl Default for Concurrency {
    fn default() -> Self {
        Self { running: AtomicU32::new(0), most: AtomicU32::new(UNLIMITED) }
    }
}

/// A call under way. Dropping it ends it.
#[derive(Debug)]
pub struct Running(Arc<Concurrency>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Concurrency {
    /// Says how many calls may run at once; those that run go on. None: as many as there is room for.
    pub fn limit(&self, most: Option<u32>) {
        self.most.store(most.unwrap_or(UNLIMITED), Ordering::Relaxed);
    }

    /// The limit, where there is one.
    #[must_use]
    pub fn most(&self) -> Option<u32> {
        Some(self.most.load(Ordering::Relaxed)).filter(|most| *most != UNLIMITED)
    }

    /// Begins a call; none when as many run as may.
    #[must_use]
    pub fn begin(self: &Arc<Self>) -> Option<Running> {
        let most = self.most.load(Ordering::Relaxed);
        let one_more = |running: u32| (running < most).then(|| running + 1);
        let begun = self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        begun.ok().map(|_| Running(Arc::clone(self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_calls_run_as_may_and_those_before_the_limit_count() {
        let calls = Arc::new(Concurrency::default());
        let first = calls.begin().unwrap();
        calls.limit(Some(2));
        let second = calls.begin().unwrap();
        assert!(calls.begin().is_none());
        // A lower limit ends nothing.
        calls.limit(Some(1));
        drop(first);
        assert!(calls.begin().is_none());
        drop(second);
        let third = calls.begin().unwrap();
        calls.limit(Some(0));
        drop(third);
        assert!(calls.begin().is_none());
        calls.limit(None);
        assert_eq!((calls.begin().is_some(), calls.most()), (true, None));
    }
}
