//! When something that failed may be tried again.

use std::time::Duration;

use tokio::time::Instant;

/// Longest time between two tries.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// Failures in a row to make a zygote.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    failures: u32,
    until: Instant,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { failures: 0, until: Instant::now() }
    }
}

impl Backoff {
    /// Counts a failure: the next try waits for `retry`, and twice as long after each further one.
    pub(crate) fn fail(&mut self, retry: Duration) {
        let wait = retry.saturating_mul(1 << self.failures.min(16)).min(MAX_WAIT.max(retry));
        self.failures = self.failures.saturating_add(1);
        self.until = Instant::now() + wait;
    }

    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// When the next try is allowed.
    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    /// Whether the next try is not allowed yet.
    pub(crate) fn is_active(&self) -> bool {
        Instant::now() < self.until
    }
}
