//! A file system of the warden's own, in its own mount namespace: directories to mount on.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use sys::mount::Tree;

/// The mounted file system. It stays mounted for as long as the namespace exists.
#[derive(Clone, Debug)]
pub(crate) struct Stages(Arc<OwnedFd>);

impl Stages {
    /// Mounts it over a directory. `mode` is that of its root.
    ///
    /// # Errors
    /// As `fsmount(2)`, `move_mount(2)`: EINVAL for a directory that was opened in another mount
    /// namespace.
    pub(crate) fn over(directory: BorrowedFd<'_>, mode: &str) -> io::Result<Self> {
        let tree = Tree::tmpfs(&[(c"mode", mode)])?;
        let root = tree.as_fd().try_clone_to_owned()?;
        tree.attach(directory, ".")?;
        Ok(Self(Arc::new(root)))
    }

    /// The path of something in it, for this process. It begins with the descriptor: the directory
    /// below belongs to an account, which could change its path.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.0.as_raw_fd()))
    }
}
