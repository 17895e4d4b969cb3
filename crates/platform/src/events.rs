//! Events: calls that no client waits for.
//!
//! ```text
//!   accept ─► call ─► it answered, or the function is gone ──────────────────────────► done
//!              ▲   └► the function failed: again after 1 and after 2 minutes, then no more
//!              └───── no room, or no sandbox: again after 1 s, 2 s, 4 s … 5 min, for 6 hours
//! ```
//! They are in memory alone: those that wait when the worker stops are lost. Each try finds the version anew, so an event
//! that waited runs on what is deployed by then. The pauses are those of AWS Lambda.

use std::sync::Arc;
use std::time::Duration;

use engine::CallError;
use function::Qualifier;
use futures_util::FutureExt as _;
use thiserror::Error;
use tokio::time::sleep;
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

/// How long there may be no room.
const PATIENCE: Duration = Duration::from_secs(6 * 3600);

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

/// When an event is tried again.
#[derive(Debug)]
struct Schedule {
    again: std::array::IntoIter<Duration, 2>,
    pause: Duration,
    waited: Duration,
}

impl Schedule {
    fn new() -> Self {
        Self { again: AGAIN.into_iter(), pause: PAUSES.0, waited: Duration::ZERO }
    }

    /// How long to wait after such a try; none: there is no further one.
    fn after(&mut self, tried: Tried) -> Option<Duration> {
        match tried {
            Tried::Done => None,
            Tried::Failed => self.again.next(),
            Tried::NoRoom => {
                let wait = self.pause;
                self.pause = (self.pause * 2).min(PAUSES.1);
                self.waited += wait;
                (self.waited <= PATIENCE).then_some(wait)
            }
        }
    }
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

    /// Takes an event: it is run from now on. Inside a tokio runtime.
    ///
    /// # Errors
    /// When too many wait, or the worker stops.
    pub fn accept(
        self: &Arc<Self>,
        permit: Permit<to::Invoke>,
        qualifier: Qualifier,
        event: Event,
    ) -> Result<(), Full> {
        let (tenant, bytes) = (permit.tenant().as_str(), event.body.len() as u64);
        let share = self.waiting.try_take(tenant, 1).ok_or(Full)?;
        let room = self.bytes.try_take(tenant, bytes.max(1)).ok_or(Full)?;
        if self.stop.is_cancelled() {
            return Err(Full);
        }
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let why = this.run(&permit, &qualifier, &event).await;
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
    ) -> Option<&'static str> {
        let mut schedule = Schedule::new();
        loop {
            if permit.lapsed(&self.tokens).now_or_never().is_some() {
                return Some("its token is gone");
            }
            let tried = self.attempt(permit, qualifier, event.clone()).await;
            if tried == Tried::Done {
                return None;
            }
            let Some(wait) = schedule.after(tried) else { return Some("it was tried long enough") };
            // Many that found no room at once do not come back at once.
            let wait = wait.mul_f64(0.75 + random::draw() / 2.0);
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

    #[test]
    fn a_function_that_fails_is_tried_twice_more_and_one_without_room_for_six_hours() {
        let mut schedule = Schedule::new();
        let tries: Vec<Duration> = std::iter::from_fn(|| schedule.after(Tried::Failed)).collect();
        assert_eq!(tries, AGAIN);
        let mut schedule = Schedule::new();
        let waits: Vec<u64> = std::iter::from_fn(|| schedule.after(Tried::NoRoom))
            .map(|wait| wait.as_secs())
            .collect();
        assert_eq!(waits[..10], [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        let all: u64 = waits.iter().sum();
        assert!((6 * 3600 - 300..=6 * 3600).contains(&all), "{all}");
        assert_eq!(Schedule::new().after(Tried::Done), None);
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
