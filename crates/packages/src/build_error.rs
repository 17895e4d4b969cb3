//! Why building gives no wheel, and whether the package or the machine is at fault.

use std::error::Error;
use std::io;
use std::time::Duration;

use layers::base::BaseError;
use layers::child::Unfinished;
use layers::{FileError, RunError};
use thiserror::Error;

use crate::wheel_file::WheelError;

/// Why a sandbox gave no answer.
#[derive(Debug, Error)]
pub enum SandboxError {
    /// It took too long.
    #[error(
        "it took longer than {} s; the setting `build_timeout` allows more", limit.as_secs()
    )]
    TimedOut {
        /// What it may take.
        limit: Duration,
    },
    /// Its processes ended, or were ended.
    #[error("{0}")]
    Died(String),
    /// It answered what our code does not answer.
    #[error("its answer is not acceptable: {0}")]
    Answer(String),
    /// It cannot be stored.
    #[error("its answer cannot be stored; is there space in the state directory?")]
    NotKept(#[source] io::Error),
    /// There was no sandbox.
    #[error("no sandbox can be made to build in")]
    None(#[source] Box<dyn Error + Send + Sync>),
    /// The worker stops.
    #[error("the worker is stopping")]
    Stopping,
}

/// Why there is no wheel.
#[derive(Debug, Error)]
pub enum BuildError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// uv could not be started.
    #[error(transparent)]
    Start(#[from] Unfinished),
    /// The script that fetches could not be run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The compiler could not be copied.
    #[error("the compiler of this machine cannot be used")]
    Toolchain(#[source] Box<BaseError>),
    /// The index has no source either, or cannot be asked.
    #[error("there is no source to build it from; uv says:\n{words}")]
    NoSource {
        /// uv's own words.
        words: String,
    },
    /// The archive could not be fetched, or is another one.
    #[error("{file} cannot be fetched: {reason}")]
    Fetch {
        /// The archive's file name.
        file: String,
        /// The reason, as a clause.
        reason: String,
    },
    /// What the index has is not what was locked, or was locked without a hash because the index
    /// gave none.
    #[error("the lock does not hold the hash of the source that the index has")]
    NotLocked,
    /// What the build requires cannot be installed.
    #[error("what building it requires cannot be installed")]
    Requirements(#[source] Box<dyn Error + Send + Sync>),
    /// Its `pyproject.toml` says something that cannot be done.
    #[error("its pyproject.toml cannot be followed: {0}")]
    Project(String),
    /// The sandbox did not answer.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The backend failed.
    #[error("{words}{}", lack.as_ref().map(|lack| format!("\n{lack}")).unwrap_or_default())]
    Failed {
        /// Its last words.
        words: String,
        /// What this machine lacks for compiling.
        lack: Option<String>,
    },
    /// What came out is no acceptable wheel.
    #[error(transparent)]
    Wheel(#[from] WheelError),
}

impl BuildError {
    /// Whether the package, or the function that asks for it, has to change, and not this machine.
    #[must_use]
    pub fn is_of_the_package(&self) -> bool {
        match self {
            Self::File(_) | Self::Start(_) | Self::Run(_) | Self::Toolchain(_) => false,
            Self::Fetch { .. } => false,
            Self::Sandbox(error) => !matches!(
                error,
                SandboxError::NotKept(_) | SandboxError::None(_) | SandboxError::Stopping
            ),
            _ => true,
        }
    }
}
