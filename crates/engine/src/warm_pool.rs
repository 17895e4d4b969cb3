//! The idle instances as the import cache sees them: both share one memory budget.

use std::fmt::Debug;

use tokio::time::Instant;

use crate::handler_cache::Ticket;

/// An idle instance that can be given up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Offer {
    pub(crate) ticket: Ticket,
    /// What it costs, with its part of what its zygote left behind.
    pub(crate) bytes: u64,
    /// Milliseconds that it is expected to save: per second as it is offered, of late where it is
    /// compared.
    pub(crate) saves: f64,
}

/// Idle instances, as far as zygotes compete with them for memory.
pub(crate) trait WarmPool: Send + Sync + Debug {
    /// The idle instances, each with what it costs and what it saves: milliseconds a second. Takes
    /// the pool's lock: not on the path of calls.
    fn offers(&self, now: Instant) -> Vec<Offer>;

    /// Destroys these, as far as they are still idle.
    fn give_up(&self, tickets: &mut dyn Iterator<Item = Ticket>);
}
