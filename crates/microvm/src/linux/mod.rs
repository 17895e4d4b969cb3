//! The Linux personality: enough of Linux, in the monitor, for unmodified programs.
//!
//! ```text
//!   start         loads a program            run   enters the guest, answers its calls until it pauses
//!     │                                       │
//!     │    snapshot   templates, clones       ├──► syscalls      a table of numbers, and what answers them
//!     │       │                               │      ├──► scheduling     turns of threads, signals, timers
//!     │       │                               │      │       ├──► mapped_files    files that memory shows
//!     └───────┴───────────────────────────────┴──────┴───────┴──► state   what is known of a process
//!                                                                   └──► abi    registers, structures, flags
//! ```
//!
//! Nothing of the host is passed through: descriptors are the monitor's own numbers, paths are
//! looked up in the guest's own tree, and the program is the only process there is. A call that is
//! not in the table returns ENOSYS, and the monitor notes its number once.

mod abi;
mod mapped_files;
mod run;
mod scheduling;
mod snapshot;
mod start;
mod state;
mod syscalls;

pub use snapshot::{Build, ForkError, ForkSide, RestoreError, SaveError, Template, VERSION};
pub use start::Options;
pub use state::error::ProcessError;
pub use state::files::{MAX_LAYER_FILES, Stream};
pub use state::flow::Pause;
pub use state::process::Process;
pub use syscalls::table::OPTIONAL_CALLS;

pub use crate::memory::Reset;
