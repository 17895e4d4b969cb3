//! Limits on descriptors of this process, and descriptors inherited at its start.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The highest limit on descriptors that this process can set without privilege.
#[must_use]
pub fn most() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// Raises the limit on descriptors as far as this process may, and with privilege to at least
/// `wanted`. Returns the new limit. A shell's usual 1024 are for programs that use `select(2)`.
pub fn raise(wanted: u64) -> u64 {
    let hard = most();
    for limit in [wanted.max(hard), hard] {
        let both = Rlimit { current: Some(limit), maximum: Some(limit) };
        if setrlimit(Resource::Nofile, both).is_ok() {
            return limit;
        }
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Takes over an inherited descriptor by its number. Call it once for each number, before anything
/// else is opened.
///
/// # Errors
/// EBADF when the number is not open.
pub fn take(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: asks for flags, and changes nothing.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: open, by the line above; nothing in this program owns it, which has just begun.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_never_lowered() {
        let before = most();
        assert!(raise(0) >= before);
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), before);
    }
}
