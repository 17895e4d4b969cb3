//! AWS Lambda's HTTP API as data, for a door that speaks it.
//!
//! ```text
//!   method, path, query ──► route ──► Route ──► input ──► Input ──► the door's own structures
//!                             │                   │
//!                             └──────► Fault ◄────┘   code, status, body
//! ```
//!
//! `model.json`, which `generate.py` writes from the service's own model, has each operation, where
//! each member of its input travels, what a value must satisfy, and the errors. A wrong request gets
//! the service's own error. Where the service's text is not known, the text is this crate's.
//!
//! The requests come from strangers. Nothing here panics on them, and time and memory grow with
//! their length alone: no pattern is tried on a value that is longer than the model allows.
#![forbid(unsafe_code)]

pub mod arn;
mod bounded;
mod constraints;
pub mod eventstream;
mod fault;
mod input;
mod model;
mod operation;
mod route;
mod typed;
mod unsupported;

pub use fault::Fault;
pub use input::Input;
pub use operation::Operation;
pub use route::{Route, is_api_path, route};
