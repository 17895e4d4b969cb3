//! Numbers of processes, threads and users.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom as random};

/// User and group of every guest.
pub(crate) const USER: u64 = 1000;

/// The number of a process that was started here, and is nobody's clone.
pub(crate) const PID: u64 = 1;

/// The number of its first thread. The guest is told the process's instead: see [`Process::seen_number`](crate::linux::Process).
pub(crate) const FIRST_THREAD: u64 = 1;

/// The number of a process that was cloned from one of the number `before`, or reset to where that stood. Libraries take a
/// change of it for a fork, and let go of random state that they would have in common with the one they were copied from
/// (OpenSSL 3 before each draw; Python's `tempfile`). No thread has such a number.
pub(crate) fn another(before: u64) -> io::Result<u64> {
    const SPACE: u64 = 1 << 21;
    let mut bytes = [0; 8];
    // Of so few bytes all come.
    random(&mut bytes, GetRandomFlags::empty())?;
    let number = SPACE + u64::from_le_bytes(bytes) % (SPACE - 1);
    Ok(if number < before { number } else { number + 1 })
}
