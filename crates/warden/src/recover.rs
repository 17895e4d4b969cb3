//! Cleaning up what an earlier warden left: it may have been killed at any point.
//!
//! Its processes died with its place; what the kernel keeps are cgroups, frozen processes in them on version 1, and
//! nothing else: mounts were in its own namespace or detached, ids and namespaces end with their users. The cgroups'
//! directory has a name that belongs to the state directory, and one worker holds that at a time.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::cgroup::{self, Cgroups};
use crate::defence::Defence;
use crate::isolation::Isolation;
pub use crate::state_directory::cgroup_name;
use crate::state_directory::{StateDirectory, StateError};
use crate::uids::Share;

/// How long a warden may take to its end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until no other warden works on the state directory, and keeps others waiting for as long as the value lives. One
/// whose worker was killed may still be removing its sandboxes, by names that the next one gives to its own.
///
/// The lock is on `run`, which only the worker's user can open: anybody can lock what he can open, were it only to read.
///
/// # Errors
/// When the directory is not there, or not the state directory's owner's; EWOULDBLOCK when the other does not come to its end.
pub fn await_turn(state: &StateDirectory) -> Result<OwnedFd, StateError> {
    let directory = state.readable_directory("run")?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(()) => return Ok(directory),
            Err(error) => {
                return Err(StateError::Lock {
                    path: state.path().join("run"),
                    source: error.into(),
                });
            }
        }
    }
}

/// Clears what is left from before and makes our directory anew.
#[must_use]
pub fn fresh_cgroups(name: &str, isolation: Isolation) -> Cgroups {
    clear(name);
    let mut cgroups = Cgroups::detect(name);
    if isolation.has(Defence::ProcessorGroup) {
        // Where there is none, `wool doctor` and deploys say that processors are not limited.
        let _ = cgroups.weigh_together();
    }
    cgroups.leave_room(sys::probe::processes());
    cgroups
}

/// Kills and removes what is left from before, and makes nothing.
pub fn clear(name: &str) {
    cgroup::clear_left_by(name);
    Share::clear();
}

/// Whether anything is left of a state directory's warden, as far as anybody can see.
#[must_use]
pub fn is_anything_left(state: &Path) -> bool {
    cgroup_name(state).is_ok_and(|name| !cgroup::left_by(&name).is_empty())
}
