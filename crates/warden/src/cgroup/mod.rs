//! Cgroups: one for each sandbox, where its limits are enforced, its memory is counted and it is paused.
//!
//! [`v1`] and [`v2`] mirror each other. The rules of both:
//! - The `cgroup.procs` of a slot is opened with the zygote's effective uid **and no effective capability**: the kernel
//!   checks the opener. With a capability, the zygote could move other sandboxes' processes.
//! - A cgroup is used again by the same zygote only, and only thawed, empty and uncharged: a frozen one would stop the
//!   zygote in its vfork. Making one costs four times as much as reusing one.
//! - A frozen process does not die of SIGKILL on v1: whoever destroys thaws first.

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

use crate::protocol::{Layout, Limits};

/// What the names of our directories begin with.
pub(crate) const OURS: &str = "lambswool-";

/// Charged bytes that an empty group may still have and count as uncharged: what the kernel keeps in per-CPU stocks and
/// gives back later (up to 0.8 MB seen). The smallest limit that a function can ask for is sixteen times that.
const UNCHARGED: u64 = 1 << 20;

/// The host's way of grouping processes, with the directory that holds ours.
#[derive(Debug)]
pub enum Cgroups {
    /// One hierarchy per controller, or hybrid with the controllers there.
    V1(v1::Hierarchies),
    /// One hierarchy.
    V2(v2::Hierarchy),
    /// None that we may use.
    None,
}

/// One sandbox's cgroup. Dropping it leaves it in place: it ends through [`Cgroups::remove`].
#[derive(Debug, Clone)]
pub struct Group {
    /// Path relative to our own directory.
    pub name: String,
    /// Opened once: opening costs more than anything else when a group is used again, by the same zygote.
    opened: Rc<OnceCell<Files>>,
}

impl Group {
    fn new(name: String) -> Self {
        Self { name, opened: Rc::default() }
    }
}

/// What somebody holds, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Private memory, and what is shared: files without a disk, and mappings that several have.
    pub(crate) memory: u64,
    /// Of the kernel's: buffers of sockets and pipes, whatever is open.
    pub(crate) kernel: u64,
}

/// A number of a `memory.stat`.
fn stat(text: &str, name: &str) -> Option<u64> {
    let mut words = text.lines().filter_map(|line| line.split_once(' '));
    words.find(|(found, _)| *found == name)?.1.parse().ok()
}

/// What a slot's holder is given.
#[derive(Debug, Default)]
pub struct Files {
    /// `cgroup.procs`, one per hierarchy; for the zygote.
    pub procs: Vec<OwnedFd>,
    /// Written to pause.
    pub freezer: Option<OwnedFd>,
    /// Read for the memory in use.
    pub memory: Option<OwnedFd>,
}

impl Files {
    /// The same files for somebody else.
    ///
    /// # Errors
    /// EMFILE.
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
    /// Finds out which there are and makes our directory in them. `name` is our directory's.
    #[must_use]
    pub fn detect(name: &str) -> Self {
        if let Some(hierarchies) = v1::Hierarchies::detect(name) {
            return Self::V1(hierarchies);
        }
        v2::Hierarchy::detect(name).map_or(Self::None, Self::V2)
    }

    /// Has all sandboxes together take three quarters at most of the processes that the host allows: each has a limit of its own,
    /// and nothing else bounds the sum. What is left is for the worker, us, and everybody else.
    pub fn leave_room(&self, allowed: u64) {
        let pids = match self {
            Self::V1(h) => h.pids(),
            Self::V2(h) => h.top(),
            Self::None => return,
        };
        // The kernel takes no number that is none of a process, and needs none then.
        let _ = write_to(&pids.join("pids.max"), &(allowed / 4 * 3).to_string());
    }

    /// Which it is.
    #[must_use]
    pub fn layout(&self) -> Layout {
        match self {
            Self::V1(_) => Layout::V1,
            Self::V2(h) if h.delegated() => Layout::V2Delegated,
            Self::V2(_) => Layout::V2,
            Self::None => Layout::None,
        }
    }

    /// A cgroup for a sandbox that the warden starts itself.
    ///
    /// # Errors
    /// As `mkdir(2)`; ENOSPC at the kernel's limit.
    pub fn make(&self, sandbox: u64, limits: Limits, owner: u32) -> io::Result<Group> {
        let name = format!("s{sandbox}");
        self.make_named(name, limits, owner)
    }

    /// A cgroup for a process of the warden's own.
    ///
    /// # Errors
    /// As [`Cgroups::make`].
    pub(crate) fn make_apart(&self, name: &str, limits: Limits) -> io::Result<Group> {
        self.make_named(name.to_owned(), limits, 0)
    }

