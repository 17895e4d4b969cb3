//! Cgroups: each sandbox has one, which enforces its limits, counts its memory and pauses it.
//!
//! [`v1`] and [`v2`] mirror each other. The rules of both:
//! - The `cgroup.procs` of a slot is opened with the zygote's effective uid **and no effective
//!   capability**: the kernel checks the opener. With a capability, the zygote could move other
//!   sandboxes' processes.
//! - A cgroup is reused by the same zygote only, and only thawed, empty and uncharged: a frozen one
//!   would stop the zygote in its vfork. Making one costs four times as much as reusing one.
//! - A frozen process does not die of SIGKILL on v1: a cgroup is thawed before its processes are
//!   killed.

pub(crate) mod pacemaker;
mod processors;
pub mod v1;
pub mod v2;

pub(crate) use self::processors::PERIOD;

use std::cell::OnceCell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use sys::process::as_effective_user;

use crate::limits::Limits;
use crate::protocol::Layout;

/// The prefix of the names of the warden's directories.
pub(crate) const OURS: &str = "lambswool-";

/// Charged bytes at which an empty group counts as uncharged: the kernel keeps them in per-CPU
/// stocks and returns them later (up to 0.8 MB seen). The smallest limit of a function is sixteen
/// times that.
const UNCHARGED: u64 = 1 << 20;

/// The host's cgroup hierarchies, with the warden's directory in them.
#[derive(Debug)]
pub enum Cgroups {
    /// Version 1, or hybrid with the controllers there: one hierarchy per controller.
    V1(v1::Hierarchies),
    /// Version 2: one hierarchy.
    V2(v2::Hierarchy),
    /// No usable hierarchy.
    None,
}

/// One sandbox's cgroup. Dropping it leaves the cgroup in place: [`Cgroups::remove`] ends it.
#[derive(Debug, Clone)]
pub struct Group {
    /// Path relative to the warden's own directory.
    pub name: String,
    /// Opened once, for the same zygote: opening costs more than anything else when a group is
    /// reused.
    opened: Rc<OnceCell<Files>>,
}

impl Group {
    fn new(name: String) -> Self {
        Self { name, opened: Rc::default() }
    }
}

/// Memory that is charged to a group, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldMemory {
    /// Private memory and shared memory: files without a disk, and shared mappings.
    pub(crate) memory: u64,
    /// Kernel memory: buffers of sockets and pipes, and other open objects.
    pub(crate) kernel: u64,
}

/// The value of a line of `memory.stat`.
fn stat(text: &str, name: &str) -> Option<u64> {
    let mut words = text.lines().filter_map(|line| line.split_once(' '));
    words.find(|(found, _)| *found == name)?.1.parse().ok()
}

/// The open files of a group.
#[derive(Debug, Default)]
pub struct Files {
    /// `cgroup.procs`, one per hierarchy; for the zygote.
    pub procs: Vec<OwnedFd>,
    /// The file that pauses the group when written to.
    pub freezer: Option<OwnedFd>,
    /// The file that tells the memory in use.
    pub memory: Option<OwnedFd>,
}

impl Files {
    /// A second set of descriptors of the same files.
    ///
    /// # Errors
    /// As `dup(2)`: EMFILE.
    pub fn try_clone(&self) -> io::Result<Self> {
        let share = |file: &Option<OwnedFd>| file.as_ref().map(OwnedFd::try_clone).transpose();
        Ok(Self {
            procs: self.procs.iter().map(OwnedFd::try_clone).collect::<io::Result<_>>()?,
            freezer: share(&self.freezer)?,
            memory: share(&self.memory)?,
        })
    }
}

impl Cgroups {
    /// Finds the usable hierarchies, and makes the directory `name` in each.
    #[must_use]
    pub fn detect(name: &str) -> Self {
        if let Some(hierarchies) = v1::Hierarchies::detect(name) {
            return Self::V1(hierarchies);
        }
        v2::Hierarchy::detect(name).map_or(Self::None, Self::V2)
    }

    /// Limits the processes of all sandboxes together to three quarters of `allowed`, the number
    /// that the host allows. Nothing else bounds the sum of the sandboxes' own limits. The rest is
    /// left to the worker, the warden and the host.
    pub fn leave_room(&self, allowed: u64) {
        let pids = match self {
            Self::V1(h) => h.pids(),
            Self::V2(h) => h.top(),
            Self::None => return,
        };
        // The kernel refuses a number that is above its maximum, and no limit is needed then.
        let _ = write_to(&pids.join("pids.max"), &(allowed / 4 * 3).to_string());
    }

    /// The layout, as the protocol names it.
    #[must_use]
    pub fn layout(&self) -> Layout {
        match self {
            Self::V1(_) => Layout::V1,
            Self::V2(h) if h.delegated() => Layout::V2Delegated,
            Self::V2(_) => Layout::V2,
            Self::None => Layout::None,
        }
    }

    /// Makes a cgroup for a sandbox that the warden starts itself.
    ///
    /// # Errors
    /// As `mkdir(2)`; ENOSPC at the kernel's limit.
    pub fn make(&self, sandbox: u64, limits: Limits, owner: u32) -> io::Result<Group> {
        let name = format!("s{sandbox}");
        self.make_named(name, limits, owner)
    }

