//! Why a process cannot be made, or cannot go on.

use std::io;

use rustix::io::Errno;
use thiserror::Error;

use crate::image::ImageError;
use crate::machine::VcpuError;

/// Why a process cannot be made, or cannot go on.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// The program is not in the tree, or cannot be opened.
    #[error("{path}: {errno}")]
    NoProgram {
        /// The program's path.
        path: String,
        /// The error of looking it up.
        errno: Errno,
    },
    /// The file is no program that can be loaded.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Arguments and environment are too long.
    #[error("arguments and environment do not fit on the stack")]
    Arguments,
    /// The host has no memory, or no randomness.
    #[error("prepare the guest")]
    Host(#[from] io::Error),
    /// KVM refused the machine, or lost it.
    #[error(transparent)]
    Vcpu(#[from] VcpuError),
}
