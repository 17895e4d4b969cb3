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

pub mod access;
mod account;
pub mod api;
pub mod audit;
pub mod bucket;
pub mod build;
pub mod capacity;
pub mod cli;
pub mod client;
pub mod command;
pub mod config;
mod connections;
pub mod database;
pub mod deploy;
pub mod doctor;
pub mod guest;
mod heads;
mod hidden;
pub mod installer;
pub mod isolation;
pub mod layered;
mod learnt;
mod listen;
pub mod logs;
pub mod networks;
mod owner;
mod paced;
pub mod parts;
mod precedence;
pub mod pressure;
mod privilege;
pub mod progress;
mod providers;
pub mod quotas;
pub mod registry;
mod room;
pub mod secrets;
mod seldom;
pub mod shelf;
pub mod state;
pub mod stock;
mod throwaway;
pub mod tls;
mod turns;
pub mod unenforced;
pub mod usage;
pub mod worker;
pub mod workshop;
