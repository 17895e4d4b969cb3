//! A read-only directory of the host's, as part of a guest's tree.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat2, readlinkat, statat};
use thiserror::Error;

use super::node::Moment;

/// An open layer. Its directory must not change while the layer is used.
#[derive(Debug)]
pub struct Layer {
    root: OwnedFd,
}

/// One name of a layer.
pub(crate) struct LayerEntry {
    pub(crate) path: PathBuf,
    pub(crate) what: LayerEntryKind,
    pub(crate) mode: u32,
    pub(crate) modified: Moment,
}

pub(crate) enum LayerEntryKind {
    Directory,
    File(u64),
    Link(Vec<u8>),
}

/// A directory of the host's that cannot be read.
#[derive(Debug, Error)]
#[error("read the layer at {path}")]
pub struct LayerError {
    path: PathBuf,
    source: io::Error,
}

impl Layer {
    /// Opens the directory and lists everything below it. See [`Layer::index`].
    pub(crate) fn open(path: &Path) -> Result<(Self, Vec<LayerEntry>), LayerError> {
        let failed = |source| LayerError { path: path.to_owned(), source };
        Self::index(File::open(path).map_err(failed)?.into())
    }

    /// Lists everything below an open directory, parents first and names in order, so that the same
    /// layer is always numbered in the same way. Sockets, devices and mounts are left out. No path
    /// outside the directory is opened, so the caller needs access to no other.
    pub(crate) fn index(root: OwnedFd) -> Result<(Self, Vec<LayerEntry>), LayerError> {
        let layer = Self { root };
        let mut entries = Vec::new();
        let mut open = vec![PathBuf::new()];
        while let Some(directory) = open.pop() {
            layer
                .list(&directory, &mut entries, &mut open)
                .map_err(|source| LayerError { path: directory, source })?;
        }
        Ok((layer, entries))
    }

    fn list(
        &self,
        directory: &Path,
        entries: &mut Vec<LayerEntry>,
        open: &mut Vec<PathBuf>,
    ) -> io::Result<()> {
        let here = match directory.as_os_str().is_empty() {
            true => Path::new("."),
            false => directory,
        };
        let here = self.resolve(here, OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::new(here.try_clone()?)? {
            names.push(entry?.file_name().to_owned());
        }
        names.sort_unstable();
        for name in &names {
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let status = statat(&here, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)?;
            let path = directory.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
            let what = match FileType::from_raw_mode(status.st_mode) {
                FileType::Directory => {
                    open.push(path.clone());
                    LayerEntryKind::Directory
                }
                FileType::RegularFile => {
                    LayerEntryKind::File(u64::try_from(status.st_size).unwrap_or(0))
                }
                FileType::Symlink => {
                    let target = readlinkat(&here, name.as_c_str(), Vec::new())?;
                    LayerEntryKind::Link(target.into_bytes())
                }
                _ => continue,
            };
            let nanoseconds = u32::try_from(status.st_mtime_nsec).unwrap_or(0);
            let modified = Moment { seconds: status.st_mtime, nanoseconds };
            let mode = status.st_mode & 0o777;
            entries.push(LayerEntry { path, what, mode, modified });
        }
        Ok(())
    }

    /// Opens a file of the index.
    pub(crate) fn file(&self, path: &Path) -> io::Result<File> {
        Ok(self.resolve(path, OFlags::NONBLOCK)?.into())
    }

    /// Opens a path beneath the directory, through no link and no mount.
    fn resolve(&self, path: &Path, kind: OFlags) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | kind;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        Ok(openat2(&self.root, path, flags, Mode::empty(), beneath)?)
    }
}
