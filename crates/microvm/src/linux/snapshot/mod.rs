//! Copies of processes: clones and resets in memory, forks of the monitor, templates on disk.
//!
//! ```text
//!   template   a frozen process; clones share its pages, resets go back to it
//!     └── touched   which pages a call touches, so that clones get them ahead of time
//!   disk       a template in a file, for a later monitor on the same host
//!   fork       a clone by `fork` of the whole monitor, to be measured beside templates
//! ```

mod disk;
mod fork;
mod template;
mod touched;

pub use disk::{Build, RestoreError, SaveError, VERSION};
pub use fork::{ForkError, ForkSide};
pub use template::Template;
