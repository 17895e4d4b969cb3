//! A sandbox's life in the warden, from its ids to its end. One file for each command or step:
//!
//! ```text
//!   Start    ─► prepare ─► process::spawn ──────┐
//!   Monitor  ─► monitor ─► process::spawn ──────┤
//!   Prepare  ─► prepare ─► a slot ─► land ──────┴─► running ─► reap
//!                                                     └─ examine: a zygote, after its imports
//! ```
//! `record` is what the warden remembers of each; `identity` are the ids of instances from nothing.

mod examine;
pub(crate) mod identity;
pub(crate) mod land;
mod monitor;
pub(crate) mod prepare;
mod reap;
pub mod record;
