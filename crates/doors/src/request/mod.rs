//! The steps that requests of all APIs share: the caller, the audit line, and the budgets of bodies and replies.
//!
//! ```text
//!   guard (no foreign web page) ─► entrance (who asks?) ─► act (its audit line) ─► body (within a budget) ─► the API
//!                                                                    reply (within the same budget) ◄───────┘
//! ```
//! An API gets its caller from the [`entrance`] alone, and so cannot forget whom it must ask.

mod act;
pub(crate) mod body;
mod budget;
pub(crate) mod entrance;
pub(crate) mod guard;
mod permitted;
pub(crate) mod reply;

pub(crate) use act::{Act, Refusal};
pub use budget::Budgets;
pub(crate) use budget::Held;
pub(crate) use permitted::Permitted;
