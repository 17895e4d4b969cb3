//! Lean containers: the provider of sandboxes that share the host's kernel, from the unprivileged
//! side.
//!
//! ```text
//!   Containers (Provider) ── client ──► warden            prepares slots, checks landed forks, frees
//!        │                                │ descriptors
//!        ▼                                ▼
//!   ContainerZygote ── fork message + slot's descriptors ──► zygote ── fork ──► instance
//!        │                                                                        │ READY, credentials, pidfd
//!        └────────────────────────── landed: checked by the warden ◄──────────────┘
//! ```
//!
//! A container is a process with a kernel uid, a root, a cgroup and namespaces of its own, without
//! a capability, behind seccomp and Landlock. This crate holds none of the privilege that this
//! takes. It asks the warden for *slots* (everything a fork needs, made ahead) and asks a zygote to
//! fork into one, which takes about a millisecond.
//!
//! **Callers.** `wool` starts the warden ([`launch`]) and hands [`Containers`] to the engine as a
//! `sandbox::Provider`. `vmm` uses [`Client`] and [`Handle`] for its monitors.
//!
//! **Guarantees.** A fork is accepted only after the kernel has named its uid and the warden has
//! checked its cgroups and namespaces, so a malicious zygote cannot pass off another process. A
//! zygote's report on its imports is bounded in size and time. Dropping a sandbox releases all it
//! holds, also half-way through its creation. When the warden is gone, everything fails with
//! `ProviderError::WardenGone`.
//!
//! | file | content |
//! | --- | --- |
//! | `launch`, `client`, `handle` | starting the warden, talking to it, naming a sandbox in it |
//! | `provider`, `shared`, `container`, `zygote` | the traits of `sandbox`, implemented |
//! | `fork`, `demand`, `imports` | landing a fork, how many to keep ready, what imports leave behind |
//! | `reach` | orders to the proxy of outgoing connections (`egress`) |
//!
//! Sources: the zygote and its fork are those of SOCK (Oakes et al., ATC 2018); see
//! `docs/developer/paper-map.md` for what differs.

mod client;
mod container;
mod demand;
mod fork;
mod handle;
mod imports;
mod launch;
mod provider;
mod reach;
mod shared;
mod watch;
mod zygote;

pub use client::{Client, unexpected};
pub use container::warden_limits;
pub use handle::Handle;
pub use launch::{
    LaunchError, WardenOptions, WardenProcess, clear_leftovers, launch, start_waiting,
};
pub use provider::Containers;
pub use shared::ContainerOptions;
pub use warden::defence::{Defence, Defences};
pub use warden::isolation::{CgroupSource, Isolation, Namespaces, RootMount};
pub use warden::protocol::{Host, Layout};
pub use watch::watch;

macro_rules! native {
    ($($name:literal)*) => {
        &[$((
            concat!("lambswool_", $name, ".abi3.so"),
            include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".so")),
        )),*]
    };
}

/// The guest's native extensions, with the names under which Python finds extensions of its stable
/// ABI. To be placed beside the guest's Python files.
pub const NATIVE: &[(&str, &[u8])] = native! { "landing" "sharing" };