    /// Makes a cgroup for a process of the warden's own.
    ///
    /// # Errors
    /// As [`Cgroups::make`].
    pub(crate) fn make_apart(&self, name: &str, limits: Limits) -> io::Result<Group> {
        self.make_named(name.to_owned(), limits, 0)
    }

    /// The file to which pids are written that move into the group; none without cgroups.
    pub(crate) fn procs(&self, group: &Group) -> Option<PathBuf> {
        match self {
            Self::V1(h) => h.procs(group).into_iter().next(),
            Self::V2(h) => Some(h.procs(group)),
            Self::None => None,
        }
    }

    /// Makes a cgroup for a slot of the zygote that lives in `zygote`.
    ///
    /// # Errors
    /// As [`Cgroups::make`].
    pub fn make_slot(
        &self,
        zygote: &Group,
        sandbox: u64,
        limits: Limits,
        owner: u32,
    ) -> io::Result<Group> {
        let name = match self {
            // A process may be moved only by a user who can write to the common ancestor of both
            // groups. So a zygote's slots lie below its own directory.
            Self::V2(_) => format!("{}/s{sandbox}", zygote.name),
            _ => format!("s{sandbox}"),
        };
        self.make_named(name, limits, owner)
    }

    fn make_named(&self, name: String, limits: Limits, owner: u32) -> io::Result<Group> {
        let group = Group::new(name);
        let made = match self {
            Self::V1(h) => h.make(&group),
            Self::V2(h) => h.make(&group, owner),
            Self::None => Ok(()),
        };
        if let Err(error) = made.and_then(|()| self.limit(&group, limits)) {
            self.remove(&group);
            return Err(error);
        }
        Ok(group)
    }

    /// Opens the group's files for a slot. `zygote` is the kernel uid that will move processes into
    /// it.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn files(&self, group: &Group, zygote: u32) -> io::Result<Files> {
        if let Some(files) = group.opened.get() {
            return files.try_clone();
        }
        let files = match self {
            Self::V1(h) => h.files(group, zygote)?,
            Self::V2(h) => h.files(group, zygote)?,
            Self::None => Files::default(),
        };
        let shared = files.try_clone()?;
        // The group belongs to one zygote for as long as it lives.
        let _ = group.opened.set(files);
        Ok(shared)
    }

    /// Runs in a child of the warden, before it drops its privilege: moves it into the group.
    ///
    /// # Errors
    /// As `write(2)`.
    pub fn enter(&self, group: &Group) -> io::Result<()> {
        match self {
            Self::V1(h) => h.procs(group).iter().try_for_each(|file| write_to(file, "0")),
            Self::V2(h) => write_to(&h.procs(group), "0"),
            Self::None => Ok(()),
        }
    }

    /// Like [`Cgroups::enter`], for a sandbox: also enters the group that all sandboxes share,
    /// which its forks inherit.
    ///
    /// # Errors
    /// As `write(2)`.
    pub(crate) fn enter_as_sandbox(&self, group: &Group) -> io::Result<()> {
        match self {
            Self::V1(h) => h.entrances(group).iter().try_for_each(|file| write_to(file, "0")),
            // Version 2 has one tree: the shared group is above this one.
            Self::V2(_) | Self::None => self.enter(group),
        }
    }

    /// Sets the limits of the group.
    ///
    /// # Errors
    /// EBUSY where more is in use than allowed (v1).
    pub fn limit(&self, group: &Group, limits: Limits) -> io::Result<()> {
        match self {
            Self::V1(h) => h.limit(group, limits),
            Self::V2(h) => h.limit(group, limits),
            Self::None => Ok(()),
        }
    }

    /// Limits the kernel's buffers for sockets of a group, where they are not part of its memory.
    ///
    /// # Errors
    /// EBUSY where more is in use.
    pub(crate) fn limit_sockets(&self, group: &Group, bytes: u64) -> io::Result<()> {
        match self {
            Self::V1(h) => h.limit_sockets(group, bytes),
            Self::V2(_) | Self::None => Ok(()),
        }
    }

    /// Whether the process is in the group, in every hierarchy. Always true without cgroups.
    #[must_use]
    pub fn contains(&self, group: &Group, pid: i32) -> bool {
        let Ok(text) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else {
            return false;
        };
        match self {
            Self::V1(h) => h.named_in(group, &text),
            Self::V2(h) => h.named_in(group, &text),
            Self::None => true,
        }
    }

    /// The charged memory without what the kernel can reclaim. The kernel adds some of it up every
    /// two seconds, or sooner.
    #[must_use]
    pub(crate) fn held(&self, group: &Group) -> HeldMemory {
        match self {
            Self::V1(h) => h.held(group),
            Self::V2(h) => h.held(group),
            Self::None => HeldMemory::default(),
        }
    }

    /// Whether the kernel has killed a process in the group for want of memory.
    #[must_use]
    pub fn out_of_memory(&self, group: &Group) -> bool {
        match self {
            Self::V1(h) => h.oom_kills(group) > 0,
            Self::V2(h) => h.oom_kills(group) > 0,
            Self::None => false,
        }
    }

    /// Thaws the group, so that its processes can die.
    pub fn thaw(&self, group: &Group) {
        match self {
            Self::V1(h) => h.thaw(group),
            Self::V2(h) => h.thaw(group),
            Self::None => {}
        }
    }

    /// Kills all processes in the group. Thaw it first.
    pub fn kill(&self, group: &Group) {
        match self {
            Self::V1(h) => kill_listed(&h.procs(group)),
            Self::V2(h) => h.kill(group),
            Self::None => {}
        }
    }

    /// Whether the same zygote can reuse the group: thawed, empty, uncharged, and never out of
    /// memory.
    #[must_use]
    pub fn reusable(&self, group: &Group) -> bool {
        match self {
            Self::V1(h) => h.reusable(group),
            Self::V2(h) => h.reusable(group),
            Self::None => true,
        }
    }

    /// The pids in the group, in the warden's namespace; none without cgroups.
    #[must_use]
    pub fn pids(&self, group: &Group) -> Vec<i32> {
        let listed = self.procs(group).and_then(|procs| fs::read_to_string(procs).ok());
        listed.unwrap_or_default().lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Whether the group has no process.
    #[must_use]
    pub fn empty(&self, group: &Group) -> bool {
        match self {
            Self::V1(h) => h.procs(group).iter().all(|procs| is_empty(procs)),
            Self::V2(h) => is_empty(&h.procs(group)),
            Self::None => true,
        }
    }

    /// Removes the group. Returns whether it is gone (a group with a dying process stays; try
    /// again).
    pub fn remove(&self, group: &Group) -> bool {
        match self {
            Self::V1(h) => h.remove(group),
            Self::V2(h) => h.remove(group),
            Self::None => true,
        }
    }

    /// Kills everything in the warden's directory and removes it.
    pub fn clear(&self) {
        match self {
            Self::V1(h) => {
                h.tops().into_iter().rev().for_each(|top| clear_tree(top));
                h.processors().into_iter().for_each(clear_tree);
            }
            Self::V2(h) => clear_tree(h.top()),
            Self::None => {}
        }
    }
}

