//! Why a lock is not installed, or wheels are not put together.

use std::io;
use std::path::PathBuf;

use layers::child::Unfinished;
use layers::{FileError, RunError};
use thiserror::Error;

use crate::build_error::BuildError;
use crate::indexes::NotAllowed;
use crate::installer::Bounds;

/// Why a package set is not installed.
#[derive(Debug, Error)]
pub enum InstallError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A wheel whose own files do not say what it is.
    #[error("the wheel of {requirement} cannot be used: {reason}; ask for another version of it")]
    Unreadable {
        /// The line of the lock.
        requirement: String,
        /// What is wrong with it.
        reason: io::Error,
    },
    /// The installer could not be started, or was ended.
    #[error(transparent)]
    Start(#[from] Unfinished),
    /// What the operator has not allowed, or allows no more.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    /// A distribution without a wheel for this Python and platform.
    #[error(
        "a locked package has no wheel for Python {python} on this machine, and building from source is off (the setting `build_from_source`); uv says:\n{words}"
    )]
    NoWheel {
        /// The base's version.
        python: String,
        /// The installer's own words.
        words: String,
    },
    /// A distribution without a wheel that could not be built.
    #[error("{requirement} has no wheel for this Python and machine, and building it failed")]
    Build {
        /// Name and version.
        requirement: String,
        /// The error of the build.
        #[source]
        source: BuildError,
    },
    /// A distribution that is larger than allowed, unpacked.
    #[error(
        "{requirement} unpacks to more than {} MiB or {} files; the settings `package_bytes` and `internals.package_files` allow more", bounds.bytes >> 20, bounds.files
    )]
    Excessive {
        /// Name and version.
        requirement: String,
        /// What is allowed.
        bounds: Bounds,
    },
    /// A file that is not what was locked.
    #[error("a package's file is not the one that was locked; uv says:\n{words}")]
    Hash {
        /// The installer's own words.
        words: String,
    },
    /// The index cannot be reached, and not all wheels are there.
    #[error(
        "the package index cannot be reached, and not all packages were installed before; uv says:\n{words}"
    )]
    Unreachable {
        /// The installer's own words.
        words: String,
    },
    /// Anything else that the installer says.
    #[error("the packages cannot be installed; uv says:\n{words}")]
    Failed {
        /// The installer's own words.
        words: String,
    },
    /// The byte compiler failed.
    #[error("the packages cannot be compiled")]
    Compile(#[source] RunError),
    /// The wheels do not go together.
    #[error(transparent)]
    View(#[from] ViewError),
    /// A broken wheel of a Python that has no base any more.
    #[error(
        "there is no base with Python {python} to compile it with; make one with `wool base build {python}`"
    )]
    NoBase {
        /// The base's version.
        python: String,
    },
    /// A set of which a wheel is broken and could not be repaired.
    #[error("{wheel} is broken, and is to be repaired first")]
    Broken {
        /// The wheel's file name.
        wheel: String,
    },
    /// A broken wheel that came with a function's files, and from no index.
    #[error("{wheel} is broken, and came with a function's own files: deploy that function anew")]
    OfBundle {
        /// The wheel's file name.
        wheel: String,
    },
    /// What is fetched in a broken wheel's stead is not the same.
    #[error(
        "{wheel} is broken, and what the index gives now is another wheel; deploy its functions anew"
    )]
    Other {
        /// The wheel's file name.
        wheel: String,
    },
}

impl InstallError {
    /// Whether what is to be installed is to blame, and neither the machine nor an index.
    #[must_use]
    pub fn is_of_content(&self) -> bool {
        use io::ErrorKind::{AlreadyExists, InvalidData, InvalidFilename};
        match self {
            Self::Unreadable { .. }
            | Self::Excessive { .. }
            | Self::Compile(RunError::Unfinished(_)) => true,
            Self::View(error) => {
                matches!(error, ViewError::FileAndDirectory { .. } | ViewError::Incompatible(..))
            }
            Self::File(error) => {
                matches!(error.kind(), AlreadyExists | InvalidData | InvalidFilename)
            }
            _ => false,
        }
    }
}

/// Why a package set cannot be put together.
#[derive(Debug, Error)]
pub enum ViewError {
    /// A file could not be read, linked or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A wheel that was removed, or never was.
    #[error("the wheel {0} is not installed; deploy the function that needs it anew")]
    Missing(String),
    /// Two wheels of one distribution, or wheels for two Pythons.
    #[error("{0} and {1} cannot be in one package set")]
    Incompatible(String, String),
    /// What is a file in one wheel is a directory in another.
    #[error(
        "{first} and {second} cannot be installed together: {} is a file in one and a directory in the other", path.display()
    )]
    FileAndDirectory {
        /// The path that was tried.
        path: PathBuf,
        /// One distribution.
        first: String,
        /// The later distribution.
        second: String,
    },
}
