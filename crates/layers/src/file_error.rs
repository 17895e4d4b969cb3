//! A failed file operation: the action, the path and the system's reason.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// What could not be done to which file.
#[derive(Debug, Error)]
#[error("cannot {action} {}", path.display())]
pub struct FileError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl FileError {
    /// Names the action and the path of a failed operation: for `map_err`. The action completes the
    /// sentence "cannot … PATH".
    pub fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { action, path, source }
    }

    /// The operating system's own reason.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}
