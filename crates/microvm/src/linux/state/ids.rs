//! Numbers of processes, threads and users.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom as random};

/// User and group of every guest.
pub(crate) const USER: u64 = 1000;

/// The number of a process that was started here, not cloned.
pub(crate) const PID: u64 = 1;

/// The number of a process's first thread. The guest sees the process's number instead.
pub(crate) const FIRST_THREAD: u64 = 1;

/// A number for a process that was cloned from `before`, or reset. Libraries take a change of the
/// number for a fork, and renew random state that they would share with the origin (OpenSSL 3
/// before each draw; Python's `tempfile`). No thread has such a number.
pub(crate) fn another(before: u64) -> io::Result<u64> {
    const SPACE: u64 = 1 << 21;
    let mut bytes = [0; 8];
    // So few bytes are never cut short.
    random(&mut bytes, GetRandomFlags::empty())?;
    let number = SPACE + u64::from_le_bytes(bytes) % (SPACE - 1);
    Ok(if number < before { number } else { number + 1 })
}
