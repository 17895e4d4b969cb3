//! Waiting on a descriptor.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the runtime. The reader must use calls that do not block themselves.
///
/// # Errors
/// As `epoll_ctl(2)`.
pub fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` names the same open descriptor until the `AsyncFd` that takes it over is
    // dropped.
    let watched = unsafe { AsyncFd::register(fd) };
    watched.map_err(Into::into)
}
