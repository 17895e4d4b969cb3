//! Seats: places among a handler's instances.

use std::sync::{Arc, Weak};

use super::{Desk, Gift, Scheduler, State};
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
    pub(super) fn sit(self: &Arc<Self>, state: &mut State, handler: &VersionId) -> Seat {
        let generation = state.generation;
        let desk = state
            .desks
            .entry(handler.clone())
            .or_insert_with(|| Desk { generation, ..Desk::default() });
        desk.live += 1;
        let generation = desk.generation;
        state.seats += 1;
        Seat { scheduler: Some(Arc::downgrade(self)), handler: handler.clone(), generation }
    }

    /// Passes a seat on to who waits for one, or takes it away.
    fn vacate(self: &Arc<Self>, handler: &VersionId) {
        let mut state = self.state();
        let Some(desk) = state.desks.get_mut(handler) else { return };
        let generation = desk.generation;
        let mut seat =
            Seat { scheduler: Some(Arc::downgrade(self)), handler: handler.clone(), generation };
        while let Some(number) =
            desk.waiters.iter().find(|(_, waiter)| !waiter.seated).map(|(number, _)| *number)
        {
            let Some(waiter) = desk.waiters.remove(&number) else { break };
            match waiter.gift.send(Gift::Seat(seat)) {
                Ok(()) | Err(Gift::Lease(_)) => return,
                Err(Gift::Seat(back)) => seat = back,
            }
        }
        // It goes no further: dropping it with its link would come back here, under the lock.
        seat.scheduler = None;
        desk.live -= 1;
        state.seats -= 1;
        state.tidy(handler);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(scheduler) = self.scheduler.take().and_then(|weak| weak.upgrade()) {
            scheduler.vacate(&self.handler);
        }
    }
}
