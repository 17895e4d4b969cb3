//! Clearing up at once after a killed warden, and not only at the next start. For cgroups of
//! version 1, whose frozen processes do not die with their PID namespace: they would stay, with
//! their memory.
//!
//! ```text
//!   warden ─ fork ─► guardian, waits ── the warden has removed everything by itself: killed by it
//!                       └───────────── the warden was killed, while it served or stopped: thaws, kills, removes, ends
//! ```
//! It also holds the warden's lock on the state directory: the next warden waits until it is done.
//! If the guardian is killed too, the next warden does the rest.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, set_parent_process_death_signal, waitid,
};
use sys::process::{PidFd, exit_now, fork_single_threaded};

use crate::recover;

/// The descriptor of the lock.
const TURN: i32 = 0;

/// The waiting process. Dropping it ends it, and nothing is cleared: the last act of a warden.
#[derive(Debug)]
pub struct Guardian(PidFd);

impl Guardian {
    /// Starts it, for the groups of that name. `turn` is what [`recover::await_turn`] returned. For
    /// a process with one thread.
    ///
    /// # Errors
    /// As `fork(2)`.
    pub fn start(name: &str, turn: BorrowedFd<'_>) -> io::Result<Self> {
        let warden = getpid();
        let Some(pid) = fork_single_threaded()? else { guard(name, turn, warden) };
        // Its number alone could become another process's once it is reaped.
        Ok(Self(PidFd::open(pid)?))
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        let _ = self.0.kill();
        // Fails when it was reaped with all other children.
        let _ = waitid(WaitId::PidFd(self.0.as_fd()), WaitIdOptions::EXITED);
    }
}

/// Runs in the guardian, to its end.
fn guard(name: &str, turn: BorrowedFd<'_>, warden: Pid) -> ! {
    // SAFETY: an all-zero set is a valid one.
    let mut signals: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set outlives the call.
    unsafe { libc::sigaddset(&raw mut signals, libc::SIGTERM) };
    // Blocked, so that it stays pending. SAFETY: the set outlives the call.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut()) };
    // SAFETY: standard input has no user in this process.
    unsafe { libc::dup2(turn.as_fd().as_raw_fd(), TURN) };
    // Closes the worker's socket too: the worker has to see the warden's end. SAFETY: this process
    // uses no other, and drops nothing that owns one.
    let _ = unsafe { sys::process::close_from(3) };
    let told = set_parent_process_death_signal(Some(Signal::TERM));
    // Another process may have sent the signal, or the warden may have ended before the signal was
    // set.
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
