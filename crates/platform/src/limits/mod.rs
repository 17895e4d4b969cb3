//! Quotas of tenants; how many sandboxes the host holds; what it does not enforce.
//!
//! ```text
//!   quotas   what a tenant may take, as the operator says     bucket   how often something may happen, by the second
//!   shares   how much of a resource each owner may have at a time
//!   concurrency   how many calls of a function run at once
//!   host     what this machine allows, and what it lacks, as found at the worker's start
//! ```

pub mod bucket;
pub mod concurrency;
mod host;
pub mod quotas;
pub mod shares;

pub use host::{Capacity, Unenforced};
