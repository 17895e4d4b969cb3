//! Micro-VMs behind the seam.
//!
//! ```text
//!   worker: Machines (Provider) ──► warden ── starts ──► wool-vmm, jailed: one for each family
//!      │                                                   │
//!      ├── control socket: orders, layers' descriptors ──► ├── reference machine, frozen after its imports
//!      └── a channel for each instance: sandbox::wire ───► └── clones of it, a thread each
//! ```
//!
//! A *family* is a reference machine and its clones. For the engine the reference machine is a
//! zygote and a clone an instance, which speak like a container's guest. A machine that waits for
//! its channel does not run, so pausing it costs nothing; a machine that runs on between its calls
//! is held.
//!
//! | if | then |
//! | --- | --- |
//! | a guest faults, exits or exceeds a limit | its channel closes; the worker is told why |
//! | a worker drops a channel | its machine is stopped, wherever it is, and dropped |
//! | a monitor dies | the calls of its family fail, and nothing else |
//! | the worker dies | the control socket closes: the monitor ends, and all machines with it |
//! | a snapshot of a reference machine is damaged or foreign | it is removed, and the machine made anew |
//!
//! Machines are for x86-64. For another processor the worker's side is built without a monitor, and
//! [`Machines::new`] refuses.

#![forbid(unsafe_code)]

mod examination;
pub mod message;
pub mod missing_calls;
#[cfg(target_arch = "x86_64")]
pub mod monitor;
mod worker;

pub use examination::Examination;
pub use worker::{Absent, Keep, Machines};

/// Whether this program was built for a processor with a monitor.
pub const HAS_MACHINES: bool = cfg!(target_arch = "x86_64");

/// Machines of one family.
const MAX_MACHINES: u32 = 4096;
