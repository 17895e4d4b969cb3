//! Detached mount trees: `open_tree(2)`, `move_mount(2)`, `mount_setattr(2)`, `fsopen(2)`.
//!
//! A detached tree is in no mount table: `..` stops at its root, and closing its descriptor frees
//! it. Freeing it is safe while processes still run inside.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_fd, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
    open_tree,
};

/// Restrictions of a mount. Set-uid programs are always forbidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes(u64);

impl Attributes {
    /// For `/dev`: nothing can be written or executed, devices can be opened. With `nodev`,
    /// `/dev/null` would be EACCES.
    pub const DEVICES: Self =
        Self(libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC);

    /// For files that only inform: nothing can be written or executed, no device can be opened.
    pub const TEXTS: Self = Self(
        libc::MOUNT_ATTR_RDONLY
            | libc::MOUNT_ATTR_NOSUID
            | libc::MOUNT_ATTR_NODEV
            | libc::MOUNT_ATTR_NOEXEC,
    );

    /// For a layer: `read_only` forbids writing, `no_devices` forbids opening devices.
    #[must_use]
    pub const fn layer(read_only: bool, no_devices: bool) -> Self {
        let read_only = if read_only { libc::MOUNT_ATTR_RDONLY } else { 0 };
        let no_devices = if no_devices { libc::MOUNT_ATTR_NODEV } else { 0 };
        Self(libc::MOUNT_ATTR_NOSUID | read_only | no_devices)
    }
}

/// A mount or tree of mounts that is attached nowhere.
#[derive(Debug)]
pub struct Tree(OwnedFd);

impl Tree {
    /// Clones the mount at `dir` as a tree of its own, with the mounts below it when `recursive`.
    ///
    /// From a descriptor that is itself a detached tree: Linux ≥ 6.15 (before that EINVAL).
    ///
    /// # Errors
    /// As `open_tree(2)`: EPERM without `CAP_SYS_ADMIN`, EINVAL for a mount of another mount
    /// namespace.
    pub fn clone_of(dir: BorrowedFd<'_>, recursive: bool) -> io::Result<Self> {
        let mut flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH;
        flags.set(OpenTreeFlags::AT_RECURSIVE, recursive);
        Ok(Self(open_tree(dir, c"", flags)?))
    }

    /// A new tmpfs. `options` are those of tmpfs(5).
    ///
    /// # Errors
    /// As `fsopen(2)`, `fsconfig(2)`, `fsmount(2)`.
    pub fn tmpfs(options: &[(&CStr, &str)]) -> io::Result<Self> {
        let context = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (key, value) in options {
            fsconfig_set_string(context.as_fd(), *key, *value)?;
        }
        fsconfig_create(context.as_fd())?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        Ok(Self(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?))
    }

    /// A new tmpfs without files, to which none can be added.
    ///
    /// # Errors
    /// As [`Tree::tmpfs`].
    pub fn empty_tmpfs() -> io::Result<Self> {
        let context = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_flag(context.as_fd(), c"ro")?;
        fsconfig_set_string(context.as_fd(), c"size", "4k")?;
        fsconfig_set_string(context.as_fd(), c"mode", "555")?;
        fsconfig_create(context.as_fd())?;
        let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
            | MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        Ok(Self(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?))
    }

    /// A new tmpfs on which device nodes work; for [`Attributes::DEVICES`] afterwards.
    ///
    /// # Errors
    /// As [`Tree::tmpfs`].
    pub fn device_tmpfs() -> io::Result<Self> {
        let context = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(context.as_fd(), c"mode", "0755")?;
        fsconfig_create(context.as_fd())?;
        Ok(Self(fsmount(
            context.as_fd(),
            FsMountFlags::FSMOUNT_CLOEXEC,
            MountAttrFlags::MOUNT_ATTR_NOSUID,
        )?))
    }

