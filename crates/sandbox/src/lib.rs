//! The seam: what the engine asks of a sandbox, and what the two say to each other.
//!
//! ```text
//!   engine ──► Provider ──► Zygote ──► Instance        traits, implemented by `container` and `vmm`
//!      │                                   │
//!      └──────── wire::Request / Reply ────┘           frames on the instance's own channel
//! ```
//!
//! The seam stays tiny: create, derive, fork, connect, pause, resume, memory. Dropping a sandbox destroys it.
//! Whatever is particular to what runs inside ("load this code", "answer this call") is a message on the channel
//! and never a trait method, so that a container and a micro-VM live under the same caches.

#![forbid(unsafe_code)]

mod chain;
mod cpu;
mod death;
pub mod guest;
mod id;
pub mod network;
mod provider;
mod spec;
pub mod wire;

#[cfg(feature = "fake")]
pub mod fake;

pub use chain::chain;
pub use cpu::{Cpu, CpuBounds, NoProcessors, Processors};
pub use death::Death;
pub use id::{InvocationId, SandboxId};
pub use network::{Destination, Network};
pub use provider::{
    Imports, Instance, LoadedFile, Pending, Provider, ProviderError, Sandbox, Zygote,
};
pub use spec::{InstanceSpec, Kind, Layer, LayerError, Limits, PythonSpec, Reset, ZygoteSpec};
