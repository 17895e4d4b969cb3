//! Weights and limits of processors.
//!
//! All sandboxes live in one group of the cpu controller. The scheduler's automatic groups
//! (sched(7): one for each session) hold threads of the hierarchy's top group only: in another
//! group each thread weighs as one, also in a session of its own. An interpreter that is started
//! enters that group once, and forks inherit it: a call pays nothing.
//!
//! The group weighs as one thread for each processor. So however many threads sandboxes run, the
//! worker, the warden and the rest of the host have at least half of each processor that one of
//! their threads wants. Sandboxes have half of each processor that one other thread or session
//! wants.
//!
//! Only sandboxes that ask for a limit have one. The others pay nothing for it: neither one more
//! move at each start (version 1) nor one more level of the scheduler (version 2). The warden makes
//! the move itself after the fork has landed, and gives a group back without limits.

use std::io;
use std::path::Path;

use super::{Cgroups, Group, write_to};
use crate::limits::Cpu;

/// The period of a processor quota, in microseconds: the kernel's default.
pub(crate) const PERIOD: u64 = 100_000;

/// The weight of one thread, on the scale of version 2 (cgroup-v2.rst: `cpu.weight`, 1 to 10000).
const THREAD: u32 = 100;

impl Cgroups {
    /// Lets all sandboxes together weigh as one thread for each processor of the host. False where
    /// the host has no such group: then they weigh as the warden's own threads, or as their
    /// sessions.
    pub fn weigh_together(&mut self) -> bool {
        // SAFETY: plain numbers.
        let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        let weight = u32::try_from(online).unwrap_or(1).max(1).saturating_mul(THREAD);
        match self {
            Self::V1(h) => h.weigh_together(weight),
            Self::V2(h) => h.weigh_together(weight),
            Self::None => false,
        }
    }

    /// Whether limits of processors are enforced.
    #[must_use]
    pub fn limits_cpu(&self) -> bool {
        match self {
            Self::V1(h) => h.limits_cpu(),
            Self::V2(h) => h.limits_cpu(),
            Self::None => false,
        }
    }

    /// Limits the processors of all processes in the group, and of their children. Does nothing
    /// where the host has no such limits: see [`Cgroups::limits_cpu`].
    ///
    /// # Errors
    /// As `mkdir(2)` and `write(2)`; EINVAL when a group above has less.
    pub fn limit_cpu(&self, group: &Group, cpu: Cpu) -> io::Result<()> {
        match self {
            Self::V1(h) => h.limit_cpu(group, cpu, &self.pids(group)),
            Self::V2(h) => h.limit_cpu(group, cpu),
            Self::None => Ok(()),
        }
    }

    /// Undoes [`Cgroups::limit_cpu`], for present and later processes.
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

/// Moves processes. One that has ended meanwhile is no error.
pub(super) fn move_to(procs: &Path, pids: &[i32]) -> io::Result<()> {
    pids.iter().try_for_each(|pid| match write_to(procs, &pid.to_string()) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        moved => moved,
    })
}

/// Converts thousandths of a processor to microseconds of [`PERIOD`].
pub(super) fn microseconds(quota: u32) -> u64 {
    u64::from(quota) * PERIOD / 1000
}