    /// Clones the mount of one file, which may be a symbolic link, at `path` below `root`.
    ///
    /// # Errors
    /// As [`Tree::clone_of`]; ENOENT.
    pub fn clone_at(root: BorrowedFd<'_>, path: &str) -> io::Result<Self> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
        Ok(Self(open_tree(root, path, flags)?))
    }

    /// A procfs of the given PID namespace (Linux ≥ 6.17), or of the caller's. It also shows the
    /// kernel's settings and state, until [`show_only_processes`].
    ///
    /// # Errors
    /// As `fsopen(2)`, `fsmount(2)`; EINVAL for a namespace before that kernel.
    pub fn proc_of(pid_namespace: Option<BorrowedFd<'_>>, read_only: bool) -> io::Result<Self> {
        let context = fsopen(c"proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
        if let Some(namespace) = pid_namespace {
            fsconfig_set_fd(context.as_fd(), c"pidns", namespace)?;
        }
        fsconfig_create(context.as_fd())?;
        let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        attributes.set(MountAttrFlags::MOUNT_ATTR_RDONLY, read_only);
        Ok(Self(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?))
    }

    /// Sets attributes on the tree's own mount, or on all of its mounts.
    ///
    /// # Errors
    /// As `mount_setattr(2)` (Linux ≥ 5.12).
    pub fn restrict(&self, attributes: Attributes, recursive: bool) -> io::Result<()> {
        set_attributes(self.0.as_fd(), attributes.0, 0, recursive)
    }

    /// Makes all mounts of the tree private: nothing propagates in or out.
    ///
    /// # Errors
    /// As `mount_setattr(2)`.
    pub fn make_private(&self) -> io::Result<()> {
        set_attributes(self.0.as_fd(), 0, libc::MS_PRIVATE, true)
    }

    /// Attaches this tree at `path` below `root`. Where `root` is itself detached: Linux ≥ 6.15.
    ///
    /// # Errors
    /// As `move_mount(2)`.
    pub fn attach(self, root: BorrowedFd<'_>, path: &str) -> io::Result<()> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        Ok(move_mount(self.0.as_fd(), c"", root, path, flags)?)
    }

    /// The descriptor, for processes that enter the tree.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }
}

impl AsFd for Tree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Tree {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

/// Restricts the procfs at `path` below `root` to processes (`subset=pid`, Linux ≥ 5.8), and to
/// names on which something is mounted already: the kernel looks up no others.
///
/// # Errors
/// As `fspick(2)` and `fsconfig(2)`.
pub fn show_only_processes(root: BorrowedFd<'_>, path: &str) -> io::Result<()> {
    use rustix::mount::{FsPickFlags, fsconfig_reconfigure, fspick};
    let mut flags = FsPickFlags::FSPICK_CLOEXEC;
    flags.set(FsPickFlags::FSPICK_EMPTY_PATH, path.is_empty());
    let context = fspick(root, path, flags)?;
    fsconfig_set_string(context.as_fd(), c"subset", "pid")?;
    Ok(fsconfig_reconfigure(context.as_fd())?)
}

/// Changes size and number of files of the tmpfs at `path` below `root`; its content stays.
///
/// # Errors
/// As `fspick(2)` and `fsconfig(2)`; EINVAL when more is in use than the new size allows.
pub fn resize_tmpfs(root: BorrowedFd<'_>, path: &str, bytes: u64, inodes: u32) -> io::Result<()> {
    use rustix::mount::{FsPickFlags, fsconfig_reconfigure, fspick};
    let context = fspick(root, path, FsPickFlags::FSPICK_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), c"size", bytes.to_string())?;
    fsconfig_set_string(context.as_fd(), c"nr_inodes", inodes.to_string())?;
    Ok(fsconfig_reconfigure(context.as_fd())?)
}

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

fn set_attributes(
    tree: BorrowedFd<'_>,
    set: u64,
    propagation: u64,
    recursive: bool,
) -> io::Result<()> {
    let attr = MountAttr { set, clear: 0, propagation, user_namespace: 0 };
    let recursive = if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a NUL-terminated literal and `attr` outlives the call with its true size.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
