//! A sandbox's view of processors and memory: `/sys`, and the files of `/proc` about the whole
//! machine.
//!
//! ```text
//!   /sys                    a view: one read-only tmpfs for each pair of limits, made once, bound into each root
//!   /sys/devices/system/cpu   the host's processors, as many as the processor limit, rounded up
//!   /sys/fs/cgroup            the limits, at the paths where runtimes look for them (both versions)
//!   /sys/kernel/lambswool     cpuinfo, meminfo, stat, uptime, loadavg
//!   /proc/cpuinfo, ...      links to those: the same for all sandboxes, whatever their limits
//! ```
//! Nothing here changes while a sandbox lives, so nothing here reveals other sandboxes or the
//! host's work. A zygote has `/proc` with these links alone;
//! [`attach_proc`](crate::rootfs::attach_proc) mounts an instance's own processes over it, with the
//! same links.
//!
//! At most [`MAX_VIEWS`] are kept: see [`ViewCache`]. A sandbox with an evicted view keeps it: the
//! kernel frees the file system with its last mount.

mod cache;
mod host;
mod texts;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, linkat, mkdirat, openat, symlinkat};
use rustix::mount::{UnmountFlags, unmount};
use sys::mount::{Attributes, Tree};

use self::cache::ViewCache;
use self::host::Machine;
use crate::limits::Limits;
use crate::rootfs::stages::Stages;

/// The files of `/proc` that a view has instead of the host's.
pub(crate) const MACHINE_FILES: [&str; 5] = ["cpuinfo", "meminfo", "stat", "uptime", "loadavg"];

/// The directory of these files, below `/sys`.
const FILES: &str = "kernel/lambswool";

/// Views that are kept for the next sandbox with the same limits. Each takes a descriptor, and 200
/// KB of memory where there are few processors.
pub(crate) const MAX_VIEWS: usize = 64;

/// The limits that a view depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Memory in bytes.
    memory: u64,
    /// Processor quota, in thousandths of a processor.
    quota: Option<u32>,
}

impl From<Limits> for Key {
    fn from(limits: Limits) -> Self {
        Self { memory: limits.shown_bytes, quota: limits.cpu.quota }
    }
}

#[derive(Debug)]
struct View {
    tree: OwnedFd,
    /// The mount point, before Linux 6.15.
    stage: Option<PathBuf>,
}

/// All views, and the links to them.
#[derive(Debug)]
pub(crate) struct Views {
    machine: Machine,
    stages: Stages,
    /// Whether a tree that is to be cloned has to be attached: before Linux 6.15.
    attached: bool,
    made: u64,
    kept: ViewCache<View>,
}

impl Views {
    /// Reads the host's files once: all views show this state.
    pub(crate) fn new(stages: Stages, attached: bool) -> Self {
        Self {
            machine: Machine::examine(),
            stages,
            attached,
            made: 0,
            kept: ViewCache::new(MAX_VIEWS),
        }
    }

    /// The view of a sandbox with these limits, to be attached at its `/sys`.
    ///
    /// # Errors
    /// As `fsmount(2)` and `open_tree(2)`; ENOSPC and ENOMEM where its files do not fit.
    pub(crate) fn of(&mut self, limits: Limits) -> io::Result<Tree> {
        let key = Key::from(limits);
        if let Some(view) = self.kept.ask(key) {
            return Tree::clone_of(view.tree.as_fd(), false);
        }
        let view = self.make(key)?;
        let tree = Tree::clone_of(view.tree.as_fd(), false);
        if let Some(gone) = self.kept.keep(key, view) {
            gone.forget();
        }
        tree
    }

    fn make(&mut self, key: Key) -> io::Result<View> {
        let tree = Tree::tmpfs(&[(c"mode", "0555")])?;
        let processors = self.machine.processors(key.quota);
        let mut files = Files { root: tree.as_fd(), same: HashMap::new() };
        for (path, text) in self.machine.processor_files(processors) {
            files.write(&Path::new("devices/system/cpu").join(path), &text)?;
        }
        for (name, text) in MACHINE_FILES.iter().zip(self.machine.proc_files(key, processors)) {
            files.write(&Path::new(FILES).join(name), &text)?;
        }
        let cpus = texts::list(processors);
        for (path, text) in texts::cgroup_files(key.memory, key.quota, &cpus) {
            files.write(&Path::new("fs/cgroup").join(path), &text)?;
        }
        tree.restrict(Attributes::TEXTS, false)?;
        if !self.attached {
            return Ok(View { tree: tree.into_fd(), stage: None });
        }
        self.made += 1;
        let stage = self.stages.path(&format!("view-{}", self.made));
        std::fs::create_dir(&stage)?;
        let root = tree.as_fd().try_clone_to_owned()?;
        tree.attach(rustix::fs::CWD, &stage.to_string_lossy())?;
        Ok(View { tree: root, stage: Some(stage) })
    }
}

impl View {
    fn forget(self) {
        if let Some(stage) = self.stage {
            let _ = unmount(&stage, UnmountFlags::DETACH);
            let _ = std::fs::remove_dir(stage);
        }
    }
}

/// `/proc` without processes: links into the view.
///
/// # Errors
/// As `fsmount(2)`, `symlink(2)`.
pub(crate) fn links() -> io::Result<Tree> {
    let tree = Tree::tmpfs(&[(c"mode", "0555"), (c"size", "64k")])?;
    for name in MACHINE_FILES {
        symlinkat(format!("/sys/{FILES}/{name}"), &tree, name)?;
    }
    tree.restrict(Attributes::TEXTS, false)?;
    Ok(tree)
}

/// Writes files into a new file system. Equal files become one with several names: there are tens
/// for each processor.
struct Files<'a> {
    root: BorrowedFd<'a>,
    same: HashMap<String, PathBuf>,
}

impl Files<'_> {
    fn write(&mut self, path: &Path, text: &str) -> io::Result<()> {
        if let Some(directory) = path.parent() {
            self.make_directory(directory)?;
        }
        if let Some(same) = self.same.get(text) {
            return Ok(linkat(self.root, same, self.root, path, AtFlags::empty())?);
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(self.root, path, flags, Mode::from_raw_mode(0o444))?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o444))?;
        io::Write::write_all(&mut std::fs::File::from(file), text.as_bytes())?;
        self.same.insert(text.to_owned(), path.to_owned());
        Ok(())
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        let mode = Mode::from_raw_mode(0o555);
        match mkdirat(self.root, path, mode) {
            Ok(()) => {
                // The caller's umask has changed the requested mode.
                Ok(rustix::fs::chmodat(self.root, path, mode, AtFlags::empty())?)
            }
            Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(rustix::io::Errno::NOENT) => {
                if let Some(above) = path.parent() {
                    self.make_directory(above)?;
                }
                self.make_directory(path)
            }
            Err(error) => Err(error.into()),
        }
    }
}
