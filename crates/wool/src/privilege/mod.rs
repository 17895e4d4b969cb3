//! As which user the worker runs, and as which a command does.

pub(crate) mod as_owner;
pub(crate) mod drop;
pub(crate) mod run_as;