/// Directories that an earlier start with this name has left, in all hierarchies, those of the
/// freezer first. Needs no privilege.
#[must_use]
pub fn left_by(name: &str) -> Vec<PathBuf> {
    let tops = v1::tops(name).into_iter().rev().flatten().filter(|top| top.exists());
    tops.chain(v1::processors_of(name)).chain(v2::named(name)).collect()
}

/// Kills all processes in the directories of [`left_by`], and removes them.
pub fn clear_left_by(name: &str) {
    left_by(name).iter().for_each(|dir| clear_tree(dir));
}

/// Opens `path` with the credentials of `uid`, without capabilities.
fn open_as(path: &Path, uid: u32) -> io::Result<OwnedFd> {
    rustix::fs::chown(
        path,
        Some(rustix::fs::Uid::from_raw(uid)),
        Some(rustix::fs::Gid::from_raw(uid)),
    )?;
    let open = || OpenOptions::new().write(true).custom_flags(libc::O_CLOEXEC).open(path);
    Ok(as_effective_user(uid, open)??.into())
}

fn write_to(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn is_empty(procs: &Path) -> bool {
    fs::read(procs).is_ok_and(|listed| listed.is_empty())
}

fn kill_listed(procs: &[PathBuf]) {
    for path in procs {
        let Ok(listed) = fs::read_to_string(path) else {
            continue;
        };
        for pid in listed.lines().filter_map(|line| line.parse::<i32>().ok()) {
            // SAFETY: plain numbers; the pid was in the warden's own cgroup an instant ago.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}

/// Timeout of clearing. A thousand sandboxes take less than a second; under heavy load several.
const CLEARING_TIMEOUT: Duration = Duration::from_secs(10);

/// Removes `root` and all directories below it, deepest first, killing their processes, for at most
/// [`CLEARING_TIMEOUT`].
fn clear_tree(root: &Path) {
    let deadline = Instant::now() + CLEARING_TIMEOUT;
    loop {
        let mut dirs = vec![root.to_owned()];
        let mut at = 0;
        while at < dirs.len() {
            if let Ok(entries) = fs::read_dir(&dirs[at]) {
                let below = entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
                dirs.extend(below.map(|entry| entry.path()));
            }
            at += 1;
        }
        for dir in dirs.iter().rev() {
            // Of version 1 and of version 2; one of them does not exist.
            let _ = write_to(&dir.join("freezer.state"), "THAWED");
            let _ = write_to(&dir.join("cgroup.freeze"), "0");
            kill_listed(&[dir.join("cgroup.procs")]);
            let _ = fs::remove_dir(dir);
        }
        if !root.exists() || Instant::now() > deadline {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn open_write(path: &Path) -> io::Result<OwnedFd> {
    Ok(OpenOptions::new().write(true).open(path)?.into())
}

fn open_read(path: &Path) -> io::Result<OwnedFd> {
    Ok(File::open(path)?.into())
}
