//! Weights and limits of processors.
//!
//! All sandboxes live in one group of the processors. The scheduler's automatic groups (sched(7): one for each session) hold
//! threads of the hierarchy's top group only: in another group each thread weighs as one, also in a session of its own.
//! An interpreter that is started enters that group once, and forks inherit it: a call pays nothing. The group weighs as one
//! thread for each processor. So the worker, the warden and the rest of the host have at least half of each processor that one
//! of their threads wants, however many threads sandboxes run; and sandboxes have half of each processor that one other thread
//! or session wants.
//!
//! Limits are for sandboxes that ask for some, and cost the others nothing: neither one more move at
//! each start (version 1) nor one more level of the scheduler (version 2). The warden makes that move itself, when the one
//! that asks has landed; and gives a group back without them.

use std::io;
use std::path::Path;

use super::{Cgroups, Group, write_to};
use crate::protocol::Cpu;

/// Microseconds in which a quota of processors is used up or not: the kernel's own default, and everybody's.
pub(crate) const PERIOD: u64 = 100_000;

/// What one thread weighs, on the scale of version 2 (cgroup-v2.rst: `cpu.weight`, 1 to 10000).
const THREAD: u32 = 100;

impl Cgroups {
    /// Has all sandboxes together weigh as one thread for each processor of the host. False where the host has no group of
    /// the processors for them: then they weigh as the warden's own threads, or as their sessions.
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
