//! Writable directories of a sandbox: `/tmp` and `/dev/shm`, each a tmpfs with limits.

use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use sys::mount::{Tree, resize_tmpfs};

use crate::limits::Limits;
use crate::rootfs::stages::Stages;

/// The scratch that all sandboxes share where none has its own. Attached, because before Linux 6.15
/// a detached tree cannot be cloned. Without the sticky bit, with which the kernel would restrict
/// following links.
pub(crate) fn common_scratch(stages: &Stages) -> io::Result<OwnedFd> {
    let at = stages.path("scratch");
    std::fs::create_dir(&at)?;
    Tree::tmpfs(&[(c"mode", "0777")])?.attach(rustix::fs::CWD, &at.to_string_lossy())?;
    Ok(rustix::fs::open(&at, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// One sandbox's `/tmp` or `/dev/shm`, which no other user can enter.
pub(crate) fn own_scratch(uid: u32, limits: Limits) -> io::Result<Tree> {
    let id = uid.to_string();
    let options: [(&CStr, &str); 5] = [
        (c"uid", &id),
        (c"gid", &id),
        (c"mode", "0700"),
        (c"size", &limits.scratch_bytes.to_string()),
        (c"nr_inodes", &limits.scratch_inodes.to_string()),
    ];
    Tree::tmpfs(&options)
}

/// Changes the size of the scratch file systems of a root in use.
///
/// # Errors
/// EINVAL when they hold more than the new size.
pub(crate) fn resize_scratch(root: BorrowedFd<'_>, limits: Limits) -> io::Result<()> {
    resize_tmpfs(root, "tmp", limits.scratch_bytes, limits.scratch_inodes)?;
    resize_tmpfs(root, "dev/shm", limits.scratch_bytes, limits.scratch_inodes)
}
