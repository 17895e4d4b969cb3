//! What can be done with functions, whoever asks and through whichever door.
//!
//! ```text
//!   a door ──► access (may the caller?) ──► functions · deploy · invoke · secrets · logs · packages · audit ──► engine, layers, store
//!                                                └── limits, network_policy: what the operator allows
//! ```
//!
//! Nothing here knows HTTP, the command line, or a file of settings.

#![forbid(unsafe_code)]

pub mod access;
pub mod audit;
pub mod deploy;
pub mod functions;
pub mod invoke;
pub mod limits;
pub mod logs;
pub mod network_policy;
pub mod packages;
pub mod run_name;
pub mod secrets;
pub mod throttled_log;
