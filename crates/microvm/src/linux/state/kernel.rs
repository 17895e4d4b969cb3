//! The kernel's knowledge of a process, beside its memory and its processor.

use crate::linux::state::alarm::Alarm;
use crate::linux::state::files::Files;
use crate::linux::state::resource_limits::ResourceLimits;
use crate::linux::state::signals::Signals;
use crate::linux::state::threads::Threads;
use crate::vfs::{NodeId, Tree};

/// The kernel's knowledge of a process: what a template keeps as plain data.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    pub(crate) tree: Tree,
    pub(crate) files: Files,
    pub(crate) directory: NodeId,
    pub(crate) umask: u32,
    pub(crate) signals: Signals,
    pub(crate) threads: Threads,
    pub(crate) alarm: Alarm,
    pub(crate) limits: ResourceLimits,
    pub(crate) name: [u8; 16],
}
