//! Which sandbox serves which call.
//!
//! The engine knows handlers, calls and the seam (`sandbox`), and nothing of containers, HTTP or disks.

#![forbid(unsafe_code)]

mod call;

pub use call::{Call, CallError, Handler, HandlerId, LogLine, LogSink, Outcome, Served, Stage, Stages, Start};
