//! Lean containers, from the unprivileged side.
//!
//! ```text
//!   Containers (Provider) ── client ──► warden            prepares slots, checks who landed, frees
//!        │                                │ descriptors
//!        ▼                                ▼
//!   ContainerZygote ── fork message + slot's descriptors ──► zygote ── fork ──► instance
//!        │                                                                        │ READY, credentials, pidfd
//!        └────────────────────────── landed: checked by the warden ◄──────────────┘
//! ```

mod client;
mod container;
mod demand;
mod fork;
mod handle;
mod imports;
mod launch;
mod provider;
mod reach;
mod watch;
mod zygote;

pub use client::{Client, unexpected};
pub use container::in_the_wardens_words;
pub use handle::Handle;
pub use launch::{
    LaunchError, WardenOptions, WardenProcess, clear_leftovers, launch, start_waiting,
};
pub use provider::{ContainerOptions, Containers};
pub use warden::defence::{Defence, Defences};
pub use warden::isolation::{Hang, Isolation, Namespaces, Supply};
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

/// The guest's native extensions, to be laid beside its Python files under these names, by which Python finds extensions
/// against its stable ABI.
pub const NATIVE: &[(&str, &[u8])] = native! { "landing" "sharing" };
