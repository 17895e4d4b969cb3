//! The state directory, as root sees it: an account that root does not trust has laid it out.
//!
//! ```text
//!   STATE ── opened once; its owner decides everything ───┬─ run                   the lock
//!                                                         ├─ run/warden.sock       the worker
//!                                                         ├─ run/empty, run/stages to mount on
//!                                                         └─ layers
//! ```
//! A path that root looks up twice may lead elsewhere the second time, and a link leads root where
//! the account that made it cannot go. So the directory is opened once, everything in it is opened
//! from there and through no link, and all of it must belong to one user: the one whose worker is
//! served. The directory itself may be reached through links: the user who may start a warden names
//! the directory anyway, and its owner is what counts.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use thiserror::Error;

use crate::cgroup::OURS;

/// Why root does not work in a state directory.
#[derive(Debug, Error)]
pub enum StateError {
    /// A file or directory in it cannot be opened.
    #[error("open {path}")]
    Open {
        /// Path of the file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The lock cannot be taken.
    #[error("lock {path}")]
    Lock {
        /// Path of the file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A link leads out of it or through it.
    #[error(
        "{path} is a link, or is behind one: the warden is root and follows none that a state directory holds; put what it leads to in its place, or mount that there with `mount --bind`"
    )]
    Link {
        /// Path of the link.
        path: PathBuf,
    },
    /// It has another owner than the rest.
    #[error(
        "{path} belongs to user {uid}, and the state directory to user {owner}: the warden works with what is of one user alone; `chown -R {owner} {path}` if it is the worker's, else remove it"
    )]
    Foreign {
        /// Path of the file.
        path: PathBuf,
        /// Owner of the file.
        uid: u32,
        /// Owner of the state directory.
        owner: u32,
    },
    /// The directory has another owner than the user who wants to use it.
    #[error(
        "{path} belongs to user {owner}, and not to user {uid} who wants a warden for it: run `wool` as its owner, or choose another place with --state DIR"
    )]
    Theirs {
        /// Path of the directory.
        path: PathBuf,
        /// Owner of the directory.
        owner: u32,
        /// The user who wants to use it.
        uid: u32,
    },
    /// The worker's socket is elsewhere.
    #[error("{path} is not in the state directory, where `wool up` makes the warden's socket")]
    Outside {
        /// Path of the socket.
        path: PathBuf,
    },
    /// The file at the socket's path is no socket.
    #[error("{path} is no socket: `wool up` makes one there")]
    NoSocket {
        /// Path of the file.
        path: PathBuf,
    },
}

impl StateError {
    /// Whether the error can go away while a worker is only about to start.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Open { .. } | Self::Lock { .. })
    }
}

/// One state directory, held open. It stays the same even if its path is given to another.
#[derive(Debug)]
pub struct StateDirectory {
    fd: OwnedFd,
    path: PathBuf,
    owner: u32,
    /// The name of its cgroups.
    name: String,
}

