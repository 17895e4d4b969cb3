//! The root of one sandbox: a detached tree of mounts, or one in the warden's mount table.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::mount::{UnmountFlags, unmount};
use sys::mount::Tree;

use crate::rootfs::stages::Stages;

/// The root of one sandbox. Dropping it detaches it from the mount table, if it is attached, and is
/// safe while processes still run inside.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    mount_point: Option<MountPoint>,
}

impl Root {
    /// Attaches `tree` at a new directory of that name, which is removed with the root.
    ///
    /// # Errors
    /// As `mkdir(2)`, `move_mount(2)`.
    pub(crate) fn attach(tree: Tree, stages: &Stages, name: &str) -> io::Result<Self> {
        let path = stages.path(name);
        std::fs::create_dir(&path)?;
        let mount_point = MountPoint { path, _stages: stages.clone() };
        let fd = tree.as_fd().try_clone_to_owned()?;
        tree.attach(rustix::fs::CWD, &mount_point.path.to_string_lossy())?;
        Ok(Self { fd, mount_point: Some(mount_point) })
    }

    /// Whether it is attached in a mount table.
    #[must_use]
    pub(crate) fn is_attached(&self) -> bool {
        self.mount_point.is_some()
    }
}

impl From<Tree> for Root {
    fn from(tree: Tree) -> Self {
        Self { fd: tree.into_fd(), mount_point: None }
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[derive(Debug)]
struct MountPoint {
    path: PathBuf,
    /// Keeps the path valid.
    _stages: Stages,
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        let _ = unmount(&self.path, UnmountFlags::DETACH);
        // Never the content: mounts that are left would be layers.
        let _ = std::fs::remove_dir(&self.path);
    }
}