    /// A file of the group to which pids are written that are to move there; none without cgroups.
    pub(crate) fn procs(&self, group: &Group) -> Option<PathBuf> {
        match self {
            Self::V1(h) => h.procs(group).into_iter().next(),
            Self::V2(h) => Some(h.procs(group)),
            Self::None => None,
        }
    }

    /// A cgroup for a slot of the zygote that lives in `zygote`.
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
            // The common ancestor of where a process is and where it goes must be writable for who moves it: so a
            // zygote's slots lie below its own directory.
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

    /// Opens the group's files for a slot: `zygote` is the kernel uid that will move processes into it.
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

    /// As [`Cgroups::enter`], for a sandbox: it enters what all sandboxes have together, too, and what it forks inherits that.
    ///
    /// # Errors
    /// As `write(2)`.
    pub(crate) fn enter_as_sandbox(&self, group: &Group) -> io::Result<()> {
        match self {
            Self::V1(h) => h.entrances(group).iter().try_for_each(|file| write_to(file, "0")),
            // There it is the tree's.
            Self::V2(_) | Self::None => self.enter(group),
        }
    }

    /// Sets limits.
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

    /// Bounds what the kernel buffers for sockets of a group, where that is not part of its memory.
    ///
    /// # Errors
    /// EBUSY where more is in use.
    pub(crate) fn limit_sockets(&self, group: &Group, bytes: u64) -> io::Result<()> {
        match self {
            Self::V1(h) => h.limit_sockets(group, bytes),
            Self::V2(_) | Self::None => Ok(()),
        }
    }

    /// Whether the process is in the group, in every hierarchy. Without cgroups there is nothing to check.
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

    /// What is charged to the group and is not the kernel's to take back. It adds some of it up every two seconds, or sooner.
    #[must_use]
    pub(crate) fn held(&self, group: &Group) -> Held {
        match self {
            Self::V1(h) => h.held(group),
            Self::V2(h) => h.held(group),
            Self::None => Held::default(),
        }
    }

    /// Whether the kernel has killed something in the group for want of memory.
    #[must_use]
    pub fn out_of_memory(&self, group: &Group) -> bool {
        match self {
            Self::V1(h) => h.oom_kills(group) > 0,
            Self::V2(h) => h.oom_kills(group) > 0,
            Self::None => false,
        }
    }

    /// Lets everything in the group run, so that it can die.
    pub fn thaw(&self, group: &Group) {
        match self {
            Self::V1(h) => h.thaw(group),
            Self::V2(h) => h.thaw(group),
            Self::None => {}
        }
    }

    /// Kills what is left in the group. Thaw first.
    pub fn kill(&self, group: &Group) {
        match self {
            Self::V1(h) => kill_listed(&h.procs(group)),
            Self::V2(h) => h.kill(group),
            Self::None => {}
        }
    }

    /// Whether the group can be given to the same zygote again: thawed, empty, uncharged, and never out of memory.
    #[must_use]
    pub fn reusable(&self, group: &Group) -> bool {
        match self {
            Self::V1(h) => h.reusable(group),
            Self::V2(h) => h.reusable(group),
            Self::None => true,
        }
    }

    /// The processes in the group, by the warden's numbers; none without cgroups.
    #[must_use]
    pub fn pids(&self, group: &Group) -> Vec<i32> {
        let listed = self.procs(group).and_then(|procs| fs::read_to_string(procs).ok());
        listed.unwrap_or_default().lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Whether no process is left in the group.
    #[must_use]
    pub fn empty(&self, group: &Group) -> bool {
        match self {
            Self::V1(h) => h.procs(group).iter().all(|procs| is_empty(procs)),
            Self::V2(h) => is_empty(&h.procs(group)),
            Self::None => true,
        }
    }

    /// Removes the group. Says whether it is gone (a group with a dying process stays; try again).
    pub fn remove(&self, group: &Group) -> bool {
        match self {
            Self::V1(h) => h.remove(group),
            Self::V2(h) => h.remove(group),
            Self::None => true,
        }
    }

    /// Kills everything in our directory and removes it.
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

/// Directories of ours that an earlier start with this name has left, in all hierarchies, those of the freezer first.
/// Anybody may ask.
#[must_use]
pub fn left_by(name: &str) -> Vec<PathBuf> {
    let tops = v1::tops(name).into_iter().rev().flatten().filter(|top| top.exists());
    tops.chain(v1::processors_of(name)).chain(v2::named(name)).collect()
}

/// Kills everything in what [`left_by`] finds, and removes it.
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
            // SAFETY: plain numbers; the pid was in our own cgroup an instant ago.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}

/// A thousand sandboxes are gone within a second; on a machine under heavy load it may take several.
const CLEARING: Duration = Duration::from_secs(10);

/// Removes `root` and all directories below it, deepest first, killing what is inside, for at most [`CLEARING`].
fn clear_tree(root: &Path) {
    let deadline = Instant::now() + CLEARING;
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
            // Of version 1 and of 2; the other one is not there.
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
