//! Micro-VMs behind the seam.
//!
//! ```text
//!   worker: Machines (Provider) ──► warden ── starts ──► wool-vmm, jailed: one for each family
//!      │                                                   │
//!      ├── control socket: orders, layers' descriptors ──► ├── reference machine, frozen once it has imported
//!      └── a channel for each instance: sandbox::wire ───► └── clones of it, a thread each
//! ```
//!
//! A *family* is a reference machine and its clones. To the engine the reference machine is a zygote and a clone an
//! instance; what they say to the engine is the same as a container's guest says. A machine that waits for its
//! channel does not run, so that pausing it costs nothing; one that does something else between its calls is held.
//!
//! | if | then |
//! | --- | --- |
//! | a guest faults, exits or wants too much | its channel closes; the worker is told why |
//! | a worker lets go of a channel | its machine is stopped, wherever it is, and dropped |
//! | a monitor dies | the calls of its family fail, and nothing else |
//! | the worker dies | the control socket closes: the monitor ends, and all machines with it |
//! | a snapshot of a reference machine is not what it should be | it is removed, and the machine made anew |
//!
//! Machines are for x86-64. For another processor the worker's side is built without a monitor: [`Machines::new`] says that
//! there are none.

#![forbid(unsafe_code)]

mod examination;
pub mod lacking;
pub mod message;
#[cfg(target_arch = "x86_64")]
pub mod monitor;
mod worker;

pub use examination::Examination;
pub use worker::{Absent, Keep, Machines};

/// Whether there is a monitor for the processor that this was built for.
pub const HAS_MACHINES: bool = cfg!(target_arch = "x86_64");

/// Machines of one family at most.
const MAX_MACHINES: u32 = 4096;
