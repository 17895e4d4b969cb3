//! A socket of TCP or UDP, which is connected to nothing: a machine has no network.

use rustix::io::Errno;

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InetSocket {
    /// AF_INET or AF_INET6.
    pub(crate) family: i32,
    /// Of TCP, and not of UDP.
    pub(crate) stream: bool,
}

impl InetSocket {
    /// Why nothing can be sent.
    pub(crate) fn send(self, addressed: bool) -> Errno {
        match (addressed, self.stream) {
            (true, false) => Errno::ACCESS,
            (_, true) => Errno::PIPE,
            (false, false) => Errno::DESTADDRREQ,
        }
    }

    /// Why nothing can be received.
    pub(crate) fn receive(self) -> Errno {
        if self.stream { Errno::NOTCONN } else { Errno::AGAIN }
    }

    /// What `getsockname` tells: any address, and no port.
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

    /// Whether it can be told as hung up: what was never connected is.
    pub(crate) fn is_hung_up(self) -> bool {
        self.stream
    }
}
