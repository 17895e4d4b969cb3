//! Seats: places among a handler's instances.

use std::sync::{Arc, Weak};

use super::{HandlerState, Handoff, Scheduler, State};
use function::VersionId;

/// A place among a handler's instances. Dropping it passes it on.
#[derive(Debug)]
pub(crate) struct Seat {
    /// None once it was passed on. Weak, since idle instances live inside the scheduler.
    scheduler: Option<Weak<Scheduler>>,
    pub(super) handler: VersionId,
    /// Seats of a generation that was forgotten keep nothing.
    pub(super) generation: u64,
}

impl Scheduler {
    pub(super) fn reserve(self: &Arc<Self>, state: &mut State, handler: &VersionId) -> Seat {
        let generation = state.generation;
        let entry = state
            .handlers
            .entry(handler.clone())
            .or_insert_with(|| HandlerState { generation, ..HandlerState::default() });
        entry.live += 1;
        let generation = entry.generation;
        state.seats += 1;
        Seat { scheduler: Some(Arc::downgrade(self)), handler: handler.clone(), generation }
    }

    /// Passes a seat on to the next waiter, or removes it.
    fn release(self: &Arc<Self>, handler: &VersionId) {
        let mut state = self.state();
        let Some(entry) = state.handlers.get_mut(handler) else { return };
        let generation = entry.generation;
        let mut seat =
            Seat { scheduler: Some(Arc::downgrade(self)), handler: handler.clone(), generation };
        while let Some(number) =
            entry.waiters.iter().find(|(_, waiter)| !waiter.seated).map(|(number, _)| *number)
        {
            let Some(waiter) = entry.waiters.remove(&number) else { break };
            match waiter.handoff.send(Handoff::Seat(seat)) {
                Ok(()) | Err(Handoff::Lease(_)) => return,
                Err(Handoff::Seat(back)) => seat = back,
            }
        }
        // It goes no further: dropping it with its link would come back here, under the lock.
        seat.scheduler = None;
        entry.live -= 1;
        state.seats -= 1;
        state.tidy(handler);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(scheduler) = self.scheduler.take().and_then(|weak| weak.upgrade()) {
            scheduler.release(&self.handler);
        }
    }
}
