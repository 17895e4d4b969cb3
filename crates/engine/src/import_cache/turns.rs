//! Whose turn it is to be made: imports take a whole core, so one zygote is made at a time, unless it seems to hang.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::SemaphorePermit;
use tokio::time::timeout;

use super::ImportCache;
use super::kept::Key;
use super::profile::Belief;
use super::set::Set;

/// A zygote may take that many times as long as its imports are known to take, and a moment, before others are made as
/// well.
const PATIENCE: f64 = 4.0;
const MOMENT: Duration = Duration::from_secs(1);

impl ImportCache {
    /// How long a zygote may take to make before nobody waits for it any more but those who asked for it.
    pub(super) fn patience(&self, key: &Key) -> Duration {
        let (milliseconds, _) = self.expected(&key.sees, &key.modules);
        let expected = Duration::from_secs_f64(milliseconds.max(0.0) * PATIENCE / 1e3);
        (MOMENT + expected).min(self.config.creation_timeout)
    }

    /// Milliseconds and bytes that a zygote is expected to take for importing these.
    pub(super) fn expected(&self, sees: &Set, modules: &Set) -> (f64, u64) {
        let book = Arc::clone(&self.state().book);
        let belief = Belief::of(&book, sees);
        let milliseconds = modules.iter().map(|piece| belief.cost(piece)).sum();
        (milliseconds, belief.weigh(milliseconds))
    }

    /// Awaits `making` in its turn, and hands the turn on when that takes longer than `patience`: what hangs may not hold
    /// up what does not. But few do so at a time: each may well keep a core busy.
    pub(super) async fn in_turn<T>(
        &self,
        turn: Option<SemaphorePermit<'_>>,
        patience: Duration,
        making: impl Future<Output = T>,
    ) -> T {
        tokio::pin!(making);
        if let Ok(made) = timeout(patience, &mut making).await {
            return made;
        }
        tokio::select! {
            made = &mut making => made,
            _late = self.late.acquire() => {
                drop(turn);
                making.await
            }
        }
    }
}
