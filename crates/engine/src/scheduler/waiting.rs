//! Calls in the queue of their handler.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Handoff, Scheduler, State, Waiter};
use function::VersionId;

/// A call in the queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(super) struct QueuedCall {
    scheduler: Arc<Scheduler>,
    handler: VersionId,
    number: u64,
    receiver: oneshot::Receiver<Handoff>,
    active: bool,
}

impl QueuedCall {
    /// None: there will never be one.
    pub(super) async fn handoff(&mut self) -> Option<Handoff> {
        (&mut self.receiver).await.ok()
    }

    /// In the queue again, at the same place, now with a seat.
    pub(super) fn with_seat(mut self) -> Self {
        let (handoff, receiver) = oneshot::channel();
        self.active = false;
        let scheduler = Arc::clone(&self.scheduler);
        {
            let mut state = scheduler.state();
            let entry = state.handlers.entry(self.handler.clone()).or_default();
            entry.waiters.insert(self.number, Waiter { handoff, seated: true });
        }
        Self {
            scheduler,
            handler: self.handler.clone(),
            number: self.number,
            receiver,
            active: true,
        }
    }
}

impl Drop for QueuedCall {
    fn drop(&mut self) {
        if !self.active {
            return;
        }
        {
            let mut state = self.scheduler.state();
            state.waiting -= 1;
            if let Some(entry) = state.handlers.get_mut(&self.handler) {
                entry.waiters.remove(&self.number);
            }
            state.tidy(&self.handler);
        }
        // It may have been given an instance that it no longer looks at; that has done nothing
        // wrong.
        if let Ok(Handoff::Lease(lease)) = self.receiver.try_recv() {
            self.scheduler.keep(lease);
        }
    }
}

impl Scheduler {
    pub(super) fn enqueue(
        self: &Arc<Self>,
        state: &mut State,
        handler: &VersionId,
        seated: bool,
    ) -> QueuedCall {
        let number = state.next_waiter;
        state.next_waiter += 1;
        state.waiting += 1;
        let (handoff, receiver) = oneshot::channel();
        state
            .handlers
            .entry(handler.clone())
            .or_default()
            .waiters
            .insert(number, Waiter { handoff, seated });
        QueuedCall {
            scheduler: Arc::clone(self),
            handler: handler.clone(),
            number,
            receiver,
            active: true,
        }
    }
}
