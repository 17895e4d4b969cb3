//! What the monitor knows of a process: data, and operations on it alone. No system call is
//! answered here.

pub(crate) mod alarm;
pub(crate) mod clock_page;
mod conversation;
pub(crate) mod cpu_time;
pub(crate) mod deferred;
pub(crate) mod error;
pub(crate) mod files;
pub(crate) mod flow;
pub(crate) mod host_clock;
pub(crate) mod ids;
pub(crate) mod kernel;
mod measure;
pub(crate) mod process;
pub(crate) mod resource_limits;
pub(crate) mod signals;
pub(crate) mod threads;
