//! Turns for making zygotes: imports take a whole core, so one zygote is made at a time, unless it
//! seems to hang.
//!
//! ```text
//!   waits ──its tenant's turn──► made ──done in time────────────────────────► the next one's turn
//!                                 └─takes much longer than expected──► late ──within limit──► the same
//!                                                                       └─too many, and another waits:
//!                                                                         the longest late is ended
//! ```
//!
//! The next turn goes to the tenant whose last turn is longest ago. Of the late creations, one of
//! the tenant with the most of them is ended: a tenant with many hanging imports delays itself.

use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandbox::ProviderError;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::ImportCache;
use crate::import_cache::model::estimate::Estimate;
use crate::import_cache::model::set::Set;
use crate::import_cache::state::creation_queue::{CreationQueue, LateRoom};
use crate::import_cache::state::zygote::ZygoteKey;

/// Making a zygote may take this many times the known import time, and at least the next constant,
/// before the turn is passed on.
const TIMEOUT_FACTOR: f64 = 4.0;
const MIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Fraction of the creation timeout for which a creation may always be late.
const GRACE: u32 = 3;

impl ImportCache {
    /// How long making the zygote may hold its turn.
    pub(super) fn turn_timeout(&self, key: &ZygoteKey) -> Duration {
        let (milliseconds, _) = self.expected(&key.sees, &key.modules);
        let expected = Duration::from_secs_f64(milliseconds.max(0.0) * TIMEOUT_FACTOR / 1e3);
        (MIN_TIMEOUT + expected).min(self.config.creation_timeout)
    }

    /// Milliseconds and bytes that a zygote of these modules is expected to take.
    pub(super) fn expected(&self, sees: &Set, modules: &Set) -> (f64, u64) {
        let catalog = Arc::clone(&self.state().catalog);
        let estimate = Estimate::of(&catalog, sees);
        let milliseconds = modules.iter().map(|piece| estimate.cost(piece)).sum();
        (milliseconds, estimate.expected_bytes(milliseconds))
    }

    /// Awaits `making` in its turn, and passes the turn on when that takes longer than `limit`:
    /// imports that hang must not delay others.
    ///
    /// # Errors
    /// Those of `making`, and a timeout when it was ended in favour of others that are late.
    pub(super) async fn in_turn<T>(
        &self,
        turn: Option<Turn<'_>>,
        limit: Duration,
        making: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<T, ProviderError> {
        let Some(turn) = turn else { return making.await };
        tokio::pin!(making);
        if let Ok(made) = timeout(limit, &mut making).await {
            return made;
        }
        let late = turn.late();
        tokio::select! {
            made = &mut making => return made,
            () = late.turns.room(self.config.creation_timeout / GRACE) => drop(turn),
            () = late.end.cancelled() => return Err(ended()),
        }
        tokio::select! {
            made = &mut making => made,
            () = late.end.cancelled() => Err(ended()),
        }
    }
}

fn ended() -> ProviderError {
    ProviderError::Step {
        step: "make a zygote beside others that take long",
        source: io::ErrorKind::TimedOut.into(),
    }
}

/// The queue of creations, and its wake-ups.
#[derive(Debug, Default)]
pub(super) struct CreationTurns {
    /// The queue has changed.
    changed: Notify,
    queue: Mutex<CreationQueue>,
}

/// Holds the turn until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a CreationTurns,
    tenant: String,
}

/// A place in the queue until it is dropped.
#[derive(Debug)]
struct QueueTicket<'a> {
    turns: &'a CreationTurns,
    ticket: u64,
}

/// A creation that is late, until this is dropped.
#[derive(Debug)]
pub(super) struct LateCreation<'a> {
    turns: &'a CreationTurns,
    ticket: u64,
    end: CancellationToken,
}

