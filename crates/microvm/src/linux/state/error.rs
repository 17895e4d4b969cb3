//! Why there is no process, or not any more.

use std::io;

use rustix::io::Errno;
use thiserror::Error;

use crate::image::ImageError;
use crate::machine::VcpuError;

/// Why there is no process.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// There is no such program in the tree.
    #[error("{path}: {errno}")]
    NoProgram {
        /// Its path.
        path: String,
        /// Why not.
        errno: Errno,
    },
    /// It is none.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Arguments and environment are too long.
    #[error("arguments and environment do not fit on the stack")]
    Arguments,
    /// The host has no memory, or no randomness.
    #[error("prepare the guest")]
    Host(#[from] io::Error),
    /// The machine.
    #[error(transparent)]
    Vcpu(#[from] VcpuError),
}
