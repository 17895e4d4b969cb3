//! The proxy's own walls. Entered by the single-threaded program that the warden has executed as root, before it hears
//! anything.
//!
//! | wall | what is left |
//! | --- | --- |
//! | uid of its own, no capability | nobody's rights |
//! | cgroup, by the warden | memory, threads |
//! | Landlock | reading what a resolver reads; no writing, no executing; no listening by TCP, no abstract socket, no signal outside |
//! | seccomp | what an instance's filter lists |
//!
//! It keeps the host's network: that is what it is for.

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

/// Two for each connection.
const DESCRIPTORS: u64 = 16 << 10;

/// Settings, hosts, libraries that a resolver loads, and where services for names keep what `/etc` leads to.
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

/// Goes to jail, for good. Once, by a process of one thread, before it reads from anybody. Returns the control socket.
///
/// # Errors
/// The step that failed: the process must end.
pub fn enter() -> Result<OwnedFd, JailError> {
    sys::descriptors::raise(DESCRIPTORS);
    let control = sys::descriptors::take(CONTROL).map_err(step("find the control socket"))?;
    leave_root(PROXY)?;
    // The change of ids has cleared it.
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
