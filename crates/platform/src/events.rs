//! Events: calls that no client waits for.
//!
//! ```text
//!   accept ─► call ─► it answered, or the function is gone ──────────────────────────► done
//!              ▲   └► the function failed: again after 1 and after 2 minutes, then no more
//!              └───── no room, or no sandbox: again after 1 s, 2 s, 4 s … 5 min, for 6 hours
//! ```
//! [`Tries`] may ask for less. Events are in memory alone: those that wait when the worker stops are lost. Each try finds the
//! version anew, so an event that waited runs on what is deployed by then. The pauses are those of AWS Lambda.

use std::array::IntoIter;
use std::iter::Take;
use std::sync::Arc;
use std::time::Duration;

use engine::CallError;
use function::Qualifier;
use futures_util::FutureExt as _;
use thiserror::Error;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::access::{Permit, Tokens, to};
use crate::invoke::{Event, InvokeError, Invoker};
use crate::limits::shares::Shares;
use crate::random;

/// Events that wait or run, of all tenants together; each takes a few kilobytes beside its body.
const MOST: u64 = 10_000;

/// Bytes of their bodies, of all tenants together.
const MOST_BYTES: u64 = 256 << 20;

/// Before the second try and before the third, where the function failed.
const AGAIN: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(120)];

/// The first pause and the longest one, where there was no room.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// No try begins later than that after an event was taken.
const MAX_AGE: Duration = Duration::from_secs(6 * 3600);

/// How often an event is tried, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tries {
    /// Tries after the first one, where the function failed; more than 2 count as 2.
    pub again: usize,
    /// No try begins later than that after the event was taken.
    pub age: Duration,
}

impl Default for Tries {
    fn default() -> Self {
        Self { again: AGAIN.len(), age: MAX_AGE }
    }
}

/// The tries of one event that are left.
#[derive(Debug)]
struct Left {
    again: Take<IntoIter<Duration, { AGAIN.len() }>>,
    pause: Duration,
    until: Instant,
}

impl Left {
    /// Those of an event that is taken now.
    fn of(tries: Tries, now: Instant) -> Self {
        let again = AGAIN.into_iter().take(tries.again);
        Self { again, pause: PAUSES.0, until: now + tries.age.min(MAX_AGE) }
    }

    /// How long to wait for the next try; none: there is none.
    fn next(&mut self, tried: Tried, now: Instant) -> Option<Duration> {
        let wait = match tried {
            Tried::Done => None,
            Tried::Failed => self.again.next(),
            Tried::NoRoom => {
                let wait = self.pause;
                self.pause = (wait * 2).min(PAUSES.1);
                Some(wait)
            }
        };
        wait.filter(|wait| now + *wait <= self.until)
    }
}

/// Takes events and runs them.
#[derive(Debug)]
pub struct Events {
    invoker: Arc<Invoker>,
    tokens: Arc<Tokens>,
    waiting: Arc<Shares>,
    bytes: Arc<Shares>,
    stop: CancellationToken,
}

/// As many events wait as may, or as many of this tenant's.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("as many events wait as may, or as many of this tenant's: try again later")]
pub struct Full;

/// What one try came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tried {
    /// Nothing is left to do.
    Done,
    /// The function failed.
    Failed,
    /// It could not be called now.
    NoRoom,
}

impl Events {
    /// Events that an invoker's functions are called with. An event of a token ends with it.
    #[must_use]
    pub fn new(invoker: Arc<Invoker>, tokens: Arc<Tokens>) -> Self {
        let (waiting, bytes) = (Shares::new(MOST), Shares::new(MOST_BYTES));
        Self { invoker, tokens, waiting, bytes, stop: CancellationToken::new() }
    }

