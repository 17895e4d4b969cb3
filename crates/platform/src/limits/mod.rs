//! What each tenant, and each function, may take of the machine in a span of time.

pub mod bucket;
mod host;
pub mod quotas;

pub use host::{Capacity, Unenforced};
