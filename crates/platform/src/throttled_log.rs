//! Lines of the worker's log whose rate a client controls: at most one in a while.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lets one through now and then, and counts the others.
#[derive(Debug)]
pub struct Seldom {
    every: Duration,
    state: Mutex<(Option<Instant>, u64)>,
}

impl Seldom {
    /// One in so much time.
    pub const fn new(every: Duration) -> Self {
        Self { every, state: Mutex::new((None, 0)) }
    }

    /// Whether to say it now; then how often it was not said since the last time.
    pub fn now(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, unsaid) = &mut *state;
        if last.is_some_and(|last| now.duration_since(last) < self.every) {
            *unsaid += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_while_is_said_with_how_many_were_not() {
        let seldom = Seldom::new(Duration::from_secs(10));
        let began = Instant::now();
        let at = |seconds| seldom.now(began + Duration::from_secs(seconds));
        assert_eq!(
            (at(0), at(1), at(9), at(10), at(11), at(30)),
            (Some(0), None, None, Some(2), None, Some(1))
        );
    }
}
