//! Sockets of TCP and UDP, which reach nobody: a machine has no network.
//!
//! They can be made, as in a container without one, because programs take a family that has no sockets for one to leave out: an
//! event loop's server would then serve nothing, and say nothing. What would use an address is refused as it is there.

use rustix::io::Errno;

use super::Answer;
use super::call::{fd, signed};
use super::files::{Files, Object};
use super::process::Process;

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alone {
    /// AF_INET or AF_INET6.
    family: i32,
    /// Of TCP, and not of UDP.
    stream: bool,
}

/// `socket`: of other families there are none.
pub(super) fn make(process: &mut Process, family: u64, kind: u64, protocol: u64) -> Answer {
    const FLAGS: i32 = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let (family, kind, protocol) = (signed(family), signed(kind), signed(protocol));
    if kind & !(0xf | FLAGS) != 0 {
        return Err(Errno::INVAL);
    }
    if !matches!(family, libc::AF_INET | libc::AF_INET6) {
        return Err(Errno::AFNOSUPPORT);
    }
    let stream = match (kind & 0xf, protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => true,
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => false,
        _ => return Err(Errno::PROTONOSUPPORT),
    };
    // SOCK_NONBLOCK and SOCK_CLOEXEC are O_NONBLOCK and O_CLOEXEC.
    let flags = u64::from((libc::O_RDWR | kind & FLAGS).cast_unsigned());
    process.kernel.files.open(Object::Alone(Alone { family, stream }), flags)
}

/// `bind`, `connect` and `listen`: as where Landlock has a rule for no port.
pub(super) fn reach(process: &Process, fd_: u64) -> Answer {
    match process.kernel.files.get(fd(fd_))?.object {
        Object::Alone(_) => Err(Errno::ACCESS),
        // It is connected, and has no address.
        Object::Socket { .. } => Err(Errno::INVAL),
        _ => Err(Errno::NOTSOCK),
    }
}

/// `accept`: nobody listens.
pub(super) fn accept(process: &Process, fd_: u64) -> Answer {
    reach(process, fd_).map_err(|errno| if errno == Errno::ACCESS { Errno::INVAL } else { errno })
}

/// That a descriptor is such a socket, if it is.
pub(super) fn of(files: &Files, fd_: u64) -> Option<Alone> {
    match files.get(fd(fd_)).ok()?.object {
        Object::Alone(alone) => Some(alone),
        _ => None,
    }
}

impl Alone {
    /// Why nothing can be sent.
    pub(super) fn send(self, addressed: bool) -> Errno {
        match (addressed, self.stream) {
            (true, false) => Errno::ACCESS,
            (_, true) => Errno::PIPE,
            (false, false) => Errno::DESTADDRREQ,
        }
    }

    /// Why nothing can be received.
    pub(super) fn receive(self) -> Errno {
        if self.stream { Errno::NOTCONN } else { Errno::AGAIN }
    }

    /// What `getsockname` tells: any address, and no port.
    pub(super) fn name(self) -> Vec<u8> {
        let mut name = vec![0; if self.family == libc::AF_INET { 16 } else { 28 }];
        name[..2].copy_from_slice(&self.family.to_le_bytes()[..2]);
        name
    }

    /// An option of the socket itself.
    pub(super) fn option(self, which: i32) -> Result<i32, Errno> {
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
    pub(super) fn is_hung_up(self) -> bool {
        self.stream
    }
}
