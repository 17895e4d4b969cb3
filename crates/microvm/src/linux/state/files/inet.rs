//! A socket of TCP or UDP, which is connected to nothing: a machine has no network.

use rustix::io::Errno;

/// A socket of TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InetSocket {
    /// AF_INET or AF_INET6.
    pub(crate) family: i32,
    /// Whether it is TCP's; otherwise it is UDP's.
    pub(crate) stream: bool,
}

impl InetSocket {
    /// The error of sending.
    pub(crate) fn send(self, addressed: bool) -> Errno {
        match (addressed, self.stream) {
            (true, false) => Errno::ACCESS,
            (_, true) => Errno::PIPE,
            (false, false) => Errno::DESTADDRREQ,
        }
    }

    /// The error of receiving.
    pub(crate) fn receive(self) -> Errno {
        if self.stream { Errno::NOTCONN } else { Errno::AGAIN }
    }

    /// The answer to `getsockname`: any address, and no port.
    pub(crate) fn name(self) -> Vec<u8> {
        let mut name = vec![0; if self.family == libc::AF_INET { 16 } else { 28 }];
        name[..2].copy_from_slice(&self.family.to_le_bytes()[..2]);
        name
    }

    /// An option of the socket itself.
    pub(crate) fn option(self, which: i32) -> Result<i32, Errno> {
        let of_kind = |stream, datagrams| if self.stream { stream } else { datagrams };
        Ok(match which {
            libc::SO_TYPE => of_kind(libc::SOCK_STREAM, libc::SOCK_DGRAM),
            libc::SO_DOMAIN => self.family,
            libc::SO_PROTOCOL => of_kind(libc::IPPROTO_TCP, libc::IPPROTO_UDP),
            libc::SO_ERROR | libc::SO_ACCEPTCONN | libc::SO_REUSEADDR | libc::SO_KEEPALIVE => 0,
            _ => return Err(Errno::NOPROTOOPT),
        })
    }

    /// Whether it counts as hung up, as a stream that was never connected does.
    pub(crate) fn is_hung_up(self) -> bool {
        self.stream
    }
}
