//! The worker and its command: HTTP in front, the registry on disk, the engine behind.
//!
//! ```text
//!   wool ──► command ──► client ───HTTP──► api ──► registry (resolve) ──► engine ──► sandboxes
//!                           │               │
//!                  worker.json, wool.sock   └────► deploy ──► workshop (layers) ──► registry
//! ```
//!
//! `worker` is the only place that puts the parts together; everything else takes what it needs as arguments.

#![forbid(unsafe_code)]

pub mod cli;
pub mod client;
pub mod command;
pub mod config;
pub mod doctor;
mod privilege;
pub mod state_directory;
pub mod worker;
