//! Decisions, as pure functions over the model: no lock, no clock, no I/O.
//!
//! ```text
//!   select, forkable   which zygote a call is forked from     evict, benefit    which goes, and what each is worth
//!   plan, candidates   which zygote to make, for whom         price             what making it costs
//! ```

pub(crate) mod benefit;
pub(crate) mod candidates;
pub(crate) mod evict;
pub(crate) mod forkable;
pub(crate) mod plan;
pub(crate) mod price;
pub(crate) mod select;
