//! How processes ended, as pid 1 of the sandboxes tells it. For kernels before 6.15: from then on a pidfd tells, even
//! when its process has been reaped.
//!
//! ```text
//!   a fork's intermediate exits ─► its child is an orphan, pid 1's ── ends ─► pid 1 reaps it
//!                                                                              │ 8 bytes: its number in P, its status
//!   Inspect ─► the last [`KEPT`] ◄── non-blocking pipe ◄───────────────────────┘
//! ```
//! Pid 1 never waits for the warden: what does not fit into the pipe is not told, and that death stays unexplained.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sys::process::Ended;

/// Where pid 1 finds the pipe.
pub(crate) const DEAD: i32 = 0;

/// Deaths that are remembered: far fewer than numbers, so that none is another's of the same number.
const KEPT: usize = 1024;

/// A pidfd tells of an end an instant before pid 1 can.
const PATIENCE: Duration = Duration::from_millis(200);

/// What pid 1 has told, and the pipe.
#[derive(Debug)]
pub(crate) struct Deaths {
    pipe: OwnedFd,
    known: VecDeque<(i32, i32)>,
}

impl Deaths {
    pub(crate) fn new(pipe: OwnedFd) -> Self {
        Self { pipe, known: VecDeque::new() }
    }

    /// How the process ended that had this number. It has ended.
    pub(crate) fn find(&mut self, inside: i32) -> Option<Ended> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.read();
            if let Some((_, status)) = self.known.iter().rev().find(|(pid, _)| *pid == inside) {
                return Some(Ended::from_status(*status));
            }
            if Instant::now() > deadline {
                return None;
            }
            let mut fds = [PollFd::from_borrowed_fd(self.pipe.as_fd(), PollFlags::IN)];
            let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 20_000_000 }));
        }
    }

    /// Takes in what has been told. Often enough, or the pipe fills.
    pub(crate) fn read(&mut self) {
        let mut bytes = [0; 8 * 64];
        while let Ok(got @ 1..) = rustix::io::read(&self.pipe, &mut bytes) {
            for told in bytes[..got].chunks_exact(8) {
                let [a, b, c, d, e, f, g, h] = *told else { continue };
                let (pid, status) = ([a, b, c, d], [e, f, g, h]);
                self.known.push_back((i32::from_ne_bytes(pid), i32::from_ne_bytes(status)));
            }
        }
        let over = self.known.len().saturating_sub(KEPT);
        self.known.drain(..over);
    }
}

/// Runs in pid 1: reaps, and tells, until the process of the pidfd `warden` has ended.
pub(crate) fn reap_and_tell(warden: BorrowedFd<'_>) {
    // SAFETY: an all-zero set is a valid one.
    let mut children: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set outlives the call.
    unsafe { libc::sigaddset(&raw mut children, libc::SIGCHLD) };
    // Blocked, so that it waits: pid 1 of a namespace ignores what it has no handler for.
    // SAFETY: the set outlives the call.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const children, std::ptr::null_mut()) };
    // SAFETY: the set outlives the call.
    let ended = unsafe { libc::signalfd(-1, &raw const children, libc::SFD_NONBLOCK) };
    if ended < 0 {
        return;
    }
    // SAFETY: made here, and nobody else's.
    let ended = unsafe { OwnedFd::from_raw_fd(ended) };
    loop {
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::__WALL) };
        if pid > 0 {
            let mut told = [0; 8];
            told[..4].copy_from_slice(&pid.to_ne_bytes());
            told[4..].copy_from_slice(&status.to_ne_bytes());
            // SAFETY: the bytes outlive the call; shorter than a pipe's atomic write.
            unsafe { libc::write(DEAD, told.as_ptr().cast(), told.len()) };
            continue;
        }
        // Whoever ended since the last look has left the signal pending.
        let mut fds =
            [&ended.as_fd(), &warden].map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN));
        let waited = poll(&mut fds, None);
        if waited.is_ok() && !fds[1].revents().is_empty() {
            return;
        }
        let _ = rustix::io::read(&ended, &mut [0; size_of::<libc::signalfd_siginfo>()]);
    }
}

#[cfg(test)]
mod tests {
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    fn tell(pipe: &OwnedFd, pid: i32, status: i32) {
        let told = [pid.to_ne_bytes(), status.to_ne_bytes()].concat();
        assert_eq!(rustix::io::write(pipe, &told), Ok(8));
    }

    #[test]
    fn of_two_deaths_of_one_number_the_later_is_told() {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let mut deaths = Deaths::new(read);
        tell(&write, 7, 3 << 8);
        tell(&write, 8, 9);
        tell(&write, 7, 0);
        assert_eq!(deaths.find(7), Some(Ended::Exited(0)));
        assert_eq!(deaths.find(8), Some(Ended::Signal(9)));
        assert_eq!(deaths.find(9), None);
    }

    #[test]
    fn only_the_last_deaths_are_remembered() {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let mut deaths = Deaths::new(read);
        for pid in 1..=2 * i32::try_from(KEPT).unwrap() {
            tell(&write, pid, 0);
        }
        deaths.read();
        assert_eq!(deaths.known.len(), KEPT);
        assert_eq!(deaths.find(1), None);
        assert_eq!(deaths.find(2 * i32::try_from(KEPT).unwrap()), Some(Ended::Exited(0)));
    }
}
