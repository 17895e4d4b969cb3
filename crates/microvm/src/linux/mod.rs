//! The Linux personality: enough of Linux, in the monitor, for unmodified programs.
//!
//! ```text
//!   guest ── system call ──► process ──► call::answer ──┬── memory     mmap, mprotect, mremap, brk
//!                                                       ├── paths        open, mkdir, rename, unlink
//!                                                       ├── status       stat, access, readlink, getdents
//!                                                       ├── transfer     read, write, lseek
//!                                                       ├── descriptors  close, dup, pipe, fcntl, flock
//!                                                       ├── sockets      socketpair, sendto, recvfrom, shutdown
//!                                                       ├── ready        poll, select
//!                                                       ├── clock        clock_gettime, nanosleep (clock_page: without a call)
//!                                                       ├── alarm        alarm, setitimer
//!                                                       ├── threads      clone, futex, exit
//!                                                       ├── signals      sigaction, sigaltstack
//!                                                       ├── identity     getpid, uname, limits
//!                                                       └── proc         texts below /proc
//! ```
//!
//! Nothing of the host is passed through: descriptors are the monitor's own numbers, paths are looked up in the guest's
//! own tree, and the program is the only process there is. What is not known is ENOSYS, noted once
//! for each number.

mod ahead;
mod alarm;
mod alone;
mod call;
mod clock;
mod clock_page;
mod conversation;
mod deferred;
mod descriptors;
mod files;
mod flags;
mod fork;
mod futex;
mod identity;
mod measure;
mod memory;
mod own_descriptors;
mod paths;
mod proc;
mod process;
mod ready;
mod record;
mod resource_limits;
mod signals;
mod snapshot;
mod sockets;
mod start;
mod status;
mod template;
mod threads;
mod transfer;

pub use call::SPARED;
pub use files::{MOST_LAYER_FILES, Stream};
pub use fork::{ForkError, Forked};
pub use process::{Options, Pause, Process, ProcessError};
pub use snapshot::{Build, RestoreError, SaveError, VERSION};
pub use template::Template;

pub use crate::memory::Reset;

use rustix::io::Errno;

/// What a system call returns.
type Answer = Result<u64, Errno>;
