//! Calls in the queue of their handler.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Gift, Scheduler, State, Waiter};
use function::VersionId;

/// A call in the queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(super) struct Waiting {
    scheduler: Arc<Scheduler>,
    handler: VersionId,
    number: u64,
    receiver: oneshot::Receiver<Gift>,
    active: bool,
}

impl Waiting {
    /// None: there will never be one.
    pub(super) async fn gift(&mut self) -> Option<Gift> {
        (&mut self.receiver).await.ok()
    }

    /// In the queue again, at the same place, now with a seat.
    pub(super) fn seated(mut self) -> Self {
        let (gift, receiver) = oneshot::channel();
        self.active = false;
        let scheduler = Arc::clone(&self.scheduler);
        {
            let mut state = scheduler.state();
            let desk = state.desks.entry(self.handler.clone()).or_default();
            desk.waiters.insert(self.number, Waiter { gift, seated: true });
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

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.active {
            return;
        }
        {
            let mut state = self.scheduler.state();
            state.waiting -= 1;
            if let Some(desk) = state.desks.get_mut(&self.handler) {
                desk.waiters.remove(&self.number);
            }
            state.tidy(&self.handler);
        }
        // It may have been given an instance that it no longer looks at; that has done nothing wrong.
        if let Ok(Gift::Lease(lease)) = self.receiver.try_recv() {
            self.scheduler.keep(lease);
        }
    }
}

impl Scheduler {
    pub(super) fn queue_up(
        self: &Arc<Self>,
        state: &mut State,
        handler: &VersionId,
        seated: bool,
    ) -> Waiting {
        let number = state.next_waiter;
        state.next_waiter += 1;
        state.waiting += 1;
        let (gift, receiver) = oneshot::channel();
        state
            .desks
            .entry(handler.clone())
            .or_default()
            .waiters
            .insert(number, Waiter { gift, seated });
        Waiting {
            scheduler: Arc::clone(self),
            handler: handler.clone(),
            number,
            receiver,
            active: true,
        }
    }
}