    /// Takes no new event, and gives up those that wait. Calls that run go on.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Takes an event: it is run from now on, as often as `tries` says. Inside a tokio runtime.
    ///
    /// # Errors
    /// When too many wait, or the worker stops.
    pub fn accept(
        self: &Arc<Self>,
        permit: Permit<to::Invoke>,
        qualifier: Qualifier,
        event: Event,
        tries: Tries,
    ) -> Result<(), Full> {
        let (tenant, bytes) = (permit.tenant().as_str(), event.body.len() as u64);
        let share = self.waiting.try_take(tenant, 1).ok_or(Full)?;
        let room = self.bytes.try_take(tenant, bytes.max(1)).ok_or(Full)?;
        if self.stop.is_cancelled() {
            return Err(Full);
        }
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let left = Left::of(tries, Instant::now());
            let why = this.run(&permit, &qualifier, &event, left).await;
            if let Some(why) = why {
                let (function, id) = (permit.function(), event.id.as_str());
                tracing::warn!(%function, id, why, "an event was given up");
            }
            drop((share, room));
        });
        Ok(())
    }

    /// Runs an event until nothing is left to do; says why it was given up, if it was.
    async fn run(
        &self,
        permit: &Permit<to::Invoke>,
        qualifier: &Qualifier,
        event: &Event,
        mut left: Left,
    ) -> Option<&'static str> {
        loop {
            if permit.lapsed(&self.tokens).now_or_never().is_some() {
                return Some("its token is gone");
            }
            let tried = self.attempt(permit, qualifier, event.clone()).await;
            if tried == Tried::Done {
                return None;
            }
            let wait = left.next(tried, Instant::now());
            let Some(wait) = wait else { return Some("it was tried long enough") };
            let wait = match tried {
                // Many that found no room at once do not come back at once.
                Tried::NoRoom => wait.mul_f64(0.75 + random::draw() / 2.0),
                Tried::Failed | Tried::Done => wait,
            };
            if self.stop.run_until_cancelled(sleep(wait)).await.is_none() {
                return Some("the worker stops");
            }
        }
    }

    async fn attempt(
        &self,
        permit: &Permit<to::Invoke>,
        qualifier: &Qualifier,
        event: Event,
    ) -> Tried {
        let target = self.invoker.find(permit, qualifier).await;
        let served = match target {
            Ok(target) => self.invoker.call(target, event).await,
            Err(error) => Err(error),
        };
        match served {
            Ok(served) => tried(served.result.err().as_ref()),
            Err(
                InvokeError::Exhausted(..)
                | InvokeError::Reserved(_)
                | InvokeError::NotMade { .. }
                | InvokeError::BeingMade { .. }
                | InvokeError::Replaced(_),
            ) => Tried::NoRoom,
            Err(
                InvokeError::Unknown(_)
                | InvokeError::UnknownVersion { .. }
                | InvokeError::NotAllowed(_)
                | InvokeError::NotJson(_),
            ) => Tried::Done,
        }
    }
}

/// What a call came to that was served.
fn tried(error: Option<&CallError>) -> Tried {
    match error {
        None => Tried::Done,
        Some(
            CallError::Raised(_)
            | CallError::NotLoaded(_)
            | CallError::Died(_)
            | CallError::TimedOut { .. }
            | CallError::BadAnswer(_)
            | CallError::TooLong { .. },
        ) => Tried::Failed,
        Some(
            CallError::Busy { .. }
            | CallError::NoSandbox(_)
            | CallError::NoSecrets(_)
            | CallError::Lost
            | CallError::Stopping,
        ) => Tried::NoRoom,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds after which each try begins that fails like this, the first one aside.
    fn waits(tries: Tries, tried: Tried) -> Vec<u64> {
        let taken = Instant::now();
        let (mut left, mut now) = (Left::of(tries, taken), taken);
        let mut all = Vec::new();
        while let Some(wait) = left.next(tried, now) {
            now += wait;
            all.push((now - taken).as_secs());
        }
        all
    }

    #[test]
    fn an_event_is_tried_as_often_and_as_long_as_it_may() {
        let usual = Tries::default();
        let of_age = |age: u64| Tries { age: Duration::from_secs(age), ..usual };
        assert_eq!(waits(usual, Tried::Failed), [60, 180]);
        for (again, all) in [(0, &[][..]), (1, &[60]), (2, &[60, 180]), (9, &[60, 180])] {
            assert_eq!(waits(Tries { again, ..usual }, Tried::Failed), all, "{again}");
        }
        assert_eq!(waits(of_age(179), Tried::Failed), [60]);
        assert_eq!(waits(of_age(60), Tried::NoRoom), [1, 3, 7, 15, 31]);
        let longest = waits(usual, Tried::NoRoom);
        assert_eq!(longest.last().map(|last| last / 300), Some(71));
        assert_eq!(waits(of_age(u64::from(u32::MAX)), Tried::NoRoom), longest);
        assert!(waits(usual, Tried::Done).is_empty());
    }

    #[test]
    fn what_the_function_did_is_tried_as_a_failure_and_what_the_worker_lacked_as_no_room() {
        let limit = Duration::from_secs(1);
        assert_eq!(tried(None), Tried::Done);
        assert_eq!(tried(Some(&CallError::TimedOut { limit })), Tried::Failed);
        assert_eq!(tried(Some(&CallError::Busy { retry_after: limit })), Tried::NoRoom);
        assert_eq!(tried(Some(&CallError::Lost)), Tried::NoRoom);
    }
}
