//! Limits of processors. They are for those that ask for some, and cost nobody else anything: neither one more move at
//! each start (version 1) nor one more level of the scheduler (version 2). The warden makes that move itself, when who asks
//! has landed; and gives a group back without them.

use std::io;
use std::path::Path;

use super::{Cgroups, Group, write_to};
use crate::protocol::Cpu;

/// Microseconds in which a quota of processors is used up or not: the kernel's own default, and everybody's.
pub(super) const PERIOD: u64 = 100_000;

impl Cgroups {
    /// Whether limits of processors are enforced.
    #[must_use]
    pub fn limits_cpu(&self) -> bool {
        match self {
            Self::V1(h) => h.limits_cpu(),
            Self::V2(h) => h.limits_cpu(),
            Self::None => false,
        }
    }

    /// Limits the processors of who is in the group now and of all that they will start. Where the host cannot, nothing is
    /// done: [`Cgroups::limits_cpu`] says so.
    ///
    /// # Errors
    /// As `mkdir(2)` and `write(2)`; EINVAL when a group above is given less.
    pub fn limit_cpu(&self, group: &Group, cpu: Cpu) -> io::Result<()> {
        match self {
            Self::V1(h) => h.limit_cpu(group, cpu, &self.pids(group)),
            Self::V2(h) => h.limit_cpu(group, cpu),
            Self::None => Ok(()),
        }
    }

    /// Undoes [`Cgroups::limit_cpu`], for who is in the group and for who comes.
    ///
    /// # Errors
    /// As `write(2)`.
    pub fn unlimit_cpu(&self, group: &Group) -> io::Result<()> {
        match self {
            Self::V1(h) => h.unlimit_cpu(group),
            Self::V2(h) => h.unlimit_cpu(group),
            Self::None => Ok(()),
        }
    }
}

/// Moves processes; one that has ended meanwhile need not be moved.
pub(super) fn move_to(procs: &Path, pids: &[i32]) -> io::Result<()> {
    pids.iter().try_for_each(|pid| match write_to(procs, &pid.to_string()) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        moved => moved,
    })
}

/// Processors in thousandths as microseconds of [`PERIOD`].
pub(super) fn microseconds(quota: u32) -> u64 {
    u64::from(quota) * PERIOD / 1000
}
