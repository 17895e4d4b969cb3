//! Leaving the process that started the warden, when that is sudo.
//!
//! ```text
//!   sudo ─► wool-warden, waits ◄── "r", or end of file ── its child: a session of its own, the warden from here on
//!             exits 0 or 1, and sudo with it
//! ```
//! sudo stays between a terminal and the command that it runs, and ends the command when the
//! terminal goes: a worker in the background would lose its warden when its user logs out. The
//! starter waits until the warden serves, so that sudo reports how the start went.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, pipe_with};
use sys::process::{exit_now, fork_single_threaded};

/// The end of the pipe on which the starter waits. Only the end of the process closes it: an error
/// message is then written, and sudo is still there to pass it on.
#[derive(Debug)]
pub struct StarterPipe(ManuallyDrop<OwnedFd>);

impl StarterPipe {
    /// Goes on in a child with a session of its own; the calling process waits for
    /// [`StarterPipe::release_starter`] and ends. For a process with one thread.
    ///
    /// # Errors
    /// As `fork(2)`.
    pub fn from_starter() -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        if fork_single_threaded()?.is_some() {
            drop(write);
            let said = rustix::io::read(&read, &mut [0u8; 1]);
            // The child owns the same things: nothing may be dropped here.
            exit_now(i32::from(said != Ok(1)));
        }
        // At once: until then the end of sudo's terminal would end this process.
        rustix::process::setsid()?;
        Ok(Self(ManuallyDrop::new(write)))
    }

    /// Lets the starter exit successfully. Otherwise it exits with a failure when this process
    /// ends.
    pub fn release_starter(self) {
        // The starter may be gone.
        let _ = rustix::io::write(&*self.0, b"r");
    }
}
