//! How long a deploy waits for an index, and whether its client still waits for the deploy.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One deploy's. Its time runs from the first program that is started for it; what a build takes
/// does not count.
pub struct Patience {
    limit: Duration,
    until: Mutex<Option<Instant>>,
    given_up: Box<dyn Fn() -> bool + Send + Sync>,
}

/// Why a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// It took longer than this.
    TooLong(Duration),
    /// The client has gone, or the worker stops.
    GivenUp,
    /// The program took more than it may: its caller watches that.
    Excessive,
}

impl Patience {
    /// Waits for `limit`; `given_up` is asked many times a second whether the client has gone.
    #[must_use]
    pub fn of(limit: Duration, given_up: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { limit, until: Mutex::new(None), given_up: Box::new(given_up) }
    }

    /// Waits for ever: for programs that end by themselves.
    #[must_use]
    pub fn endless() -> Self {
        Self::of(Duration::MAX, || false)
    }

    /// Whether the client has gone, or the worker stops.
    #[must_use]
    pub fn given_up(&self) -> bool {
        (self.given_up)()
    }

    /// Whether it is over, and why.
    #[must_use]
    pub fn over(&self) -> Option<Over> {
        if self.given_up() {
            return Some(Over::GivenUp);
        }
        let now = Instant::now();
        // Further off than the clock reaches is never.
        let until = *self.until().get_or_insert(now.checked_add(self.limit)?);
        (now >= until).then_some(Over::TooLong(self.limit))
    }

    /// Does something that has a limit of its own.
    pub fn aside<T>(&self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = work();
        if let Some(until) = &mut *self.until() {
            *until += began.elapsed();
        }
        result
    }

    fn until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, until, .. } = self;
        f.debug_struct("Patience")
            .field("limit", limit)
            .field("until", until)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_aside_does_not_count() {
        let patience = Patience::of(Duration::from_secs(3600), || false);
        assert_eq!(patience.over(), None);
        let before = patience.until().unwrap();
        patience.aside(|| std::thread::sleep(Duration::from_millis(20)));
        assert!(patience.until().unwrap() >= before + Duration::from_millis(20));
    }

    #[test]
    fn it_ends_by_its_limit_or_with_who_waits() {
        let none = Patience::of(Duration::ZERO, || false);
        assert_eq!(none.over(), Some(Over::TooLong(Duration::ZERO)));
        assert_eq!(Patience::of(Duration::MAX, || true).over(), Some(Over::GivenUp));
        assert_eq!(Patience::endless().over(), None);
    }
}
