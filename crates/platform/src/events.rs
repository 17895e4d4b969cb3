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
use thiserror::Error;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::access::{Permit, to};
use crate::invoke::{Event, InvokeError, Invoker};
use crate::limits::shares::Shares;

/// Events that wait or run, of all tenants together; each takes a few kilobytes beside its body.
const MOST: u64 = 10_000;

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
    waiting: Arc<Shares>,
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
    /// Events that an invoker's functions are called with.
    #[must_use]
    pub fn new(invoker: Arc<Invoker>) -> Self {
        Self { invoker, waiting: Shares::new(MOST), stop: CancellationToken::new() }
    }

    /// Takes no new event, and gives up those that wait. Calls that run go on.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Takes an event: it is run from now on. `kept` is dropped when nothing is left to do for it. Inside a tokio runtime.
    ///
    /// # Errors
    /// When too many wait, or the worker stops.
    pub fn accept(
        self: &Arc<Self>,
        permit: Permit<to::Invoke>,
        qualifier: Qualifier,
        event: Event,
        kept: impl Send + 'static,
    ) -> Result<(), Full> {
        let share = self.waiting.try_take(permit.tenant().as_str(), 1).ok_or(Full)?;
        if self.stop.is_cancelled() {
            return Err(Full);
        }
        let this = Arc::clone(self);
        tokio::spawn(async move {
            this.run(&permit, &qualifier, &event).await;
            drop((share, kept));
        });
        Ok(())
    }

    async fn run(&self, permit: &Permit<to::Invoke>, qualifier: &Qualifier, event: &Event) {
        let (mut again, mut pause) = (AGAIN.into_iter(), PAUSES.0);
        let until = Instant::now() + PATIENCE;
        loop {
            let wait = match self.attempt(permit, qualifier, event.clone()).await {
                Tried::Done => return,
                Tried::Failed => again.next(),
                Tried::NoRoom => {
                    let wait = pause;
                    pause = (pause * 2).min(PAUSES.1);
                    (Instant::now() + wait < until).then_some(wait)
                }
            };
            let name = permit.function();
            let Some(wait) = wait else {
                tracing::warn!(function = %name, id = event.id.as_str(), "an event was given up");
                return;
            };
            if self.stop.run_until_cancelled(sleep(wait)).await.is_none() {
                tracing::warn!(function = %name, id = event.id.as_str(), "the worker stops: an event is lost");
                return;
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
            | CallError::BadAnswer(_),
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
