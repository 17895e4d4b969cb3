//! The outcome of a command: an answer with descriptors, or why it was not carried out.

use std::io;
use std::os::fd::OwnedFd;

use thiserror::Error;

use crate::process::spawn::SpawnError;
use crate::protocol::Answer;
use crate::rootfs::RootError;

/// Why a command was not carried out.
#[derive(Debug, Error)]
pub(crate) enum CommandError {
    #[error("{0}")]
    Wrong(&'static str),
    /// The process has died. Reported as `ESRCH`: the cause may not concern the next one.
    #[error("the process is gone")]
    Gone,
    #[error("{step}")]
    Kernel { step: &'static str, source: io::Error },
    #[error("{0}")]
    Root(#[from] RootError),
    #[error("{0}")]
    Spawn(#[from] SpawnError),
}

pub(crate) fn kernel<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> CommandError {
    move |source| CommandError::Kernel { step, source: source.into() }
}

impl CommandError {
    /// The error as the worker gets it.
    pub(crate) fn answer(&self) -> Answer {
        let errno = match self {
            Self::Wrong(_) => None,
            Self::Gone => Some(libc::ESRCH),
            Self::Kernel { source, .. } => source.raw_os_error(),
            Self::Root(error) => error.source_error().raw_os_error(),
            Self::Spawn(error) => error.source.raw_os_error(),
        };
        let errno = errno.unwrap_or(0);
        Answer::Failed { step: self.to_string(), errno }
    }
}

pub(crate) type CommandResult = Result<(Answer, Vec<OwnedFd>), CommandError>;

pub(crate) fn done() -> CommandResult {
    Ok((Answer::Done, Vec::new()))
}
