//! Network namespaces: acting in another one, and adding local routes. For processes with a
//! **single thread**.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Runs `action` in another network namespace, then goes back. Sockets that it makes stay in that
/// namespace. Needs root and a process with one thread. Ends the process if it cannot go back: it
/// must not go on in the namespace of a sandbox.
///
/// # Errors
/// As `setns(2)`, before anything was done; the action's own.
pub fn within<T>(
    namespace: BorrowedFd<'_>,
    action: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let kind = Some(LinkNameSpaceType::Network);
    let home = File::open("/proc/self/ns/net")?;
    move_into_link_name_space(namespace, kind)?;
    let done = action();
    if move_into_link_name_space(home.as_fd(), kind).is_err() {
        std::process::abort();
    }
    done
}

/// The index of a namespace's loopback device, always the first.
const LOOPBACK: u32 = 1;

// linux/rtnetlink.h, linux/netlink.h
const RTM_NEWROUTE: u16 = 24;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const RT_TABLE_LOCAL: u8 = 255;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_HOST: u8 = 254;
const RTN_LOCAL: u8 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;

/// Makes all addresses of a network local in the caller's network namespace: `ip route add local
/// NETWORK dev lo`. A connection to one of them then reaches a socket there, or is refused. A route
/// that exists already is left as it is.
///
/// # Errors
/// EPERM without `CAP_NET_ADMIN` over the namespace; EINVAL when the address has bits beyond the
/// prefix; for IPv6, EOPNOTSUPP or EACCES where the host has none.
pub fn make_local(address: IpAddr, prefix: u8) -> io::Result<()> {
    let message = new_route(address, prefix);
    // Without a protocol: NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0u8; 256];
    let (length, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    let field = |at: usize, length_of: usize| answer[..length].get(at..at + length_of);
    let kind = field(4, 2).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let said = field(16, 4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match (kind, said.map(|said| -said)) {
        (Some(NLMSG_ERROR), Some(0 | libc::EEXIST)) => Ok(()),
        (Some(NLMSG_ERROR), Some(errno)) => Err(io::Error::from_raw_os_error(errno)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The message: a header of 16 bytes, `struct rtmsg`, then attributes.
fn new_route(address: IpAddr, prefix: u8) -> Vec<u8> {
    let (family, bytes) = match address {
        IpAddr::V4(address) => (AddressFamily::INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AddressFamily::INET6, address.octets().to_vec()),
    };
    let family = u8::try_from(family.as_raw()).unwrap_or_default();
    let mut body =
        vec![family, prefix, 0, 0, RT_TABLE_LOCAL, RTPROT_STATIC, RT_SCOPE_HOST, RTN_LOCAL];
    body.extend(0u32.to_ne_bytes());
    for (kind, value) in [(RTA_DST, &bytes[..]), (RTA_OIF, &LOOPBACK.to_ne_bytes())] {
        // Both values are whole words: no padding.
        let length = u16::try_from(4 + value.len()).unwrap_or_default();
        body.extend(length.to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value);
    }
    let mut message = Vec::with_capacity(16 + body.len());
    message.extend(u32::try_from(16 + body.len()).unwrap_or_default().to_ne_bytes());
    message.extend(RTM_NEWROUTE.to_ne_bytes());
    message.extend((NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE).to_ne_bytes());
    // Sequence number and sender are zero: one request, one answer.
    message.extend([0; 8]);
    message.extend(body);
    message
}
