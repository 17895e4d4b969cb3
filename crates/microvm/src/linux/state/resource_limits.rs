//! Limits that a program sets for itself: getrlimit(2), setrlimit(2), prlimit(2).
//!
//! | limit | what follows from it here |
//! | --- | --- |
//! | `RLIMIT_NOFILE` | no descriptor of that number or above: EMFILE, of `dup2` EBADF |
//! | `RLIMIT_FSIZE` | no file is made longer: SIGXFSZ and EFBIG |
//! | `RLIMIT_AS` | no more is mapped: ENOMEM |
//! | `RLIMIT_NPROC` | no more threads: EAGAIN |
//! | `RLIMIT_CPU` | SIGXCPU once a second beyond the soft one, SIGKILL at the hard one |
//! | all others | it is remembered |
//!
//! A machine's own limits hold beside them.

use std::time::Duration;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::linux::state::files::MAX_DESCRIPTORS;
use crate::linux::state::threads::MAX_THREADS;
use crate::memory::layout::STACK_BYTES;

pub(crate) const INFINITE: u64 = libc::RLIM_INFINITY;

/// Number of limits: RLIM_NLIMITS.
pub(crate) const KINDS: usize = 16;

/// As in containers, where a host that pipes cores to a program ignores 0 (core(5)).
const CORE: u64 = 1;

const SIGNALS: u64 = 1024;

/// Linux's defaults: bytes of POSIX message queues, and bytes that may be locked.
const QUEUES: u64 = 819_200;

const LOCKED: u64 = 8 << 20;

/// One more than a machine has.
const TASKS: u64 = MAX_THREADS as u64 + 1;

/// Soft and hard limits, by kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResourceLimits {
    pub(crate) all: [[u64; 2]; KINDS],
    /// Seconds of processor time at which SIGXCPU comes next.
    pub(crate) next_warning: Option<u64>,
    /// From 0 to 19. Without effect: a machine has its processor to itself.
    pub(crate) niceness: u8,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        let mut all = [[INFINITE; 2]; KINDS];
        for (kind, limits) in [
            (libc::RLIMIT_STACK, [STACK_BYTES, INFINITE]),
            (libc::RLIMIT_CORE, [CORE; 2]),
            (libc::RLIMIT_NPROC, [TASKS; 2]),
            (libc::RLIMIT_NOFILE, [MAX_DESCRIPTORS as u64; 2]),
            (libc::RLIMIT_MEMLOCK, [LOCKED; 2]),
            (libc::RLIMIT_SIGPENDING, [SIGNALS; 2]),
            (libc::RLIMIT_MSGQUEUE, [QUEUES; 2]),
            (libc::RLIMIT_NICE, [0; 2]),
            (libc::RLIMIT_RTPRIO, [0; 2]),
        ] {
            all[kind as usize] = limits;
        }
        Self { all, next_warning: None, niceness: 0 }
    }
}

impl ResourceLimits {
    pub(crate) fn soft(&self, kind: libc::__rlimit_resource_t) -> u64 {
        self.all[kind as usize][0]
    }

    /// Limit of descriptors' numbers.
    pub(crate) fn descriptors(&self) -> usize {
        usize::try_from(self.soft(libc::RLIMIT_NOFILE)).unwrap_or(usize::MAX).min(MAX_DESCRIPTORS)
    }

    /// Limit of a file's length, if one is set.
    pub(crate) fn file_bytes(&self) -> Option<u64> {
        Some(self.soft(libc::RLIMIT_FSIZE)).filter(|most| *most != INFINITE)
    }

    /// EFBIG for a file of this length, with SIGXFSZ when the call ends.
    pub(crate) fn check_length(&self, length: u64) -> Result<(), Errno> {
        match self.file_bytes() {
            Some(most) if length > most => Err(Errno::FBIG),
            _ => Ok(()),
        }
    }

    /// Bytes of a write at `offset` that the limit allows; EFBIG for none.
    pub(crate) fn fitting(&self, offset: u64, length: u64) -> Result<u64, Errno> {
        match self.file_bytes() {
            Some(most) if length > 0 && offset >= most => Err(Errno::FBIG),
            Some(most) => Ok(length.min(most.saturating_sub(offset))),
            None => Ok(length),
        }
    }

    /// Whether a call that fails with EFBIG sends SIGXFSZ, too.
    pub(crate) fn signals_length(&self) -> bool {
        self.file_bytes().is_some()
    }

    /// Limit of threads.
    pub(crate) fn tasks(&self) -> u64 {
        self.soft(libc::RLIMIT_NPROC)
    }

    /// Processor time at which a signal is due.
    pub(crate) fn processor(&self) -> Option<Duration> {
        let [_, hard] = self.all[libc::RLIMIT_CPU as usize];
        let next = self.next_warning.unwrap_or(INFINITE).min(hard);
        (next != INFINITE).then(|| Duration::from_secs(next))
    }

    pub(crate) fn set(&mut self, kind: usize, limits: [u64; 2]) {
        self.all[kind] = limits;
        if kind == libc::RLIMIT_CPU as usize {
            // 0 means "at once"; Linux counts from one second on.
            self.next_warning = Some(limits[0].max(1)).filter(|soft| *soft != INFINITE);
        }
    }

    /// The table of `/proc/self/limits`, with Linux's names and units.
    pub(crate) fn table(&self) -> String {
        const ROWS: [(&str, &str); KINDS] = [
            ("Max cpu time", "seconds"),
            ("Max file size", "bytes"),
            ("Max data size", "bytes"),
            ("Max stack size", "bytes"),
            ("Max core file size", "bytes"),
            ("Max resident set", "bytes"),
            ("Max processes", "processes"),
            ("Max open files", "files"),
            ("Max locked memory", "bytes"),
            ("Max address space", "bytes"),
            ("Max file locks", "locks"),
            ("Max pending signals", "signals"),
            ("Max msgqueue size", "bytes"),
            ("Max nice priority", ""),
            ("Max realtime priority", ""),
            ("Max realtime timeout", "us"),
        ];
        let told = |limit: u64| match limit {
            INFINITE => "unlimited".to_owned(),
            limit => limit.to_string(),
        };
        let mut text =
            format!("{:<25} {:<20} {:<20} {:<10}\n", "Limit", "Soft Limit", "Hard Limit", "Units");
        for ((name, unit), [soft, hard]) in ROWS.iter().zip(self.all) {
            text += &format!("{name:<25} {:<20} {:<20} {unit:<10}\n", told(soft), told(hard));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_warns_each_second_and_ends_at_the_hard_limit() {
        let mut limits = ResourceLimits::default();
        assert_eq!(limits.processor(), None);
        limits.set(0, [0, 3]);
        assert_eq!(limits.processor(), Some(Duration::from_secs(1)));
        limits.next_warning = Some(5);
        assert_eq!(limits.processor(), Some(Duration::from_secs(3)));
        limits.set(0, [INFINITE; 2]);
        assert_eq!(limits.processor(), None);
    }

    #[test]
    fn the_table_of_limits_has_linux_columns() {
        let table = ResourceLimits::default().table();
        assert!(table.starts_with(
            "Limit                     Soft Limit           Hard Limit           Units     \n"
        ));
        assert!(table.contains(
            "Max stack size            8388608              unlimited            bytes     \n"
        ));
        assert_eq!(table.lines().count(), 1 + KINDS);
    }
}
