//! Which sandbox serves which call.
//!
//! ```text
//!              ┌ idle instance ──────────────────────────────────────── resume ┐
//!   call ► admit                                                               ├► call ► reply ► park
//!              └ a place and a permit ► import_cache ► fork ► load ────────────┘
//! ```
//!
//! The engine knows handlers, calls and the seam (`sandbox`), and nothing of containers, HTTP or disks. What it decides
//! is decided by plain functions over plain data (`admit`, `handler_cache`, `import_cache`'s `select`, `plan` and
//! `evict`); the rest does what they return.
//!
//! | if | then |
//! | --- | --- |
//! | a call is cancelled, times out or breaks the protocol | its sandbox is destroyed, never parked |
//! | an idle instance has died | the next one, or a new one, serves the call |
//! | a zygote is lost or answers with an impostor | it is dropped, and the call goes on from the next, in the end from none |
//! | `Invoke` was sent | nothing is ever retried |

#![forbid(unsafe_code)]

mod admit;
mod budget;
mod call;
mod config;
mod conversation;
mod distribution;
mod drain;
mod engine;
pub mod fault;
mod handler;
mod handler_cache;
mod import_cache;
mod instance;
mod journey;
mod output;
mod package;
mod pages;
mod popularity;
mod relay;
mod scheduler;
mod secrets;
mod status;
mod traffic;
mod warm_pool;
mod zygote_tree;

pub use budget::Pressure;
pub use call::{Call, CallError, Outcome, Served, Stage, Stages, Start};
pub use config::{EngineConfig, ZygotePolicy};
pub use distribution::Distribution;
pub use engine::Engine;
pub use function::VersionId;
pub use handler::Handler;

pub use import_cache::{ImportCache, ImportTime, Pick};
pub use output::{LogLine, LogSink};
pub use package::{PackageStore, Packages};
pub use secrets::{NoSecrets, SecretEnvironment, SecretStore, SecretsUnreadable};
pub use status::{
    EngineStatus, ImportCost, InstanceStatus, MemoryStatus, RefusedStatus, ZygoteStatus,
};
pub use zygote_tree::ZygoteTree;
