//! Keeps the kernel quick at moving processes into cgroups while sandboxes are being made.
//!
//! A move takes `cgroup_threadgroup_rwsem` for writing. The first one after a quiet while waits for
//! a grace period of RCU (`rcu_sync_enter`, 8–20 ms here) and the next ones do not (5–20 µs), until
//! a grace period has passed with no move. A zygote that waits so in a fork makes calls wait: one
//! cold call in a hundred took 10–40 ms.
//!
//! So a small process moves itself to the group where it is already, every millisecond for as long
//! as the warden reports work, and sleeps otherwise. It is a real-time process: an ordinary one is
//! late on a busy machine, and then its own move waits.
//!
//! Measured by hand in three paired runs of 1900 cold calls, one at a time: the slowest hundredth
//! took 8.6–10.2 ms with a real-time process, a move each millisecond and two fillers of the pool
//! of spares. It took 11.2–13.0 ms with an ordinary process, a move every four milliseconds and one
//! filler. Mounting the hierarchy with `favordynmods` would help too, but changes the whole host
//! until it reboots.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use sys::process::{
    become_user, close_from, drop_capabilities, exit_now, fork_single_threaded,
    set_no_new_privileges, set_undumpable,
};

use crate::cgroup::{Cgroups, Group};
use crate::limits::{Cpu, Limits};
use crate::uids;

/// Much shorter than a grace period, which takes several milliseconds.
const BETWEEN_MOVES: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// How long the process goes on after the last sign of work: it bridges pauses between two calls.
const ACTIVE_FOR: Duration = Duration::from_millis(30);

/// Limits of the process, generous.
const LIMITS: Limits = Limits {
    memory_bytes: 64 << 20,
    shown_bytes: 64 << 20,
    pids: 4,
    scratch_bytes: 0,
    scratch_inodes: 0,
    cpu: Cpu::UNLIMITED,
};

/// The number of its first descriptor in the process.
const BEATS: i32 = 0;
const PROCS: i32 = 1;

/// The process, as the warden sees it. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct Pacemaker {
    beats: OwnedFd,
    last: Option<Instant>,
}

impl Pacemaker {
    /// Starts the process, in a cgroup of its own. None where there are no cgroups.
    ///
    /// # Errors
    /// As `mkdir(2)` in the hierarchies and `fork(2)`.
    pub(crate) fn start(cgroups: &Cgroups) -> io::Result<Option<Self>> {
        let group = cgroups.make_apart("pacemaker", LIMITS)?;
        let Some(procs) = cgroups.procs(&group) else { return Ok(None) };
        let procs = OwnedFd::from(OpenOptions::new().write(true).open(procs)?);
        let (listen, beats) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        if fork_single_threaded()?.is_none() {
            let _ = become_pacemaker(cgroups, &group, &listen, &procs);
            exit_now(0);
        }
        Ok(Some(Self { beats, last: None }))
    }

    /// Reports that sandboxes are being made.
    pub(crate) fn beat(&mut self) {
        if self.last.is_none_or(|last| last.elapsed() > ACTIVE_FOR / 2) {
            // Full: it is at work already. Closed: it is gone, and moves are slow now and then.
            let _ = rustix::io::write(&self.beats, b"b");
            self.last = Some(Instant::now());
        }
    }
}

fn become_pacemaker(
    cgroups: &Cgroups,
    group: &Group,
    listen: &OwnedFd,
    procs: &OwnedFd,
) -> io::Result<()> {
    cgroups.enter(group)?;
    // Either number may be taken, also by the other descriptor.
    let listen = rustix::io::fcntl_dupfd_cloexec(listen, PROCS + 1)?;
    let procs = rustix::io::fcntl_dupfd_cloexec(procs, PROCS + 1)?;
    // SAFETY: no code uses what is at this number: this process goes on with these two only.
    unsafe { libc::dup2(listen.as_raw_fd(), BEATS) };
    // SAFETY: as above.
    unsafe { libc::dup2(procs.as_raw_fd(), PROCS) };
    // They are closed with everything else.
    std::mem::forget((listen, procs));
    // SAFETY: as above.
    unsafe { close_from(PROCS.unsigned_abs() + 1) }?;
    become_real_time();
    become_user(uids::FIRST - 2)?;
    drop_capabilities()?;
    set_no_new_privileges()?;
    set_undumpable()?;
    // SAFETY: it was put there above and stays open.
    let listen = unsafe { BorrowedFd::borrow_raw(BEATS) };
    // SAFETY: as above.
    let procs = unsafe { BorrowedFd::borrow_raw(PROCS) };
    keep_pace(listen, procs)
}

/// Gives the process priority over all ordinary ones: it needs some microseconds each time, and
/// must not be late on a busy machine. Where the kernel refuses (`sched_setscheduler(2)`: a cgroup
/// without real-time share) it stays an ordinary process.
fn become_real_time() {
    let priority = libc::sched_param { sched_priority: 1 };
    let class = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: sets the calling process's own class, from memory that lives.
    unsafe { libc::sched_setscheduler(0, class, &raw const priority) };
}

/// Moves at intervals until the warden is gone.
fn keep_pace(listen: BorrowedFd<'_>, procs: BorrowedFd<'_>) -> io::Result<()> {
    let mut until = Instant::now();
    loop {
        let limit = (Instant::now() < until).then_some(&BETWEEN_MOVES);
        match poll(&mut [PollFd::new(&listen.as_fd(), PollFlags::IN)], limit) {
            Ok(0) => {
                rustix::io::write(procs, b"0")?;
            }
            Ok(_) if rustix::io::read(listen, &mut [0; 64])? == 0 => return Ok(()),
            Ok(_) => until = Instant::now() + ACTIVE_FOR,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
