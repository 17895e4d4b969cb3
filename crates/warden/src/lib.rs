//! The warden: the only privileged process.
//!
//! ```text
//!   worker ──── one SEQPACKET socket, `protocol` ────► wool-warden ──► mounts, namespaces, cgroups, kernel uids
//!     │                                                   │ forks, enters namespaces, drops privilege, execs
//!     │                                                   ▼
//!     └──── control socket ───────────────────────────► zygote ──► instance      all in the shared namespaces:
//!                                                        PID namespace P with a reaper of ours as pid 1,
//!                                                        mount namespace M with one empty tmpfs, empty network
//!     └──── control socket ───────────────────────────► wool-egress      only where a function may connect
//! ```
//!
//! Containers need root: a uid of their own, mounts, cgroups, namespaces. The warden is the one
//! small program that has it. It has one thread, takes one command at a time ([`protocol`]), and
//! decides nothing: the worker says which sandbox to make and when. Callers are `container`, which
//! starts the warden and speaks its protocol, and through it `vmm` and `egress`.
//!
//! **Guarantees**
//! - The worker is trusted with sandboxes and with nothing else. Paths are resolved beneath the
//!   state directory without following links ([`state_directory`]); a process is checked against
//!   its slot before it is accepted.
//! - Each sandbox has a kernel uid that no living process of another has ([`uids`]), no capability,
//!   a seccomp filter ([`filter`]), and limits enforced by its cgroup ([`cgroup`]).
//! - What a dead sandbox held is reused only by the same zygote, and only when no process can hold
//!   it any more ([`sandbox`]).
//! - When the worker is gone (the socket closes), pid 1 of the sandboxes dies and every sandbox
//!   with it, and the warden cleans up. When the warden itself is killed, pid 1 ends too, for it
//!   holds a pidfd of the warden. The kernel frees all but cgroups; the next start removes those
//!   ([`recover`]). With cgroups of version 1 a [`guardian`](process::guardian) does so at once,
//!   because paused sandboxes would otherwise stay.
//!
//! Each defence has a name and can be switched off in a test to show what it stops ([`defence`]).
//! Sources: SOCK (Oakes et al., ATC 2018) for lean containers; the man pages named in each file.

pub mod cgroup;
pub mod confine;
pub mod defence;
pub mod isolation;
pub mod limits;
mod network;
mod outcome;
pub mod process;
pub mod protocol;
pub mod recover;
pub mod rootfs;
pub mod sandbox;
pub mod serve;
pub mod state;
pub mod state_directory;
pub mod uids;

pub use confine::filter;
