//! An instance's own network, and how it is filled: nothing but loopback, on which the addresses of
//! an allow-list are local. The proxy listens there.
//!
//! ```text
//!   landed (in a network namespace that its landing made) ─► Reach ─► enter it ─► routes ─► listen ─► go back
//!                                                                                             │ sockets
//!   in there:  connect(192.0.2.7:5432) ─► local, listened on ─────────────────────────────────┴─► the proxy's accept()
//!              connect(192.0.2.7:22)   ─► local, no listener: ECONNREFUSED
//!              connect(10.0.0.1:5432)  ─► no route: ENETUNREACH
//! ```
//! No packet leaves that namespace. It has no other device, and the instance has no capability to
//! make one. A package in its zygote had every capability over it while the fork landed, but is
//! refused the calls that make devices (`confine/filter/network.rs`); only its own forks see what
//! it leaves there. The proxy got the listening sockets, and decides and connects in its own
//! namespace.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::sockopt::{
    set_ipv6_v6only, set_socket_recv_buffer_size, set_socket_send_buffer_size,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};

use crate::defence::Defence;
use crate::limits::Network;
use crate::outcome::{CommandError, CommandResult, kernel};
use crate::protocol::{Answer, MAX_NETWORKS, MAX_PORTS};
use crate::sandbox::record::FilledNetwork;
use crate::state::Warden;

/// Where a resolver sends lookups if no server is configured (resolv.conf(5)).
const NAMES: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 53);

/// Size of the kernel's buffer each way, in bytes, before it doubles it (socket(7)).
const BUFFER: usize = 128 << 10;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

impl Warden {
    /// Carries out [`Command::Reach`](crate::protocol::Command::Reach).
    pub(crate) fn reach(
        &mut self,
        name: u64,
        networks: &[(IpAddr, u8)],
        ports: &[u16],
        names: bool,
    ) -> CommandResult {
        if networks.len() > MAX_NETWORKS || ports.len() > MAX_PORTS {
            return Err(CommandError::Wrong("too many networks or ports at once"));
        }
        let sandbox = self.find(name)?;
        if sandbox.network != Network::Egress || sandbox.reaches.is_some() {
            return Err(CommandError::Wrong("the sandbox's network is not to be filled"));
        }
        let process =
            sandbox.process.as_ref().ok_or(CommandError::Wrong("no process has landed"))?;
        let pid = process.identity().ok_or(CommandError::Gone)?.pid;
        let namespace = std::fs::File::open(format!("/proc/{pid}/ns/net"));
        // The pidfd keeps the number from naming another process: the process still lived after the
        // look. A dead one has no network any more.
        if !process.alive() {
            return Err(CommandError::Gone);
        }
        let namespace = namespace.map_err(kernel("open the sandbox's network"))?;
        let stat = rustix::fs::fstat(&namespace).map_err(kernel("name the sandbox's network"))?;
        let inode = stat.st_ino;
        // A zygote may have left out the step: then the network would be filled for all sandboxes
        // in it.
        if self.host.isolation.has(Defence::CheckNetwork) && !self.is_unused(inode)? {
            return Err(CommandError::Wrong("the process has no network of its own"));
        }
        let filled = sys::network::within(namespace.as_fd(), || fill(networks, ports, names));
        let sockets = filled.map_err(kernel("fill the sandbox's network"))?;
        self.find(name)?.reaches = Some(FilledNetwork { inode, namespace: namespace.into() });
        Ok((Answer::Done, sockets))
    }

    /// Whether a network is neither the warden's nor the shared one, and has not been filled for
    /// another sandbox.
    fn is_unused(&self, inode: u64) -> Result<bool, CommandError> {
        let ours = rustix::fs::stat("/proc/self/ns/net").map_err(kernel("name our own network"))?;
        let is_it = |filled: &FilledNetwork| filled.inode == inode;
        let filled = self.sandboxes.values().any(|one| one.reaches.as_ref().is_some_and(is_it));
        Ok(inode != ours.st_ino && !self.namespaces.is_network(inode) && !filled)
    }
}

/// Runs in the sandbox's network.
fn fill(networks: &[(IpAddr, u8)], ports: &[u16], names: bool) -> io::Result<Vec<OwnedFd>> {
    for (address, prefix) in networks {
        match sys::network::make_local(*address, *prefix) {
            // A host without IPv6 reaches no IPv6 address outside either.
            Err(error) if address.is_ipv6() && lacks_ipv6(&error) => {}
            made => made?,
        }
    }
    let mut sockets = Vec::new();
    if names {
        let socket = made(AddressFamily::INET, SocketType::DGRAM)?;
        bind(&socket, &NAMES)?;
        sockets.push(socket);
    }
    for port in ports {
        sockets.push(listen_on(*port)?);
    }
    Ok(sockets)
}

/// IPv6 is off in the kernel, or on the device.
fn lacks_ipv6(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EAFNOSUPPORT | libc::EACCES))
}

/// Listens at every address, of both kinds where the host has both.
fn listen_on(port: u16) -> io::Result<OwnedFd> {
    let both = || -> io::Result<OwnedFd> {
        let socket = made(AddressFamily::INET6, SocketType::STREAM)?;
        set_ipv6_v6only(&socket, false)?;
        bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
        Ok(socket)
    };
    let socket = both().or_else(|_| -> io::Result<OwnedFd> {
        let socket = made(AddressFamily::INET, SocketType::STREAM)?;
        bind(&socket, &SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port))?;
        Ok(socket)
    })?;
    // Accepted sockets inherit the sizes, and the kernel does not grow them. Otherwise a peer that
    // reads slowly would fill megabytes, which cgroups of version 1 charge to no group.
    set_socket_recv_buffer_size(&socket, BUFFER)?;
    set_socket_send_buffer_size(&socket, BUFFER)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn made(family: AddressFamily, kind: SocketType) -> io::Result<OwnedFd> {
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?)
}
