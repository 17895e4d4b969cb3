//! Causes of death, reported by pid 1 of the sandboxes. For kernels before 6.15: later a pidfd
//! tells them, even after its process was reaped.
//!
//! ```text
//!   a fork's intermediate exits ─► its child is an orphan, pid 1's ── ends ─► pid 1 reaps it
//!                                                                              │ 8 bytes: its number in P, its status
//!   Inspect ─► the sandbox whose process had that number ◄── non-blocking pipe ◄┘
//! ```
//! Pid 1 never waits for the warden: a report that does not fit into the pipe is lost, and that
//! death stays unexplained. A death is reported before the number can be another process's. Nor
//! does the warden wait for pid 1. It is never told of a death where a malicious zygote has made
//! itself the reaper of its forks (`PR_SET_CHILD_SUBREAPER`); the worker asks again.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::fcntl_setpipe_size;
use sys::process::ProcessEnd;

/// The descriptor of the pipe in pid 1.
pub(crate) const DEAD: i32 = 0;

/// Requested size of the pipe, in bytes: 131 072 deaths, and the maximum without privilege
/// (pipe(7)).
const ROOM: usize = 1 << 20;

/// Reported deaths of sandboxes' main processes, and the pipe. Deaths of other processes are not
/// kept: so a tenant's many processes cannot push out reports about another tenant's.
#[derive(Debug)]
pub(crate) struct Deaths {
    pipe: OwnedFd,
    /// Sandboxes by the number in P of their process, until its death is reported.
    awaited: HashMap<i32, u64>,
    /// Causes of death by sandbox.
    known: HashMap<u64, ProcessEnd>,
}

impl Deaths {
    pub(crate) fn new(pipe: OwnedFd) -> Self {
        // Processes that fork and orphan endlessly fill the pipe while the warden is busy. Where
        // the kernel refuses a larger one it stays as it is.
        let _ = fcntl_setpipe_size(&pipe, ROOM);
        Self { pipe, awaited: HashMap::new(), known: HashMap::new() }
    }

    /// The pipe, readable when there are reports.
    pub(crate) fn pipe(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Expects the death of a sandbox's process with this number, which lived after the last
    /// [`Deaths::read`]: the next report of that number is about this process, and no earlier one.
    pub(crate) fn expect(&mut self, inside: i32, sandbox: u64) {
        self.awaited.insert(inside, sandbox);
    }

    /// The cause of death of the sandbox's process, if it has been reported.
    pub(crate) fn of(&mut self, sandbox: u64) -> Option<ProcessEnd> {
        self.read();
        self.known.get(&sandbox).copied()
    }

    /// Forgets a sandbox that is gone, whose process had this number.
    pub(crate) fn forget(&mut self, inside: i32, sandbox: u64) {
        self.known.remove(&sandbox);
        // The number may be another process's by now.
        if self.awaited.get(&inside) == Some(&sandbox) {
            self.awaited.remove(&inside);
        }
    }

    /// Reads all reports. Must be called often, or the pipe fills.
    pub(crate) fn read(&mut self) {
        let mut bytes = [0; 8 * 64];
        while let Ok(got @ 1..) = rustix::io::read(&self.pipe, &mut bytes) {
            for told in bytes[..got].chunks_exact(8) {
                let [a, b, c, d, e, f, g, h] = *told else { continue };
                let (pid, status) = ([a, b, c, d], [e, f, g, h]);
                if let Some(sandbox) = self.awaited.remove(&i32::from_ne_bytes(pid)) {
                    let status = i32::from_ne_bytes(status);
                    self.known.insert(sandbox, ProcessEnd::from_status(status));
                }
            }
        }
    }
}

/// Runs in pid 1: an unreaped child that has ended, and its status in the format of `waitpid(2)`.
fn look() -> Option<(i32, i32)> {
    // SAFETY: an all-zero one is valid.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: `info` outlives the call.
    if unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, how) } != 0 {
        return None;
    }
    // SAFETY: `waitid` has filled it in, or left zeros.
    let pid = unsafe { info.si_pid() };
    // SAFETY: as above.
    let status = unsafe { info.si_status() };
    let status = match info.si_code {
        libc::CLD_EXITED => (status & 0xff) << 8,
        libc::CLD_DUMPED => status | 0x80,
        _ => status,
    };
    (pid > 0).then_some((pid, status))
}

