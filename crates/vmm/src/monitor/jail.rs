//! The monitor's own walls. Entered by the single-threaded program that the warden has executed as
//! root, before it receives any message.
//!
//! ```text
//!   descriptors:  3 control   5 network, 6 IPC, 7 UTS, 8 mount namespace: shared by all sandboxes
//!                             9 user namespace of its own
//! ```
//!
//! | wall | what is left |
//! | --- | --- |
//! | shared mount namespace | one empty read-only file system |
//! | network, IPC, UTS, PID namespace | empty, or only sandboxes of other uids |
//! | user namespace, uid, no capability | the rights of an unused uid |
//! | cgroup, by the warden | memory, threads |
//! | Landlock | no TCP, no abstract socket, no signal outside |
//! | seccomp | the list in `filter.rs` |

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use landlock::{AccessNet, Ruleset, RulesetAttr, Scope};
use microvm::linux::MAX_LAYER_FILES;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sys::jail::{JailError, leave_root, step};
use warden::uids::INNER;

use super::filter;
use crate::MAX_MACHINES;

/// A wall of the jail, by the name that tests use when they take it away to see what it stops. A
/// release cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wall {
    /// The shared network namespace.
    Network,
    /// The shared IPC namespace.
    Ipc,
    /// The shared UTS namespace.
    HostName,
    /// The shared mount namespace, and its empty root with it.
    EmptyRoot,
    /// A user namespace of its own.
    UserNamespace,
    /// An unused user id, and no capability.
    Rights,
    /// Landlock's rules.
    Landlock,
    /// The filter of system calls.
    Filter,
}

const CONTROL: RawFd = 3;
const NAMESPACES: [(RawFd, LinkNameSpaceType, Wall); 5] = [
    (5, LinkNameSpaceType::Network, Wall::Network),
    (6, LinkNameSpaceType::InterProcessCommunication, Wall::Ipc),
    (7, LinkNameSpaceType::HostNameAndNISDomainName, Wall::HostName),
    // Takes the root along: from here on no path leads anywhere.
    (8, LinkNameSpaceType::Mount, Wall::EmptyRoot),
    (9, LinkNameSpaceType::User, Wall::UserNamespace),
];
/// Descriptors of a clone, beside its guest's files.
const OF_A_CLONE: u64 = 6;
/// Descriptors of all machines that there can be, and of all files that their guests can have open.
const DESCRIPTORS: u64 = MAX_MACHINES as u64 * (OF_A_CLONE + MAX_LAYER_FILES as u64);

/// Enters the jail, for good. Once, in a process of one thread, before it reads a message. Returns
/// the control socket.
///
/// # Errors
/// The step that failed: the process must end.
pub fn enter() -> Result<OwnedFd, JailError> {
    build(&[])
}

/// Enters a jail without these walls, in builds with debug assertions only.
///
/// # Errors
/// As [`enter`].
#[cfg(debug_assertions)]
pub fn enter_without(missing: &[Wall]) -> Result<OwnedFd, JailError> {
    build(missing)
}

fn build(missing: &[Wall]) -> Result<OwnedFd, JailError> {
    sys::descriptors::raise(DESCRIPTORS);
    for (number, kind, wall) in NAMESPACES {
        let namespace =
            sys::descriptors::take(number).map_err(step("find the shared namespaces"))?;
        if missing.contains(&wall) {
            continue;
        }
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), Some(kind))
            .map_err(step("enter the shared namespaces"))?;
    }
    let control = sys::descriptors::take(CONTROL).map_err(step("find the control socket"))?;
    if !missing.contains(&Wall::Rights) {
        leave_root(INNER)?;
    }
    wall_in(missing)?;
    Ok(control)
}

/// Puts up the walls that need no privilege, Landlock and the filter: for a program that a user
/// runs.
///
/// # Errors
/// The step that failed: the process must end.
pub fn confine() -> Result<(), JailError> {
    wall_in(&[])
}

fn wall_in(missing: &[Wall]) -> Result<(), JailError> {
    let filter = if missing.contains(&Wall::Filter) { filter::all() } else { filter::build() };
    let landlock = !missing.contains(&Wall::Landlock);
    sys::jail::confine(|| if landlock { restrict() } else { Ok(()) }, &filter)
}

fn restrict() -> io::Result<()> {
    let restrict = || -> Result<(), landlock::RulesetError> {
        Ruleset::default()
            .handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?
            .scope(Scope::AbstractUnixSocket | Scope::Signal)?
            .create()?
            .restrict_self()?;
        Ok(())
    };
    restrict().map_err(io::Error::other)
}
