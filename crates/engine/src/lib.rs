//! Which sandbox serves which call.
//!
//! ```text
//!              ┌ idle instance ──────────────────────────────────────── resume ┐
//!   call ► admit                                                               ├► call ► reply ► park
//!              └ a seat and a permit ► import_cache ► fork ► load ─────────────┘
//! ```
//!
//! The engine knows handlers, calls and the seam (`sandbox`), and nothing of containers, HTTP or
//! disks. Its decisions are plain functions over plain data (`admit`, `handler_cache`, and
//! `import_cache`'s `policy`); the rest does what they return.
//!
//! | if | then |
//! | --- | --- |
//! | a call is cancelled, times out or breaks the protocol | its sandbox is destroyed, never parked |
//! | an idle instance has died | the next one, or a new one, serves the call |
//! | a zygote is lost, or an impostor answers for it | it is dropped, and the call goes on from the next one, in the end from none |
//! | `Invoke` was sent | nothing is ever retried |
//!
//! Files depend on each other in one direction:
//!
//! ```text
//!   engine/        what can be asked, and a call's stages
//!   import_cache/  zygotes (work → state → policy → model)      scheduler/  leases, seats, waiting calls
//!        └──────── warm_pool: what the import cache may ask of idle instances ◄───────┘
//!   instance       a sandbox with its handler loaded: conversation, drain, relay, pages
//!   budget · traffic · popularity · handler_cache · admit                 plain data and decisions
//!   call · handler · package · zygote_tree · distribution · config        words
//! ```

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
mod lambda;
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
pub use call::{Call, CallError, Outcome, Served, Stage, Stages, Start, message_of};
pub use config::{EngineConfig, ZygotePolicy};
pub use distribution::Distribution;
pub use engine::{Engine, Kept, Promise};
pub use function::VersionId;
pub use handler::Handler;
pub use lambda::LambdaFailure;

pub use import_cache::{ImportCache, ImportTime, Pick};
pub use output::{LogLine, LogSink};
pub use package::{PackageStore, Packages};
pub use secrets::{NoSecrets, SecretEnvironment, SecretStore, SecretsUnreadable};
pub use status::{
    EngineStatus, ImportCost, InstanceStatus, MemoryStatus, RefusedStatus, ZygoteStatus,
};
pub use zygote_tree::ZygoteTree;
