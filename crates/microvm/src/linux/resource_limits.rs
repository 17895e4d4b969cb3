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

use std::time::{Duration, Instant};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::call::{self, Flow, signed};
use super::files;
use super::process::Process;
use super::record::{Record, long_at};
use super::signals;
use super::start::USER;
use super::threads::Standing;
use super::{Answer, identity};
use crate::memory::layout::STACK_BYTES;

const INFINITE: u64 = libc::RLIM_INFINITY;
/// How many kinds there are: RLIM_NLIMITS.
const KINDS: usize = 16;
/// As in containers, where a host that pipes cores to a program takes no heed of 0 (core(5)).
const CORE: u64 = 1;
const SIGNALS: u64 = 1024;
/// Linux's own: POSIX message queues, bytes that may be locked.
const QUEUES: u64 = 819_200;
const LOCKED: u64 = 8 << 20;
/// More threads than one machine has.
const TASKS: u64 = super::threads::MOST as u64 + 1;

/// Soft and hard limit of each kind, by the kind's number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResourceLimits {
    all: [[u64; 2]; KINDS],
    /// Seconds of the processor after which SIGXCPU comes next.
    next_warning: Option<u64>,
    /// From 0 to 19. It is told, and nothing follows from it: a machine has its processor to itself.
    niceness: u8,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        let mut all = [[INFINITE; 2]; KINDS];
        for (kind, limits) in [
            (libc::RLIMIT_STACK, [STACK_BYTES, INFINITE]),
            (libc::RLIMIT_CORE, [CORE; 2]),
            (libc::RLIMIT_NPROC, [TASKS; 2]),
            (libc::RLIMIT_NOFILE, [files::MOST as u64; 2]),
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
    fn soft(&self, kind: libc::__rlimit_resource_t) -> u64 {
        self.all[kind as usize][0]
    }

    /// Descriptors are smaller than this.
    pub(super) fn descriptors(&self) -> usize {
        usize::try_from(self.soft(libc::RLIMIT_NOFILE)).unwrap_or(usize::MAX).min(files::MOST)
    }

    /// Whether a limit of a file's length is set; and that.
    pub(super) fn file_bytes(&self) -> Option<u64> {
        Some(self.soft(libc::RLIMIT_FSIZE)).filter(|most| *most != INFINITE)
    }

    /// Threads at most.
    pub(super) fn tasks(&self) -> u64 {
        self.soft(libc::RLIMIT_NPROC)
    }

    /// How much of the processor may be used until something is done about it.
    fn processor(&self) -> Option<Duration> {
        let [_, hard] = self.all[libc::RLIMIT_CPU as usize];
        let next = self.next_warning.unwrap_or(INFINITE).min(hard);
        (next != INFINITE).then(|| Duration::from_secs(next))
    }

    fn set(&mut self, kind: usize, limits: [u64; 2]) {
        self.all[kind] = limits;
        if kind == libc::RLIMIT_CPU as usize {
            // 0 stands for "at once", and Linux counts from a second on.
            self.next_warning = Some(limits[0].max(1)).filter(|soft| *soft != INFINITE);
        }
    }

    /// As a table for `/proc/self/limits`: names and units are Linux's.
    pub(super) fn table(&self) -> String {
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

/// `prlimit`, of this process alone; `getrlimit` and `setrlimit` are it without the one or the other.
pub(super) fn prlimit(process: &mut Process, pid: u64, what: u64, new: u64, old: u64) -> Answer {
    let wanted = match new {
        0 => None,
        new => {
            let bytes = process.space.read(new, 16)?;
            Some([long_at(bytes, 0), long_at(bytes, 8)])
        }
    };
    let kind = usize::try_from(signed(what)).ok().filter(|kind| *kind < KINDS);
    let kind = kind.ok_or(Errno::INVAL)?;
    identity::own(process, pid)?;
    let before = process.kernel.limits.all[kind];
    // The limit of core files is answered with success and stays, as in a container.
    if let Some(wanted) = wanted.filter(|_| kind != libc::RLIMIT_CORE as usize) {
        let [soft, hard] = wanted;
        if soft > hard {
            return Err(Errno::INVAL);
        }
        // That takes CAP_SYS_RESOURCE.
        if hard > before[1] {
            return Err(Errno::PERM);
        }
        process.kernel.limits.set(kind, wanted);
        enforce(process);
    }
    if old != 0 {
        let record = Record::<16>::new().long(0, before[0]).long(8, before[1]);
        process.space.write(old, 16)?.copy_from_slice(record.bytes());
    }
    Ok(0)
}

/// ESRCH for another process than this, by its number, its group's, or its user's; EINVAL for no such kind.
fn own_priority(process: &Process, which: u64, who: u64) -> Result<(), Errno> {
    match signed(which) {
        0 | 1 => identity::own(process, who),
        2 if matches!(call::fd(who), 0 | USER) => Ok(()),
        2 => Err(Errno::SRCH),
        _ => Err(Errno::INVAL),
    }
}

/// `getpriority`, which tells 20 less the niceness.
pub(super) fn niceness(process: &Process, which: u64, who: u64) -> Answer {
    own_priority(process, which, who)?;
    Ok(20 - u64::from(process.kernel.limits.niceness))
}

/// `setpriority`: it only becomes nicer.
pub(super) fn set_niceness(process: &mut Process, which: u64, who: u64, wanted: u64) -> Answer {
    own_priority(process, which, who)?;
    let wanted = signed(wanted).clamp(-20, 19);
    let now = &mut process.kernel.limits.niceness;
    match u8::try_from(wanted) {
        Ok(wanted) if wanted >= *now => {
            *now = wanted;
            Ok(0)
        }
        _ => Err(Errno::ACCESS),
    }
}

/// Has descriptors and memory know the limits as they are now: after each change, and where a process begins.
pub(super) fn enforce(process: &mut Process) {
    let limits = &process.kernel.limits;
    process.space.set_own_limit(limits.soft(libc::RLIMIT_AS));
    process.kernel.files.set_most(limits.descriptors());
}

/// Whether what a file is to have is more than a file may: EFBIG, and SIGXFSZ where the call ends.
pub(super) fn check_length(process: &Process, length: u64) -> Result<(), Errno> {
    match process.kernel.limits.file_bytes() {
        Some(most) if length > most => Err(Errno::FBIG),
        _ => Ok(()),
    }
}

/// The part of a write that a file may still take; none but nothing: EFBIG.
pub(super) fn fitting(process: &Process, offset: u64, length: u64) -> Result<u64, Errno> {
    match process.kernel.limits.file_bytes() {
        Some(most) if length > 0 && offset >= most => Err(Errno::FBIG),
        Some(most) => Ok(length.min(most.saturating_sub(offset))),
        None => Ok(length),
    }
}

/// Whether a call that fails with EFBIG sends SIGXFSZ, too.
pub(super) fn signals_length(process: &Process) -> bool {
    process.kernel.limits.file_bytes().is_some()
}

/// When the processor's time is over, if the process runs on from now.
pub(super) fn due(process: &Process) -> Option<Instant> {
    let most = process.kernel.limits.processor()?;
    Instant::now().checked_add(most.saturating_sub(process.used.now()))
}

/// Sends the signal if the processor's time is over. None: the running thread goes on.
pub(super) fn spend(process: &mut Process, standing: Standing) -> Option<Flow> {
    let used = process.used.now();
    if process.kernel.limits.processor().is_none_or(|most| used < most) {
        return None;
    }
    let limits = &mut process.kernel.limits;
    let [_, hard] = limits.all[libc::RLIMIT_CPU as usize];
    if used.as_secs() >= hard {
        return Some(Flow::Kill(libc::SIGKILL));
    }
    limits.next_warning = Some(used.as_secs() + 1);
    signals::arrive(process, signals::XCPU, standing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processors_time_is_warned_of_each_second_and_ends_at_the_hard_limit() {
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
