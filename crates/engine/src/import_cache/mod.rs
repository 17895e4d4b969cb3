//! The import cache: zygotes, who is forked from which, and which there should be.
//!
//! Four floors; each uses only those below it: `work` (tasks and calls), `state` (what is kept under the one lock), `policy`
//! (decisions, as pure functions), `model` (what is known of packages and handlers).

mod model;
mod policy;
mod state;
mod work;

pub(crate) use state::zygote::Kept;
pub use work::ImportCache;
pub use work::observe::ImportTime;
pub use work::pick::Pick;
