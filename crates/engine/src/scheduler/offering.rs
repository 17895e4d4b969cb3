//! Idle instances as the memory budget sees them.

use tokio::time::Instant;

use super::Scheduler;
use crate::handler_cache::Ticket;
use crate::pages::share;
use crate::warm_pool::{Offer, WarmPool};

/// What starting any instance takes at least, in milliseconds.
const LEAST_MS: f64 = 1.0;

impl WarmPool for Scheduler {
    fn offers(&self, now: Instant) -> Vec<Offer> {
        let (state, allowed) = (self.state(), self.budget.now());
        let mut offers = Vec::with_capacity(state.cache.len());
        for (handler, idle) in state.cache.each() {
            let live = state.handlers.get(handler).map_or(0, |entry| entry.live as usize);
            let busy = live.saturating_sub(idle.len());
            for (depth, (ticket, own, lease)) in idle.into_iter().enumerate() {
                let rate = state.popularity.per_second(handler, busy + depth, now);
                let bytes = own + lease.instance.pages.as_ref().map_or(0, share);
                // One that alone is too large can never stay, and must not push out all others
                // first.
                let saved =
                    if bytes > allowed { 0.0 } else { lease.instance.made_in_ms.max(LEAST_MS) };
                offers.push(Offer { ticket, bytes, saves: rate * saved });
            }
        }
        offers
    }

    fn give_up(&self, tickets: &mut dyn Iterator<Item = Ticket>) {
        let victims: Vec<_> = {
            let mut state = self.state();
            let victims = tickets.filter_map(|ticket| state.cache.remove(ticket)).collect();
            self.budget.note_idle(state.cache.bytes());
            victims
        };
        drop(victims);
    }
}
