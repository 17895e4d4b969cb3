//! The warden's record of each sandbox, and the rules for reusing what a sandbox held.
//!
//! ```text
//!   Start ───────────────────────────────► running ─┐
//!   Prepare ─► prepared ── Landed ───────► running ─┤
//!                 └──────────── Release ────────────┴─► dying ─► gone: cgroup back to its zygote or removed
//! ```
//! A zygote's record stays after its own death until all its forks are gone too: only then do its
//! kernel uids and cgroups become free, because its forks may still hold them.

use std::os::fd::OwnedFd;

use sys::process::PidFd;

use crate::cgroup::{Group, HeldMemory};
use crate::limits::{Limits, Network};
use crate::protocol::Python;
use crate::rootfs::empty::EmptyingProgress;
use crate::rootfs::root::Root;
use crate::uids::{Allotment, Block};

/// One sandbox or prepared slot.
#[derive(Debug)]
pub struct Sandbox {
    /// Zygote or instance.
    pub kind: Kind,
    /// The sandbox's kernel uid.
    pub uid: u32,
    /// The block or range from which its ids were taken.
    pub allotment: Allotment,
    /// The sandbox's cgroup.
    pub group: Group,
    /// The root; none in an instance's slot before `Place` with early mounts.
    pub root: Option<Root>,
    /// Its interpreter and base.
    pub python: Python,
    /// The network of the sandbox.
    pub network: Network,
    /// Its own network, once [`Command::Reach`](crate::protocol::Command::Reach) has filled it.
    pub reaches: Option<FilledNetwork>,
    /// Limits in force.
    pub limits: Limits,
    /// The main process, once known.
    pub process: Option<PidFd>,
    /// Its number in P, where pid 1 is to report its death.
    pub inside: Option<i32>,
    /// The zygote that forked it, or will.
    pub zygote: Option<u64>,
    /// The reading end of its standard error. None for an instance: the worker has that end.
    pub stderr: Option<OwnedFd>,
    /// The main process is the warden's own child, to be waited for.
    pub child: bool,
    /// Whether release was asked for.
    pub dying: bool,
    /// How far its scratch has been emptied, once it is dead.
    pub scratch: EmptyingProgress,
    /// The same for its memory that other processes hold.
    pub held: EmptyingProgress,
    /// Whether that memory is counted among what its zygote holds.
    pub counted: bool,
}

/// A network that was filled for one sandbox.
#[derive(Debug)]
pub struct FilledNetwork {
    /// The inode number of the namespace, unique while `namespace` is open.
    pub inode: u64,
    /// Keeps the namespace: the kernel would give its number to a new one.
    pub namespace: OwnedFd,
}

/// What the sandbox is for.
#[derive(Debug)]
pub enum Kind {
    /// It exists to be forked.
    Zygote(Zygote),
    /// It serves one handler.
    Instance,
}

/// A zygote's data beyond that of other sandboxes.
#[derive(Debug)]
pub struct Zygote {
    /// Its user namespace; none for a root zygote, which is in the initial one.
    pub namespace: Option<OwnedFd>,
    /// Its own id and those of its forks.
    pub ids: Block,
    /// Sandboxes and slots below it that are not yet gone.
    pub children: usize,
    /// Cgroups of earlier slots, ready for its next ones.
    pub idle_groups: Vec<Group>,
    /// Memory that has outlived the sandboxes in its slots.
    pub(crate) held: HeldMemory,
    /// The pipe that is a root zygote's standard error, as `fstat(2)` identifies it. Its forks do
    /// not have it.
    pub stderr: FileId,
}

/// Identifies an open file: its device and inode number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl From<&rustix::fs::Stat> for FileId {
    fn from(stat: &rustix::fs::Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

impl Zygote {
    /// A zygote that has forked nothing yet.
    #[must_use]
    pub fn new(namespace: Option<OwnedFd>, ids: Block, stderr: FileId) -> Self {
        Self {
            namespace,
            ids,
            children: 0,
            idle_groups: Vec::new(),
            held: HeldMemory::default(),
            stderr,
        }
    }
}

impl Sandbox {
    /// Its cgroup, and a zygote's idle ones: all in which its processes may be.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        let idle = self.as_zygote().map_or(&[][..], |zygote| &zygote.idle_groups);
        std::iter::once(&self.group).chain(idle)
    }

    /// The zygote's data, if it is one.
    #[must_use]
    pub fn as_zygote(&self) -> Option<&Zygote> {
        match &self.kind {
            Kind::Zygote(zygote) => Some(zygote),
            Kind::Instance => None,
        }
    }

    /// The zygote's data, if it is one.
    pub fn as_zygote_mut(&mut self) -> Option<&mut Zygote> {
        match &mut self.kind {
            Kind::Zygote(zygote) => Some(zygote),
            Kind::Instance => None,
        }
    }
}
