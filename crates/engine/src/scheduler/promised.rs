//! Instances that were promised: they stay idle for as long as nobody calls them, and have their seats before anybody does.

use std::collections::HashMap;
use std::sync::Arc;

use function::VersionId;
use tokio::sync::OwnedSemaphorePermit;

use super::{Scheduler, Seat};
use crate::handler::Handler;

impl Scheduler {
    /// Says of which handlers how many idle instances stay; of all others none does.
    pub(crate) fn promise(&self, promised: HashMap<VersionId, usize>) {
        self.state().cache.promise(promised);
    }

    /// Whether idle instances are kept at all.
    pub(crate) fn keeps_any(&self) -> bool {
        let config = &self.config;
        config.handler_cache && config.handler_cache_bytes > 0 && config.idle_instances > 0
    }

    /// Instances of a handler, idle, busy or being made.
    pub(crate) fn live(&self, handler: &VersionId) -> u32 {
        self.state().handlers.get(handler).map_or(0, |entry| entry.live)
    }

    /// The right to make an instance that was promised; none when the handler has as many as it is to have, or there is no
    /// room now. The last permit is left to calls.
    pub(crate) fn room_for_promised(
        self: &Arc<Self>,
        handler: &Handler,
        promised: u32,
    ) -> Option<(Seat, OwnedSemaphorePermit)> {
        let most = if self.keeps_any() { promised.min(handler.concurrency.max(1)) } else { 0 };
        loop {
            let mut state = self.state();
            let live = state.handlers.get(&handler.id).map_or(0, |entry| entry.live);
            let is_full = state.cache.bytes() > self.config.handler_cache_bytes;
            if state.closed || is_full || live >= most || self.permits.available_permits() < 2 {
                return None;
            }
            if state.seats < self.room() {
                let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
                return Some((self.reserve(&mut state, &handler.id), permit));
            }
            let victim = state.cache.take_oldest()?;
            // Not under the lock: its seat comes back here.
            drop(state);
            drop(victim);
        }
    }
}
