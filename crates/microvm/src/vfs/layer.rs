//! A read-only directory of the host's, as part of a guest's tree.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use thiserror::Error;

/// An open layer. What is below its directory must not change while it is used.
#[derive(Debug)]
pub struct Layer {
    root: File,
}

/// One name of a layer.
pub(crate) struct Entry {
    pub(crate) path: PathBuf,
    pub(crate) what: What,
    pub(crate) mode: u32,
    pub(crate) modified: i64,
}

pub(crate) enum What {
    Directory,
    File(u64),
    Link(Vec<u8>),
}

/// Why a directory is no layer.
#[derive(Debug, Error)]
#[error("read the layer at {path}")]
pub struct LayerError {
    path: PathBuf,
    source: io::Error,
}

impl Layer {
    /// Opens the directory and lists everything below it, parents first. Sockets, devices and the like are left out.
    pub(crate) fn open(path: &Path) -> Result<(Self, Vec<Entry>), LayerError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| LayerError { path, source }
        };
        let root = File::open(path).map_err(failed(path))?;
        let mut entries = Vec::new();
        let mut open = vec![PathBuf::new()];
        while let Some(directory) = open.pop() {
            let here = path.join(&directory);
            for entry in std::fs::read_dir(&here).map_err(failed(&here))? {
                let entry = entry.map_err(failed(&here))?;
                let metadata = entry.metadata().map_err(failed(&here))?;
                let inside = directory.join(entry.file_name());
                let what = if metadata.is_dir() {
                    open.push(inside.clone());
                    What::Directory
                } else if metadata.is_file() {
                    What::File(metadata.len())
                } else if metadata.is_symlink() {
                    let target = std::fs::read_link(entry.path()).map_err(failed(&here))?;
                    What::Link(target.as_os_str().as_bytes().to_vec())
                } else {
                    continue;
                };
                let (mode, modified) = (metadata.mode() & 0o777, metadata.mtime());
                entries.push(Entry { path: inside, what, mode, modified });
            }
        }
        Ok((Self { root }, entries))
    }

    /// Opens a file that the index has.
    pub(crate) fn file(&self, path: &Path) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        Ok(openat2(&self.root, path, flags, Mode::empty(), beneath)?.into())
    }
}
