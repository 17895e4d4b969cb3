//! The warden: the only privileged process.
//!
//! ```text
//!   worker ──── one SEQPACKET socket, `protocol` ────► wool-warden ──► mounts, namespaces, cgroups, kernel uids
//!     │                                                   │ forks, enters the place, drops everything, execs
//!     │                                                   ▼
//!     └──── control socket ───────────────────────────► zygote ──► instance            all in the place:
//!                                                        PID namespace P with a reaper of ours as pid 1,
//!                                                        mount namespace M with one empty tmpfs, empty network
//!     └──── control socket ───────────────────────────► wool-egress         only where a function may reach something
//! ```
//!
//! It has one thread, takes one command at a time, and decides nothing: which sandbox to make and when is the
//! worker's business. It trusts the worker with sandboxes and with nothing else: paths are resolved beneath the
//! state directory, processes are checked against the slot before they are accepted.
//!
//! When the worker is gone (the socket closes), everything dies with the place's pid 1, and the warden cleans up. When
//! the warden itself is killed, pid 1 goes with it (it holds a pidfd of the warden); what the kernel does not free by itself
//! (cgroups) the next start removes: [`recover`]. With cgroups of version 1 a [`guardian`] does, and at once: paused
//! sandboxes would otherwise stay.

pub mod beside;
pub mod cgroup;
mod confine;
mod deaths;
pub mod defence;
pub mod detach;
pub mod empty;
mod examine;
pub mod filter;
pub mod guardian;
mod identity;
pub mod isolation;
mod land;
mod monitor;
mod pacemaker;
pub mod place;
mod prepare;
pub mod protocol;
mod proxy;
mod reach;
mod reap;
pub mod recover;
pub mod root;
pub mod rootfs;
mod scratch;
pub mod serve;
pub mod slot;
pub mod spawn;
mod stages;
pub mod state_directory;
pub mod uids;
mod view;
