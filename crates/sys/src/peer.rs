//! The process at the other end of a Unix socket.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Supplementary groups of the process that connected, at the moment of connecting (SO_PEERGROUPS,
/// Linux ≥ 4.13).
///
/// # Errors
/// When the socket is no connected Unix socket, or the kernel lacks the option.
pub fn groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups = vec![0 as libc::gid_t; 32];
    loop {
        let bytes = groups.len() * size_of::<libc::gid_t>();
        let mut length = libc::socklen_t::try_from(bytes).unwrap_or(libc::socklen_t::MAX);
        // SAFETY: `groups` is writable for `length` bytes, which the kernel never writes beyond,
        // and both live until the call returns; any bit pattern is a group's number.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        let count = length as usize / size_of::<libc::gid_t>();
        if result == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        match io::Error::last_os_error() {
            // The kernel has written the needed length.
            error if error.raw_os_error() == Some(libc::ERANGE) && count > groups.len() => {
                groups.resize(count, 0);
            }
            error => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_file_that_is_no_socket_has_no_peer() {
        let file = std::fs::File::open("/").unwrap();
        assert!(groups(file.as_fd()).is_err());
    }
}