/// Runs in pid 1: reaps children and reports them, until the process of the pidfd `warden` has
/// ended.
pub(crate) fn reap_and_tell(warden: BorrowedFd<'_>) {
    // SAFETY: an all-zero set is a valid one.
    let mut children: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set outlives the call.
    unsafe { libc::sigaddset(&raw mut children, libc::SIGCHLD) };
    // Blocked, so that it stays pending: pid 1 of a namespace ignores signals without a handler.
    // SAFETY: the set outlives the call.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const children, std::ptr::null_mut()) };
    // SAFETY: the set outlives the call.
    let ended = unsafe { libc::signalfd(-1, &raw const children, libc::SFD_NONBLOCK) };
    if ended < 0 {
        return;
    }
    // SAFETY: made here, and owned by nothing else.
    let ended = unsafe { OwnedFd::from_raw_fd(ended) };
    loop {
        if let Some((pid, status)) = look() {
            let mut told = [0; 8];
            told[..4].copy_from_slice(&pid.to_ne_bytes());
            told[4..].copy_from_slice(&status.to_ne_bytes());
            // SAFETY: the bytes outlive the call; shorter than a pipe's atomic write.
            unsafe { libc::write(DEAD, told.as_ptr().cast(), told.len()) };
            // Only now may another process have its number. SAFETY: no status is asked for.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL) };
            continue;
        }
        // Children that ended since the last look have left the signal pending.
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

    fn begin() -> (Deaths, OwnedFd) {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        (Deaths::new(read), write)
    }

    fn tell(pipe: &OwnedFd, pid: i32, status: i32) {
        let told = [pid.to_ne_bytes(), status.to_ne_bytes()].concat();
        assert_eq!(rustix::io::write(pipe, &told), Ok(8));
    }

    #[test]
    fn of_two_processes_of_one_number_each_has_its_own_end() {
        let (mut deaths, pipe) = begin();
        deaths.expect(7, 100);
        tell(&pipe, 7, 3 << 8);
        deaths.read();
        // The process has ended by the time its death is expected.
        tell(&pipe, 7, 9);
        deaths.expect(7, 101);
        assert_eq!(deaths.of(101), Some(ProcessEnd::Signal(9)));
        assert_eq!(deaths.of(100), Some(ProcessEnd::Exited(3)));
        deaths.forget(7, 100);
        assert_eq!((deaths.of(100), deaths.of(101)), (None, Some(ProcessEnd::Signal(9))));
    }

    #[test]
    fn a_flood_of_deaths_pushes_none_out_while_nobody_reads() {
        let (mut deaths, pipe) = begin();
        deaths.expect(7, 100);
        for pid in 8..30_008 {
            tell(&pipe, pid, 0);
        }
        tell(&pipe, 7, 1 << 8);
        assert_eq!(deaths.of(100), Some(ProcessEnd::Exited(1)));
    }

    #[test]
    fn whoever_is_no_sandboxes_process_leaves_no_trace() {
        let (mut deaths, pipe) = begin();
        deaths.expect(7, 100);
        tell(&pipe, 7, 1 << 8);
        for _ in 0..100 {
            for pid in 8..64 {
                tell(&pipe, pid, 0);
            }
            deaths.read();
        }
        assert_eq!(deaths.of(100), Some(ProcessEnd::Exited(1)));
        deaths.expect(8, 101);
        deaths.forget(8, 101);
        deaths.forget(7, 100);
        assert!(deaths.awaited.is_empty() && deaths.known.is_empty());
    }
}
