//! The world as the proxy sees it: the host's resolver, and addresses to connect to.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use sys::names::{ResolveError, addresses};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::rules::{Refusal, Rules};
use crate::shares::Shares;

/// Connections of all sandboxes at once: each takes two descriptors and two buffers.
const CONNECTIONS: usize = 4096;

/// Names of all sandboxes that are resolved at once: each takes a thread.
pub(crate) const LOOKUPS: usize = 256;

/// How long one address may take to answer.
const CONNECT: Duration = Duration::from_secs(10);

/// Bytes that the kernel buffers each way, before it doubles them (socket(7)): it grows them no further then, as it would to
/// megabytes for a peer that sends faster than a function reads.
const BUFFER: u32 = 128 << 10;

/// Addresses of one name that are tried.
const TRIED: usize = 4;

/// What leads a name somewhere; it blocks.
pub(crate) type Lookup = fn(&str, u16) -> Result<Vec<SocketAddr>, ResolveError>;

/// What all sandboxes have outside together.
#[derive(Clone, Debug)]
pub(crate) struct Outside {
    pub(crate) connections: Arc<Shares>,
    pub(crate) lookups: Arc<Shares>,
    pub(crate) lookup: Lookup,
}

impl Outside {
    /// The host's own.
    pub(crate) fn of_host() -> Self {
        let (connections, lookups) = (Shares::new(CONNECTIONS), Shares::new(LOOKUPS));
        Self { connections, lookups, lookup: addresses }
    }

    /// Asks the resolver. `held` is given back when that has answered, be it long after everybody has ceased to wait: until then it
    /// has a thread, and `getaddrinfo(3)` cannot be broken off.
    ///
    /// # Errors
    /// When there is no such name, or no answer.
    pub(crate) async fn resolve(
        &self,
        name: &str,
        port: u16,
        held: impl Send + 'static,
    ) -> Result<Vec<SocketAddr>, ResolveError> {
        let (lookup, name) = (self.lookup, name.to_owned());
        let asked = spawn_blocking(move || {
            let found = lookup(&name, port);
            drop(held);
            found
        });
        asked.await.unwrap_or_else(|broken| Err(ResolveError::Failed(broken.to_string())))
    }
}

/// Those of some addresses that may be connected to.
///
/// # Errors
/// Why not, where none may.
pub(crate) fn permitted(
    rules: &Rules,
    found: &[SocketAddr],
    own: &[IpAddr],
) -> Result<Vec<SocketAddr>, Option<Refusal>> {
    let judged = found.iter().map(|to| (*to, rules.judge(*to, own)));
    let (good, bad): (Vec<_>, Vec<_>) = judged.partition(|(_, judged)| judged.is_ok());
    if good.is_empty() {
        return Err(bad.into_iter().find_map(|(_, judged)| judged.err()));
    }
    Ok(good.into_iter().map(|(to, _)| to).collect())
}

/// Connects to the first that answers. Closing the connection resets it, until [`end_in_order`].
///
/// # Errors
/// The last one's.
pub(crate) async fn connect(to: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut failed = io::ErrorKind::NotFound.into();
    for address in to.iter().take(TRIED) {
        match timeout(CONNECT, socket(address)?.connect(*address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failed = error,
            Err(late) => failed = late.into(),
        }
    }
    Err(failed)
}

fn socket(to: &SocketAddr) -> io::Result<TcpSocket> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_recv_buffer_size(BUFFER)?;
    socket.set_send_buffer_size(BUFFER)?;
    end_abruptly(&socket)?;
    Ok(socket)
}

/// From now on, whoever closes a socket resets its connection: a task that is dropped, or the kernel when this process is
/// killed. Half of what somebody had to say is not to pass for all of it.
///
/// # Errors
/// As `setsockopt(2)`.
pub(crate) fn end_abruptly(socket: impl AsFd) -> io::Result<()> {
    Ok(set_socket_linger(socket, Some(Duration::ZERO))?)
}

/// From now on, closing it says that all was said.
///
/// # Errors
/// As `setsockopt(2)`.
pub(crate) fn end_in_order(socket: impl AsFd) -> io::Result<()> {
    Ok(set_socket_linger(socket, None)?)
}

/// The addresses of this host, as they are now.
///
/// # Errors
/// As `getifaddrs(3)`: then nothing may be connected to.
pub(crate) fn own_addresses() -> io::Result<Vec<IpAddr>> {
    let own = nix::ifaddrs::getifaddrs()?.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip())))
    });
    Ok(own.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_names_addresses_only_those_are_tried_that_may_be() {
        let (rules, own) = (Rules::default(), ["203.0.113.9".parse().unwrap()]);
        let found = ["127.0.0.1:443", "8.8.8.8:443", "169.254.169.254:443", "203.0.113.9:443"];
        let found = found.map(|address| address.parse().unwrap());
        let good = permitted(&rules, &found, &own).unwrap();
        assert_eq!(good, [found[1]]);
        // A name that has begun to lead inside leads nowhere.
        let rebound = permitted(&rules, &found[..1], &own).unwrap_err();
        assert!(matches!(rebound, Some(Refusal::NotPublic { .. })), "{rebound:?}");
    }

    #[test]
    fn this_hosts_addresses_are_known() {
        let own = own_addresses().unwrap();
        assert!(own.iter().any(IpAddr::is_loopback), "{own:?}");
    }
}
