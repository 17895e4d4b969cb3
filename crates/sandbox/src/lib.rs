//! The seam between the engine and sandboxes: traits, specifications and the wire format.
//!
//! ```text
//!   engine ──► Provider ──► Zygote ──► Instance        traits, implemented by `container` and `vmm`
//!      │                                   │
//!      └──────── wire::Request / Reply ────┘           frames on the instance's own channel
//! ```
//!
//! A *provider* makes sandboxes of one kind. A *zygote* is a Python process with packages imported,
//! which exists to be forked. An *instance* serves the calls of one function. The engine, the
//! caches and `packages` know only these traits; `wool` alone names concrete providers.
//!
//! The traits stay small: create, derive, fork, connect, pause, resume, memory. Dropping a sandbox
//! destroys it. Everything that concerns the program inside ("load this code", "answer this call")
//! is a message on the channel and never a trait method, so that containers and micro-VMs live
//! under the same caches.
//!
//! Every implementation guarantees: a fork has its zygote's kind, Python, network class and tenant
//! ([`ZygoteSpec::check_fork`]); a future that is dropped half-way leaves nothing behind; claims of
//! a guest (pids, import times) are bounded by what the worker measures ([`Imports::bound`]).
//!
//! `fake` (feature `fake`) is the one test double. [`wire`] specifies the frames, and
//! `guest/vectors/wire.json` holds examples that the Rust and the Python tests both read.

#![forbid(unsafe_code)]

mod chain;
mod death;
mod error;
pub mod guest;
mod id;
mod imports;
mod provider;
mod spec;
pub mod wire;

#[cfg(feature = "fake")]
pub mod fake;

pub use chain::chain;
pub use death::Death;
// Words for describing a function, which every implementation of the seam needs.
pub use error::ProviderError;
pub use function::{
    Cpu, CpuBounds, Destination, Kind, Limits, Network, NoProcessors, Processors, Reset, network,
};
pub use id::{InvocationId, SandboxId};
pub use imports::{Imports, LoadedFile};
pub use provider::{Instance, Pending, Provider, Sandbox, Zygote};
pub use spec::{InstanceSpec, Layer, LayerError, PythonSpec, ZygoteSpec};
