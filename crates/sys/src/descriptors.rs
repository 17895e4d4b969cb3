//! How many descriptors this process may have, and those that it was started with.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Most that this process can allow itself without privilege.
#[must_use]
pub fn most() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// Allows this process as many as it can have without privilege, and with privilege at least `wanted`. How many these
/// then are. A shell's usual 1024 are for programs that use `select(2)`.
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

/// A descriptor that whoever has started this program has put at a number. Once for each number, before anything else was
/// opened.
///
/// # Errors
/// EBADF when nothing stands there.
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
    fn what_is_allowed_is_never_lowered() {
        let before = most();
        assert!(raise(0) >= before);
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), before);
    }
}
