//! A process by descriptor, which never comes to mean another process with the same number.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Signal(i32),
}

impl ProcessEnd {
    /// Decodes a status of `wait(2)`.
    #[must_use]
    pub fn from_status(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            Self::Signal(libc::WTERMSIG(status))
        } else {
            Self::Exited(libc::WEXITSTATUS(status))
        }
    }
}

/// A process's number and user ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The pid in the caller's namespace.
    pub pid: i32,
    /// Real, effective, saved and file-system user id.
    pub uids: [u32; 4],
}

/// Refers to one process: never to another one with the same number.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// Opens the process that has this number now.
    ///
    /// # Errors
    /// As `pidfd_open(2)`: ESRCH when there is none.
    pub fn open(pid: i32) -> io::Result<Self> {
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// Whether the process still runs (a zombie does not).
    #[must_use]
    pub fn alive(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)) == Ok(0)
    }

    /// Waits until the process has ended, at most `milliseconds`. Says whether it has.
    #[must_use]
    pub fn wait(&self, milliseconds: u32) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let limit = Timespec {
            tv_sec: i64::from(milliseconds / 1000),
            tv_nsec: i64::from(milliseconds % 1000) * 1_000_000,
        };
        poll(&mut fds, Some(&limit)) == Ok(1)
    }

    /// Kills it. A process that is gone already is no error.
    ///
    /// # Errors
    /// EPERM for a process of another user.
    pub fn kill(&self) -> io::Result<()> {
        match pidfd_send_signal(&self.0, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// How the process ended, even if another process has reaped it: Linux ≥ 6.15. Before that, for
    /// an unreaped child of the caller's. None while it runs or where unknown.
    #[must_use]
    pub fn ended(&self) -> Option<ProcessEnd> {
        if let Some(info) = self.info(PIDFD_INFO_EXIT)
            && info.mask & PIDFD_INFO_EXIT != 0
        {
            return Some(ProcessEnd::from_status(info.exit_code));
        }
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::PidFd(self.0.as_fd()), look).ok()??;
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Some(ProcessEnd::Exited(code)),
            (None, signal) => signal.map(ProcessEnd::Signal),
        }
    }

    /// Number and user ids of the process, in the caller's namespaces: from the kernel directly (3
    /// µs, Linux ≥ 6.13), else from `/proc`. None when it is gone.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        if let Some(info) = self.info(PIDFD_INFO_PID | PIDFD_INFO_CREDS)
            && info.mask & PIDFD_INFO_CREDS != 0
        {
            let [real, _, effective, _, saved, _, file_system, _] = info.ids;
            let pid = i32::try_from(info.pid).ok()?;
            return Some(Identity { pid, uids: [real, effective, saved, file_system] });
        }
        let pid = self.child_number()?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        let mut ids = line.split_whitespace().filter_map(|id| id.parse().ok());
        Some(Identity { pid, uids: [ids.next()?, ids.next()?, ids.next()?, ids.next()?] })
    }

    /// The process's number, also of a zombie.
    #[must_use]
    pub fn child_number(&self) -> Option<i32> {
        let path = format!("/proc/self/fdinfo/{}", self.0.as_raw_fd());
        let text = std::fs::read_to_string(path).ok()?;
        let number = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
        number.trim().parse().ok().filter(|pid| *pid > 0)
    }

    /// The PID namespace of the process: Linux ≥ 6.11.
    ///
    /// # Errors
    /// ENOTTY before that kernel, ESRCH when it is gone.
    pub fn pid_namespace(&self) -> io::Result<OwnedFd> {
        const PIDFD_GET_PID_NAMESPACE: libc::c_ulong = 0xff06;
        // SAFETY: this request takes no argument and returns a descriptor.
        let fd = unsafe { libc::ioctl(self.0.as_raw_fd(), PIDFD_GET_PID_NAMESPACE as _, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made it for this call.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    fn info(&self, mask: u64) -> Option<PidfdInfo> {
        // `_IOWR(0xFF, 11, struct pidfd_info)` for the 64-byte first version.
        const PIDFD_GET_INFO: libc::c_ulong = 0xc040_ff0b;
        let mut info = PidfdInfo { mask, ..PidfdInfo::default() };
        // SAFETY: the request's size field says 64 bytes, which is what `info` has.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), PIDFD_GET_INFO as _, &raw mut info) };
        (result == 0).then_some(info)
    }
}

impl From<OwnedFd> for PidFd {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

const PIDFD_INFO_PID: u64 = 1;
const PIDFD_INFO_CREDS: u64 = 2;
const PIDFD_INFO_EXIT: u64 = 8;

#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroupid: u64,
    pid: u32,
    tgid: u32,
    ppid: u32,
    ids: [u32; 8],
    exit_code: i32,
}

const _: () = assert!(size_of::<PidfdInfo>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pidfd_tells_when_and_how_a_process_ended() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "read x; exit 7"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pidfd = PidFd::open(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(pidfd.alive());
        drop(child.stdin.take());
        assert!(pidfd.wait(5000));
        assert!(!pidfd.alive());
        child.wait().unwrap();
        // Linux before 6.15 cannot tell.
        assert!(matches!(pidfd.ended(), Some(ProcessEnd::Exited(7)) | None));
    }
}
