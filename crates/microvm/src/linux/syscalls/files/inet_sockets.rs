//! Sockets of TCP and UDP, which cannot be connected: a machine has no network.
//!
//! They can be made, as in a container without a network, because programs skip a family that has
//! no sockets: an event loop's server would then serve nothing, without a message. Calls that would
//! use an address are refused as they are there.

use rustix::io::Errno;

use crate::linux::abi::registers::{Answer, fd, signed};
use crate::linux::state::files::inet::InetSocket;
use crate::linux::state::files::{Files, Object};
use crate::linux::state::process::Process;

/// `socket`, of AF_INET and AF_INET6 only.
pub(crate) fn make(process: &mut Process, family: u64, kind: u64, protocol: u64) -> Answer {
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
    process.kernel.files.open(Object::Inet(InetSocket { family, stream }), flags)
}

/// `bind`, `connect` and `listen`: refused like a port without a Landlock rule.
pub(crate) fn reach(process: &Process, fd_: u64) -> Answer {
    match process.kernel.files.get(fd(fd_))?.object {
        Object::Inet(_) => Err(Errno::ACCESS),
        // It is connected, and has no address.
        Object::Socket { .. } => Err(Errno::INVAL),
        _ => Err(Errno::NOTSOCK),
    }
}

/// `accept`: no socket listens.
pub(crate) fn accept(process: &Process, fd_: u64) -> Answer {
    reach(process, fd_).map_err(|errno| if errno == Errno::ACCESS { Errno::INVAL } else { errno })
}

/// The socket behind a descriptor, if it is one of TCP or UDP.
pub(crate) fn of(files: &Files, fd_: u64) -> Option<InetSocket> {
    match files.get(fd(fd_)).ok()?.object {
        Object::Inet(alone) => Some(alone),
        _ => None,
    }
}
