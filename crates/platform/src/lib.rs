//! Use cases: everything that can be done with functions, through any door.
//!
//! ```text
//!   a door ──► access ──► Permit ──► functions · deploy · invoke · secrets · logs · packages · audit · control ──► engine, layers, store
//!    who asks   may the caller?        └── limits, network_policy: what the operator allows
//! ```
//!
//! Every use case that acts for a caller takes an [`access::Permit`] for that action: a door cannot forget to ask. Without
//! one there is only what finds out who asks, tells more of what a permit has shown, or acts for the worker itself. Audit
//! lines, and bounds of bodies, are the doors'.
//!
//! Nothing here knows HTTP, the command line, or a file of settings.

#![forbid(unsafe_code)]

pub mod access;
pub mod audit;
pub mod control;
pub mod deploy;
pub mod events;
pub mod functions;
pub mod invoke;
pub mod limits;
pub mod logs;
pub mod network_policy;
pub mod objects;
pub mod packages;
pub mod provisioned;
pub mod random;
pub mod run_name;
pub mod secrets;
pub mod sources;
pub mod throttled_log;