impl CreationTurns {
    /// Waits for the tenant's turn.
    pub(super) async fn turn(&self, tenant: &str) -> Turn<'_> {
        let ticket = self.queue().wait(tenant);
        let _ticket = QueueTicket { turns: self, ticket };
        // A late creation is ended only when another waits.
        self.changed.notify_waiters();
        loop {
            // Registered before the check, so that no later change is missed.
            let changed = self.changed.notified();
            if self.queue().take(ticket) {
                return Turn { turns: self, tenant: tenant.to_owned() };
            }
            changed.await;
        }
    }

    /// Returns when the number of late creations is within its limit. Ends one that has been late
    /// for `grace` if another waits.
    async fn room(&self, grace: Duration) {
        loop {
            let changed = self.changed.notified();
            let until = match self.queue().room(Instant::now(), grace) {
                LateRoom::Free => return,
                LateRoom::From(instant) => Some(instant),
                LateRoom::NotNeeded => None,
            };
            let due = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = changed => {}
                () = due => {}
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, CreationQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Turn<'a> {
    /// Registers its creation as late.
    fn late(&self) -> LateCreation<'a> {
        let end = CancellationToken::new();
        let ticket = self.turns.queue().add_late(&self.tenant, Instant::now(), end.clone());
        LateCreation { turns: self.turns, ticket, end }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.queue().call_next();
        self.turns.changed.notify_waiters();
    }
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        self.turns.queue().leave(self.ticket);
        self.turns.changed.notify_waiters();
    }
}

impl Drop for LateCreation<'_> {
    fn drop(&mut self) {
        self.turns.queue().remove_late(self.ticket);
        self.turns.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use function::VersionId;
    use sandbox::fake::{FakeProvider, Operation, Recorded};
    use tokio::time::sleep;

    use super::*;
    use crate::config::EngineConfig;
    use crate::handler::Handler;
    use crate::handler::tests::handler;
    use crate::import_cache::work::replan::tests::{cache, layer_of};

    /// A handler of `tenant` with packages of its own, of which it imports `module`.
    fn of(tenant: &str, name: &str, module: &str) -> Handler {
        Handler {
            id: VersionId(Arc::from(name)),
            tenant: tenant.to_owned(),
            packages: Some(layer_of(&format!("packages/{name}"))),
            imports: vec![module.to_owned()],
            ..handler()
        }
    }

    /// How long a deploy takes whose zygote takes a second while so many of a tenant's hang.
    async fn behind(hanging: usize, tenant: &str) -> Duration {
        let provider = FakeProvider::default();
        let cost = |milliseconds| Recorded { milliseconds, ..Recorded::default() };
        let costs = [("hangs", 600_000.0), ("b", 1000.0)];
        let costs = costs.map(|(name, took)| (name.to_owned(), cost(took)));
        provider.record(HashMap::from(costs));
        let cache = cache(&provider);
        for at in 0..hanging {
            let (cache, hangs) = (Arc::clone(&cache), of("t", &format!("h{at}"), "hangs"));
            tokio::spawn(async move { cache.prepare(&hangs, || ()).await });
        }
        while provider.begun(Operation::Derive) == 0 {
            sleep(Duration::from_millis(10)).await;
        }
        let begun = Instant::now();
        assert!(cache.prepare(&of(tenant, "victim", "b"), || ()).await, "it is there");
        let (zygotes, _) = cache.status();
        assert!(zygotes.iter().any(|zygote| zygote.imports == ["b"]), "{zygotes:?}");
        begun.elapsed()
    }

    // The clock is paused: it shows nothing but what is waited for.
    #[tokio::test(start_paused = true)]
    async fn however_many_imports_hang_others_have_their_turn_soon() {
        let grace = EngineConfig::default().creation_timeout / GRACE;
        let soon = grace + Duration::from_secs(10);
        let took = behind(4, "t").await;
        assert!(took < soon, "{took:?}");
        let took = behind(90, "other").await;
        assert!(took < soon, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_deploy_goes_on_without_its_zygote_when_that_waits_too_long() {
        let provider = FakeProvider::default();
        let cache = cache(&provider);
        let limit = cache.config.creation_timeout;
        let _held = cache.turns.turn("t").await;
        let begun = Instant::now();
        assert!(!cache.prepare(&of("t", "h", "a"), || ()).await);
        assert_eq!(begun.elapsed().as_secs(), limit.as_secs());
        assert_eq!(provider.begun(Operation::Derive), 0);
    }
}
