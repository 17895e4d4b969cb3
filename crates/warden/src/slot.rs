//! What the warden knows of each sandbox, and the rules of when something may be used again.
//!
//! ```text
//!   Start ───────────────────────────────► running ─┐
//!   Prepare ─► prepared ── Landed ───────► running ─┤
//!                 └──────────── Release ────────────┴─► dying ─► gone: cgroup back to its zygote or removed
//! ```
//! A zygote's entry stays after its own death until everything that it forked is gone too: only then do its kernel
//! uids and cgroups become free, because whoever it forked may hold on to them through it.

use std::os::fd::OwnedFd;

use sys::process::PidFd;

use crate::cgroup::{Group, Held};
use crate::empty::Remains;
use crate::protocol::{Limits, Network, Python};
use crate::root::Root;
use crate::uids::{Allotment, Block};

/// One sandbox or prepared slot.
#[derive(Debug)]
pub struct Sandbox {
    /// Zygote or instance.
    pub kind: Kind,
    /// Kernel uid.
    pub uid: u32,
    /// Where that comes from, with a zygote's others.
    pub allotment: Allotment,
    /// Its cgroup.
    pub group: Group,
    /// Its root; none in an instance's slot before `Place` with early mounts.
    pub root: Option<Root>,
    /// What it runs.
    pub python: Python,
    /// Which network it is in.
    pub network: Network,
    /// Its own network, once [`Command::Reach`](crate::protocol::Command::Reach) has filled it.
    pub reaches: Option<Filled>,
    /// Limits in force.
    pub limits: Limits,
    /// Its main process, once known.
    pub process: Option<PidFd>,
    /// Its number in P, where pid 1 is to tell how it ended.
    pub inside: Option<i32>,
    /// Who forked it, or will.
    pub zygote: Option<u64>,
    /// The pipe that is its standard error, of what is no instance: an instance's is the worker's.
    pub stderr: Option<OwnedFd>,
    /// The main process is the warden's own child, to be waited for.
    pub child: bool,
    /// Release was asked for.
    pub dying: bool,
    /// How far what it wrote is taken back, once it is dead.
    pub scratch: Remains,
    /// The same of what somebody else holds of it.
    pub held: Remains,
    /// That is counted among what its zygote holds.
    pub counted: bool,
}

/// A network that was filled for one sandbox.
#[derive(Debug)]
pub struct Filled {
    /// Names it, for as long as it is held.
    pub inode: u64,
    /// Holds it: the kernel gives the number of one that is gone to the next.
    pub namespace: OwnedFd,
}

/// Zygote or instance.
#[derive(Debug)]
pub enum Kind {
    /// It exists to be forked.
    Zygote(Zygote),
    /// It serves one handler.
    Instance,
}

/// What a zygote has beyond other sandboxes.
#[derive(Debug)]
pub struct Zygote {
    /// Its user namespace; none for a root zygote, which is in the initial one.
    pub namespace: Option<OwnedFd>,
    /// Its own id and those of what it forks.
    pub ids: Block,
    /// Sandboxes and slots below it that are not yet gone.
    pub children: usize,
    /// Cgroups of earlier slots, ready for its next ones.
    pub idle_groups: Vec<Group>,
    /// What has outlived whoever took it in its slots.
    pub(crate) held: Held,
    /// The pipe that is a root zygote's standard error, as `fstat(2)` names it. Of whoever is forked it is none.
    pub stderr: FileId,
}

/// Names an open file: its device and inode number.
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
    /// One that has forked nothing yet.
    #[must_use]
    pub fn new(namespace: Option<OwnedFd>, ids: Block, stderr: FileId) -> Self {
        Self { namespace, ids, children: 0, idle_groups: Vec::new(), held: Held::default(), stderr }
    }
}

impl Sandbox {
    /// Its cgroup, and a zygote's idle ones: wherever processes of its own may be.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        let idle = self.as_zygote().map_or(&[][..], |zygote| &zygote.idle_groups);
        std::iter::once(&self.group).chain(idle)
    }

    /// Its zygote part, if it is one.
    #[must_use]
    pub fn as_zygote(&self) -> Option<&Zygote> {
        match &self.kind {
            Kind::Zygote(zygote) => Some(zygote),
            Kind::Instance => None,
        }
    }

    /// Its zygote part, if it is one.
    pub fn as_zygote_mut(&mut self) -> Option<&mut Zygote> {
        match &mut self.kind {
            Kind::Zygote(zygote) => Some(zygote),
            Kind::Instance => None,
        }
    }
}
