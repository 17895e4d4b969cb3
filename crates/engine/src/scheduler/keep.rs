//! Keeping the instance of a call that ended well.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Handoff, Lease, Scheduler};
use crate::call::Stage;
use crate::fault;
use crate::handler_cache::{Cap, Ticket};
use crate::instance::PausableSandbox;
use crate::journey::span;

/// The result of keeping a lease.
enum KeepOutcome {
    Given,
    Idle(Ticket, Arc<PausableSandbox>),
    Refused(Lease),
}

impl Scheduler {
    /// Keeps the lease of a call that ended well: for the next waiter, or idle and paused a moment
    /// later. It can be taken again at once, so that back-to-back calls always find it.
    pub(crate) fn keep(self: &Arc<Self>, lease: Lease) {
        match self.hand_on(lease) {
            KeepOutcome::Idle(ticket, pausable) => {
                let scheduler = Arc::clone(self);
                let park = async move {
                    fault::point(Stage::Park.as_str()).await;
                    scheduler.park(ticket, &pausable);
                };
                self.background.spawn_on(park, &self.runtime);
            }
            KeepOutcome::Refused(lease) => self.destroy(lease),
            KeepOutcome::Given => {}
        }
    }

    /// Destroys an instance once its caller has the answer: closing its channel wakes its processes
    /// and the warden, which would take the processor from the reply.
    pub(crate) fn destroy(&self, lease: Lease) {
        self.background.spawn_on(async move { drop(lease) }, &self.runtime);
    }

    fn hand_on(&self, mut lease: Lease) -> KeepOutcome {
        let mut state = self.state();
        let handler = lease.seat.handler.clone();
        let Some(entry) = state.handlers.get_mut(&handler) else {
            return KeepOutcome::Refused(lease);
        };
        if !self.config.handler_cache || entry.generation != lease.seat.generation {
            return KeepOutcome::Refused(lease);
        }
        while let Some((_, waiter)) = entry.waiters.pop_first() {
            match waiter.handoff.send(Handoff::Lease(lease)) {
                Ok(()) | Err(Handoff::Seat(_)) => return KeepOutcome::Given,
                // The waiter gave up meanwhile.
                Err(Handoff::Lease(back)) => lease = back,
            }
        }
        if state.closed || self.config.handler_cache_bytes == 0 || self.config.idle_instances == 0 {
            return KeepOutcome::Refused(lease);
        }
        let pausable = lease.instance.rest();
        KeepOutcome::Idle(state.cache.put(handler, Instant::now(), lease), pausable)
    }

    /// Pauses an idle instance and weighs it.
    fn park(&self, ticket: Ticket, pausable: &PausableSandbox) {
        let begun = Instant::now();
        let _span = span(Stage::Park).entered();
        match pausable.pause() {
            Ok(true) => self.weigh(ticket, pausable.weigh()),
            // A call has it already.
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(%error, "an instance could not be paused and is destroyed");
                self.discard(ticket);
            }
        }
        metrics::histogram!("lambswool_stage_seconds", "stage" => Stage::Park.as_str())
            .record(begun.elapsed());
    }

    /// Notes what an idle instance costs and gives up what no longer fits.
    fn weigh(&self, ticket: Ticket, bytes: u64) {
        let cap =
            Cap { bytes: self.config.handler_cache_bytes, instances: self.config.idle_instances };
        let victims = {
            let mut state = self.state();
            let victims = state.cache.weigh(ticket, bytes, cap);
            self.budget.note_idle(state.cache.bytes());
            victims
        };
        drop(victims);
        self.budget.wake_if_exceeded();
    }

    /// Destroys one idle instance.
    fn discard(&self, ticket: Ticket) {
        let victim = self.state().cache.remove(ticket);
        drop(victim);
    }
}
