//! As which user the worker runs, and as which a command does.
//!
//! `run_as`: root starts a worker for another account. `drop`: a worker lays down its capabilities. `as_owner`: a command of
//! root's does what it does in a state directory as the directory's owner.

pub(crate) mod as_owner;
pub(crate) mod drop;
pub(crate) mod run_as;
