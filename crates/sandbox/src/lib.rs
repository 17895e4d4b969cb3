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
mod death;
pub mod guest;
mod id;
mod provider;
mod spec;
pub mod wire;

#[cfg(feature = "fake")]
pub mod fake;

pub use chain::chain;
pub use death::Death;
// The words of a function that a sandbox is told: every implementation of the seam needs them.
pub use function::{
    Cpu, CpuBounds, Destination, Kind, Limits, Network, NoProcessors, Processors, Reset, network,
};
pub use id::{InvocationId, SandboxId};
pub use provider::{
    Imports, Instance, LoadedFile, Pending, Provider, ProviderError, Sandbox, Zygote,
};
pub use spec::{InstanceSpec, Layer, LayerError, PythonSpec, ZygoteSpec};
