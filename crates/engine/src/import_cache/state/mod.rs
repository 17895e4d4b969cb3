//! What the import cache keeps: its zygotes, what was refused, and what is under way.

pub(crate) mod backoff;
pub(crate) mod cache_state;
pub(crate) mod claim;
pub(crate) mod creation;
pub(crate) mod creation_queue;
pub(crate) mod observations;
pub(crate) mod pick;
pub(crate) mod snapshot;
pub(crate) mod zygote;
