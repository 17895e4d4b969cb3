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

/// The guest's native extension, to be laid beside the guest's Python files as [`LANDING_FILE`].
pub const LANDING: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/landing.so"));

/// Its file name: Python finds a stable-ABI extension by it.
pub const LANDING_FILE: &str = "lambswool_landing.abi3.so";
