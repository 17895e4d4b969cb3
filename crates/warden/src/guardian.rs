//! Clearing up after a warden that was killed, at once and not only at the next start. For cgroups of version 1, whose
//! frozen processes do not die with their place: thawed by nobody, they would keep their memory.
//!
//! ```text
//!   warden ─ fork ─► guardian, waits ── the warden has removed everything by itself: killed by it
//!                       └───────────── the warden was killed, while it served or stopped: thaws, kills, removes, ends
//! ```
//! It holds the warden's turn on the state directory, too: the next warden waits until it is done. Whoever kills both
//! leaves the rest to that one.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, set_parent_process_death_signal, waitid,
};
use sys::process::{PidFd, exit_now, fork_single_threaded};

use crate::recover;

/// Where it holds the turn.
const TURN: i32 = 0;

/// The waiting process. Dropping it ends it, and nothing is cleared: the last thing that a warden does.
#[derive(Debug)]
pub struct Guardian(PidFd);

impl Guardian {
    /// Starts it, for the groups of that name. `turn` is what [`recover::await_turn`] returned. For a process with one
    /// thread.
    ///
    /// # Errors
    /// As `fork(2)`.
    pub fn start(name: &str, turn: BorrowedFd<'_>) -> io::Result<Self> {
        let warden = getpid();
        let Some(pid) = fork_single_threaded()? else { guard(name, turn, warden) };
        // Its number alone would be another's once somebody has reaped it.
        Ok(Self(PidFd::open(pid)?))
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        let _ = self.0.kill();
        // Fails when it was reaped with all others.
        let _ = waitid(WaitId::PidFd(self.0.as_fd()), WaitIdOptions::EXITED);
    }
}

/// Runs in the guardian, to its end.
fn guard(name: &str, turn: BorrowedFd<'_>, warden: Pid) -> ! {
    // SAFETY: an all-zero set is a valid one.
    let mut signals: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set outlives the call.
    unsafe { libc::sigaddset(&raw mut signals, libc::SIGTERM) };
    // Blocked, so that it waits for us.
    // SAFETY: the set outlives the call.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut()) };
    // SAFETY: standard input is nobody's here.
    unsafe { libc::dup2(turn.as_fd().as_raw_fd(), TURN) };
    // The worker's socket among them: it has to see the warden's end.
    // SAFETY: this process uses no other, and drops nothing that owns one.
    let _ = unsafe { sys::process::close_from(3) };
    let told = set_parent_process_death_signal(Some(Signal::TERM));
    // Somebody else may have sent the signal; the warden may have ended before we asked for it.
    while told.is_ok() && getppid() == Some(warden) {
        let mut signal = 0;
        // SAFETY: both outlive the call.
        unsafe { libc::sigwait(&raw const signals, &raw mut signal) };
    }
    if getppid() != Some(warden) {
        recover::clear(name);
    }
    exit_now(0)
}
