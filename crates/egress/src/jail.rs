//! How the proxy confines itself. Called by the single-threaded program that the warden executes as
//! root, before it reads any input.
//!
//! | wall | what is left |
//! | --- | --- |
//! | uid of its own, no capability | no rights over other processes and files |
//! | cgroup, by the warden | memory, threads |
//! | Landlock | reading a resolver's files; no writing, executing, TCP listening, abstract sockets, or signals to outside |
//! | seccomp | the system calls of an instance's filter |
//!
//! It keeps the host's network: connecting to that is its purpose.

use std::io;
use std::os::fd::OwnedFd;

use landlock::{
    ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, Scope,
    path_beneath_rules,
};
use sys::jail::{JailError, confine, leave_root, step};
use sys::process::die_with_parent;
use warden::filter::{self, Role};
use warden::isolation::Isolation;
use warden::protocol::Network;
use warden::uids::PROXY;

const CONTROL: i32 = 3;

/// Limit on descriptors: two for each connection.
const DESCRIPTORS: u64 = 16 << 10;

/// Files that a resolver reads: settings, hosts, its libraries, and the targets of links in `/etc`
/// of name services.
const READABLE: [&str; 10] = [
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
    "/nix/store",
    "/run/systemd",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/run/nscd",
    "/dev/urandom",
];

/// Confines the process for good. Call it once, in a process with one thread, before any input is
/// read. Returns the control socket.
///
/// # Errors
/// The step that failed: the process must end.
pub fn enter() -> Result<OwnedFd, JailError> {
    sys::descriptors::raise(DESCRIPTORS);
    let control = sys::descriptors::take(CONTROL).map_err(step("find the control socket"))?;
    leave_root(PROXY)?;
    // The change of ids has cleared the signal.
    die_with_parent().map_err(step("be bound to the warden"))?;
    confine(restrict, &filter::build(Role::Instance, true, Isolation::LEAN, Network::None))?;
    Ok(control)
}

fn restrict() -> io::Result<()> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let restrict = || -> Result<(), landlock::RulesetError> {
        Ruleset::default()
            .handle_access(AccessFs::from_all(ABI::V5))?
            .handle_access(AccessNet::BindTcp)?
            .scope(Scope::AbstractUnixSocket | Scope::Signal)?
            .create()?
            .add_rules(path_beneath_rules(READABLE, read))?
            .restrict_self()?;
        Ok(())
    };
    restrict().map_err(io::Error::other)
}
