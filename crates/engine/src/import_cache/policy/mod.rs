//! Decisions, as pure functions over the model: no lock, no clock, no I/O.

pub(crate) mod benefit;
pub(crate) mod candidates;
pub(crate) mod evict;
pub(crate) mod forkable;
pub(crate) mod plan;
pub(crate) mod price;
pub(crate) mod select;
