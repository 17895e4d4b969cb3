//! Root acts as the owner of a state directory while it works in one that is not root's.
//!
//! Whatever is in such a directory may be a link to anywhere, laid out for root to follow. It leads its owner nowhere
//! that he could not go himself.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use nix::unistd::{Gid, Uid, User, getegid, getgroups, setegid, seteuid, setgroups};

/// For as long as it lives, this process has an account's rights and not root's. Its real user stays root: the account can
/// neither signal nor trace it (credentials(7)).
#[derive(Debug)]
pub(crate) struct AsOwner {
    group: Gid,
    groups: Vec<Gid>,
}

impl AsOwner {
    /// The owner of a path; none when this process is not root's, or the path is root's own.
    ///
    /// # Errors
    /// When root cannot take the account's place.
    pub(crate) fn of(path: &Path) -> Result<Option<Self>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let found = match fs::symlink_metadata(path) {
            // Root's own link.
            Ok(link) if link.is_symlink() && link.uid() == 0 => fs::metadata(path),
            found => found,
        };
        match found {
            Ok(found) if found.uid() != 0 => {
                let uid = Uid::from_raw(found.uid());
                let account = User::from_uid(uid).ok().flatten();
                let group = account.map_or(Gid::from_raw(found.gid()), |account| account.gid);
                Self::become_one(uid, group).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Of an account.
    ///
    /// # Errors
    /// When this process is not root's.
    pub(crate) fn become_one(uid: Uid, gid: Gid) -> Result<Self> {
        let cannot = || format!("cannot act as user {uid}");
        let before = Self { group: getegid(), groups: getgroups().with_context(cannot)? };
        // The user last: it is what allows the rest. What has been done by then is undone with `before`.
        setgroups(&[gid]).with_context(cannot)?;
        setegid(gid).with_context(cannot)?;
        seteuid(uid).with_context(cannot)?;
        Ok(before)
    }
}

impl Drop for AsOwner {
    fn drop(&mut self) {
        let back = || -> nix::Result<()> {
            seteuid(Uid::from_raw(0))?;
            setegid(self.group)?;
            setgroups(&self.groups)
        };
        if let Err(error) = back() {
            // Its real user is root: the kernel has no reason to refuse.
            tracing::error!(%error, "cannot be root again");
        }
    }
}

/// Removes everything in a directory, some names after all others and in their order: an interrupted removal leaves them
/// there. The caller acts as the directory's owner, which need not be allowed to remove the directory itself.
///
/// # Errors
/// When something cannot be removed.
pub(crate) fn empty(root: &Path, last: &[&str]) -> io::Result<()> {
    let entries = fs::read_dir(root)?.collect::<io::Result<Vec<_>>>()?;
    let is_last = |entry: &fs::DirEntry| last.iter().any(|name| entry.file_name() == *name);
    for entry in entries.iter().filter(|entry| !is_last(entry)) {
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    for name in last {
        match fs::remove_file(root.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
