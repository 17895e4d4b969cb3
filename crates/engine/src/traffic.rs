//! Calls under way, and the quiet moments between them, in which background work is done.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

/// A moment is quiet when no call was under way for that long: the answer has left, what served it
/// is being destroyed.
const QUIET: Duration = Duration::from_millis(5);

/// Longest wait for a quiet moment: on a busy worker, waiting has a price, too.
const LULL_TIMEOUT: Duration = Duration::from_secs(1);

/// The calls of one engine.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    calls: AtomicUsize,
    ended: Mutex<Option<Instant>>,
}

/// A call that is under way, until this is dropped.
#[derive(Debug)]
pub(crate) struct ActiveCall<'a>(&'a Traffic);

impl Traffic {
    /// Registers a call as under way.
    pub(crate) fn enter(&self) -> ActiveCall<'_> {
        self.calls.fetch_add(1, Ordering::AcqRel);
        ActiveCall(self)
    }

    /// Returns in a quiet moment, or when none came for long.
    pub(crate) async fn lull(&self) {
        let deadline = Instant::now() + LULL_TIMEOUT;
        while Instant::now() < deadline {
            let ended = *self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            let quiet = ended.map(|ended| ended + QUIET);
            match quiet {
                _ if self.calls.load(Ordering::Acquire) > 0 => sleep(QUIET).await,
                Some(quiet) if quiet > Instant::now() => sleep_until(quiet).await,
                _ => return,
            }
        }
    }
}

impl Drop for ActiveCall<'_> {
    fn drop(&mut self) {
        *self.0.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.0.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_quiet_moment_comes_after_the_last_call_and_is_not_waited_for_without_end() {
        let traffic = Traffic::default();
        let began = Instant::now();
        traffic.lull().await;
        assert_eq!(began.elapsed(), Duration::ZERO, "no call came yet");
        let call = traffic.enter();
        let wait = async {
            traffic.lull().await;
            began.elapsed()
        };
        let answer = async {
            sleep(Duration::from_millis(100)).await;
            drop(call);
        };
        let (waited, ()) = tokio::join!(wait, answer);
        assert!(waited >= Duration::from_millis(100) + QUIET, "{waited:?}");
        assert!(waited < LULL_TIMEOUT);
        let _for_ever = traffic.enter();
        traffic.lull().await;
        assert!(began.elapsed() >= waited + LULL_TIMEOUT, "it goes on beside the calls");
    }
}
