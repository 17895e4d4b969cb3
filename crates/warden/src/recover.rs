//! Cleaning up after an earlier warden, which may have been killed at any point.
//!
//! Its processes died with its PID namespace. The kernel keeps cgroups, with frozen processes on
//! version 1, and nothing else: mounts were in its own namespace or detached, ids and namespaces
//! end with their users. The name of the cgroups' directory belongs to the state directory, which
//! one worker holds at a time.

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

/// How long another warden may take to its end.
const OTHER_WARDEN_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until no other warden works on the state directory, and makes others wait for as long as
/// the value lives. A warden whose worker was killed may still be removing its sandboxes, whose
/// numbers the next one uses again.
///
/// The lock is on `run`, which only the worker's user can open: any user who can open a file, even
/// for reading, can lock it.
///
/// # Errors
/// When the directory does not exist, or has another owner than the state directory; EWOULDBLOCK
/// when the other warden does not end.
pub fn await_turn(state: &StateDirectory) -> Result<OwnedFd, StateError> {
    let directory = state.readable_directory("run")?;
    let deadline = Instant::now() + OTHER_WARDEN_TIMEOUT;
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

/// Clears what is left from before and makes the warden's directory anew.
#[must_use]
pub fn fresh_cgroups(name: &str, isolation: Isolation) -> Cgroups {
    clear(name);
    let mut cgroups = Cgroups::detect(name);
    if isolation.has(Defence::ProcessorGroup) {
        // Without one, `wool doctor` and deploys report that processors are not limited.
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

/// Whether anything visible is left of a state directory's warden.
#[must_use]
pub fn is_anything_left(state: &Path) -> bool {
    cgroup_name(state).is_ok_and(|name| !cgroup::left_by(&name).is_empty())
}
