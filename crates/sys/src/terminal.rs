//! Lending the terminal to a child that prompts for input, as a shell does with its jobs.
//!
//! A child in a process group of its own does not get the terminal's Ctrl-C. But the kernel stops
//! it (SIGTTIN, SIGTTOU) when it reads a password while its group is not in the foreground.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The terminal, while a child has it. Dropping this puts this process's group in the foreground
/// again, with the terminal's modes as they were.
#[derive(Debug)]
pub struct LentTerminal {
    terminal: OwnedFd,
    ours: Pid,
    modes: Termios,
}

impl LentTerminal {
    /// This process's terminal, to be lent; none when there is none, or the process is not in the
    /// foreground.
    #[must_use]
    pub fn ours() -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?;
        let ours = getpgrp();
        if tcgetpgrp(&terminal).ok()? != ours {
            return None;
        }
        let modes = tcgetattr(&terminal).ok()?;
        Some(Self { terminal, ours, modes })
    }

    /// The terminal itself, for [`take`] in the child.
    #[must_use]
    pub fn terminal(&self) -> BorrowedFd<'_> {
        self.terminal.as_fd()
    }
}

impl Drop for LentTerminal {
    fn drop(&mut self) {
        // The terminal may be gone by now.
        let _ = put_in_front(self.terminal.as_fd(), self.ours);
        let _ = unstopped(|| Ok(tcsetattr(&self.terminal, OptionalActions::Drain, &self.modes)?));
    }
}

/// Puts the calling process's group in the foreground. For a child between fork and exec:
/// async-signal-safe.
///
/// # Errors
/// As `tcsetpgrp(3)`.
pub fn take(terminal: BorrowedFd<'_>) -> io::Result<()> {
    put_in_front(terminal, getpgrp())
}

/// Gives up this process's controlling terminal: code that takes over the process later cannot
/// inject input into it (TIOCSTI) as if it had been typed. The process stays in its group and gets
/// the terminal's Ctrl-C. A session leader keeps its terminal, which belongs to its session alone.
///
/// # Errors
/// As `ioctl_tty(2)`.
pub fn give_up() -> io::Result<()> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    // There is no terminal.
    let Ok(terminal) = rustix::fs::open("/dev/tty", flags, Mode::empty()) else { return Ok(()) };
    if rustix::process::getsid(None)? == rustix::process::getpid() {
        return Ok(());
    }
    // SAFETY: the descriptor is open until the call returns, and TIOCNOTTY takes no argument.
    match unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCNOTTY) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn put_in_front(terminal: BorrowedFd<'_>, group: Pid) -> io::Result<()> {
    unstopped(|| Ok(tcsetpgrp(terminal, group)?))
}

/// Runs `change` with SIGTTOU blocked in this thread: the kernel then lets a background group
/// change the terminal.
fn unstopped(change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    // SAFETY: an all-zero set is a valid value to be emptied.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    let mut before = set;
    // SAFETY: `set` is ours.
    unsafe { libc::sigemptyset(&raw mut set) };
    // SAFETY: as above; the signal exists.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGTTOU) };
    // SAFETY: both sets outlive the call; only this thread's mask changes.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) };
    let changed = change();
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    changed
}