impl StateDirectory {
    /// Opens the directory. To mount on something in it, call this in the mount namespace where
    /// that is to happen.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let failed =
            |error: Errno| StateError::Open { path: path.to_owned(), source: error.into() };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
        let found = fstat(&fd).map_err(failed)?;
        let name = name_of(found.st_dev, found.st_ino);
        Ok(Self { fd, path: path.to_owned(), owner: found.st_uid, name })
    }

    /// The path at the time of opening: for messages, not to be opened again.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of its directory in the cgroup hierarchies: see [`cgroup_name`].
    #[must_use]
    pub fn cgroup_name(&self) -> &str {
        &self.name
    }

    /// Refuses every user but the owner.
    ///
    /// # Errors
    /// When `uid` is not the owner.
    pub fn must_be_of(&self, uid: u32) -> Result<(), StateError> {
        let (path, owner) = (self.path.clone(), self.owner);
        if uid == owner { Ok(()) } else { Err(StateError::Theirs { path, owner, uid }) }
    }

    /// Opens a directory in it, from which paths can be resolved.
    ///
    /// # Errors
    /// When it does not exist, is reached through a link, or has another owner.
    pub fn directory(&self, name: &str) -> Result<OwnedFd, StateError> {
        self.open_in(Path::new(name), OFlags::PATH | OFlags::DIRECTORY)
    }

    /// Opens a directory in it for locking.
    ///
    /// # Errors
    /// As [`StateDirectory::directory`].
    pub fn readable_directory(&self, name: &str) -> Result<OwnedFd, StateError> {
        self.open_in(Path::new(name), OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Connects to the socket at `path`, which is in this directory.
    ///
    /// # Errors
    /// When it is elsewhere, is reached through a link, has another owner, or no process listens.
    pub fn connect(&self, path: &Path) -> Result<OwnedFd, StateError> {
        let name = path
            .strip_prefix(&self.path)
            .map_err(|_| StateError::Outside { path: path.to_owned() })?;
        // By its descriptor, and not by its path again: the examined file is the one connected to.
        let file = self.open_in(name, OFlags::PATH)?;
        let failed =
            |error: Errno| StateError::Open { path: path.to_owned(), source: error.into() };
        if FileType::from_raw_mode(fstat(&file).map_err(failed)?.st_mode) != FileType::Socket {
            return Err(StateError::NoSocket { path: path.to_owned() });
        }
        let to = SocketAddrUnix::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(failed)?;
        to.and_then(|to| connect(&socket, &to)).map_err(failed)?;
        Ok(socket)
    }

    fn open_in(&self, name: &Path, flags: OFlags) -> Result<OwnedFd, StateError> {
        let path = || self.path.join(name);
        let failed = |error: Errno| match error {
            // XDEV: the path leads out of the directory.
            Errno::LOOP | Errno::XDEV => StateError::Link { path: path() },
            error => StateError::Open { path: path(), source: error.into() },
        };
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        // Without NOFOLLOW: with PATH it would open a link in the last component itself, and not
        // refuse it.
        let flags = flags | OFlags::CLOEXEC;
        let file = openat2(self.fd.as_fd(), name, flags, Mode::empty(), resolve).map_err(failed)?;
        let uid = fstat(&file).map_err(failed)?.st_uid;
        if uid != self.owner {
            return Err(StateError::Foreign { path: path(), uid, owner: self.owner });
        }
        Ok(file)
    }
}

/// The name of the warden's directory in the cgroup hierarchies, derived from the state directory.
/// For processes that only look: the path may lead elsewhere the next time.
///
/// # Errors
/// When the state directory does not exist.
pub fn cgroup_name(state: &Path) -> io::Result<String> {
    let metadata = std::fs::metadata(state)?;
    Ok(name_of(metadata.dev(), metadata.ino()))
}

fn name_of(device: u64, inode: u64) -> String {
    format!("{OURS}{device:x}-{inode:x}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn state() -> tempfile::TempDir {
        let state = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(state.path().join("run/empty")).unwrap();
        state
    }

    #[test]
    fn no_link_in_a_state_directory_is_followed_and_one_that_leads_to_it_is() {
        let (state, elsewhere) = (state(), state());
        let parent = tempfile::tempdir().unwrap();
        symlink(state.path(), parent.path().join("state")).unwrap();
        let opened = StateDirectory::open(&parent.path().join("state")).unwrap();
        assert_eq!(opened.cgroup_name(), cgroup_name(state.path()).unwrap());
        assert!(opened.directory("run/empty").is_ok());
        symlink(elsewhere.path(), state.path().join("layers")).unwrap();
        let refused = opened.directory("layers").unwrap_err();
        assert!(matches!(refused, StateError::Link { .. }), "{refused}");
        // Nor is a link that stays within.
        symlink("run", state.path().join("within")).unwrap();
        for name in ["within", "within/empty"] {
            let refused = opened.directory(name).unwrap_err();
            assert!(matches!(refused, StateError::Link { .. }), "{refused}");
        }
        let refused = opened.directory("../x").unwrap_err();
        assert!(matches!(refused, StateError::Link { .. }), "{refused}");
        let refused = opened.directory("not-there").unwrap_err();
        assert!(refused.may_pass(), "{refused}");
    }

    #[test]
    fn files_of_another_owner_than_the_state_directorys_are_refused() {
        if !rustix::process::geteuid().is_root() {
            return skips::skip("root", "only root can give a directory away");
        }
        let state = state();
        let opened = StateDirectory::open(state.path()).unwrap();
        assert!(opened.must_be_of(0).is_ok());
        let refused = opened.must_be_of(7).unwrap_err().to_string();
        assert!(refused.contains("--state DIR"), "{refused}");
        chown(state.path().join("run"), Some(7), None).unwrap();
        let refused = opened.readable_directory("run").unwrap_err();
        assert!(matches!(refused, StateError::Foreign { uid: 7, owner: 0, .. }), "{refused}");
        // Root's own directories are no exception: an account can rename what root keeps in one of
        // its directories.
        chown(state.path(), Some(7), None).unwrap();
        let opened = StateDirectory::open(state.path()).unwrap();
        let refused = opened.directory("run/empty").unwrap_err();
        assert!(matches!(refused, StateError::Foreign { uid: 0, owner: 7, .. }), "{refused}");
    }

    #[test]
    fn the_workers_socket_is_the_one_in_the_state_directory() {
        let (state, elsewhere) = (state(), state());
        let opened = StateDirectory::open(state.path()).unwrap();
        let there = elsewhere.path().join("run/warden.sock");
        let listener = UnixListener::bind(&there).unwrap();
        let refused = opened.connect(&there).unwrap_err();
        assert!(matches!(refused, StateError::Outside { .. }), "{refused}");
        let here = state.path().join("run/warden.sock");
        symlink(&there, &here).unwrap();
        let refused = opened.connect(&here).unwrap_err();
        assert!(matches!(refused, StateError::Link { .. }), "{refused}");
        std::fs::remove_file(&here).unwrap();
        std::fs::write(&here, "").unwrap();
        let refused = opened.connect(&here).unwrap_err();
        assert!(matches!(refused, StateError::NoSocket { .. }), "{refused}");
        drop(listener);
    }

    #[test]
    fn a_state_directory_that_is_exchanged_is_still_the_one_that_was_opened() {
        let (own, theirs) = (state(), state());
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("state");
        symlink(theirs.path(), &path).unwrap();
        let opened = StateDirectory::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        symlink(own.path(), &path).unwrap();
        let run = opened.readable_directory("run").unwrap();
        let inode = |path: &Path| std::fs::metadata(path).unwrap().ino();
        assert_eq!(fstat(&run).unwrap().st_ino, inode(&theirs.path().join("run")));
        assert_eq!(opened.cgroup_name(), cgroup_name(theirs.path()).unwrap());
    }
}
