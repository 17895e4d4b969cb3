//! The root of one sandbox: a detached tree of mounts, or one that hangs in the warden's mount table.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, unmount};
use sys::mount::Tree;

/// Dropping it takes it off the mount table, where it hangs, and is safe while processes still run inside.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    place: Option<Place>,
}

impl Root {
    /// Attaches `tree` at `place`, a directory that is made for it and goes with it.
    ///
    /// # Errors
    /// As `mkdir(2)`, `move_mount(2)`.
    pub fn hang(tree: Tree, place: PathBuf) -> io::Result<Self> {
        std::fs::create_dir(&place)?;
        let place = Place(place);
        let fd = tree.as_fd().try_clone_to_owned()?;
        tree.attach(rustix::fs::CWD, &place.0.to_string_lossy())?;
        Ok(Self { fd, place: Some(place) })
    }

    /// Where it hangs, if it does.
    #[must_use]
    pub fn place(&self) -> Option<&Path> {
        self.place.as_ref().map(|place| place.0.as_path())
    }
}

impl From<Tree> for Root {
    fn from(tree: Tree) -> Self {
        Self { fd: tree.into_fd(), place: None }
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[derive(Debug)]
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
        // Never what is in it: should mounts be left, these would be layers.
        let _ = std::fs::remove_dir(&self.0);
    }
}
