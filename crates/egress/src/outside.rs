//! The host's network as the proxy uses it: its resolver, and connections to addresses.

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

/// Maximum number of connections of all sandboxes: each takes two descriptors and two buffers.
const MAX_CONNECTIONS: usize = 4096;

/// Maximum number of lookups of all sandboxes at a time: each takes a thread.
pub(crate) const MAX_LOOKUPS: usize = 256;

/// Timeout of a connect to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Size of the kernel's buffer each way, in bytes, before it doubles it (socket(7)). A fixed size
/// stops the kernel from growing it to megabytes for a peer that sends faster than a function
/// reads.
const BUFFER: u32 = 128 << 10;

/// How many addresses of one name are tried.
const MAX_TRIES: usize = 4;

/// Resolves a name and port to addresses; blocks.
pub(crate) type Lookup = fn(&str, u16) -> Result<Vec<SocketAddr>, ResolveError>;

/// The share of the host's network that all sandboxes have together.
#[derive(Clone, Debug)]
pub(crate) struct Outside {
    pub(crate) connections: Arc<Shares>,
    pub(crate) lookups: Arc<Shares>,
    pub(crate) lookup: Lookup,
}

impl Outside {
    /// The host's resolver.
    pub(crate) fn of_host() -> Self {
        let (connections, lookups) = (Shares::new(MAX_CONNECTIONS), Shares::new(MAX_LOOKUPS));
        Self { connections, lookups, lookup: addresses }
    }

    /// Resolves a name. `held` is released when the resolver returns, even if the caller has long
    /// stopped waiting: `getaddrinfo(3)` cannot be interrupted and occupies a thread until then.
    ///
    /// # Errors
    /// When the name does not exist, or the lookup fails.
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

/// The addresses among these that the rules permit.
///
/// # Errors
/// Why not, when none is permitted.
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

/// Connects to the first address that answers. Closing the connection resets it, until
/// [`end_in_order`].
///
/// # Errors
/// The error of the last address.
pub(crate) async fn connect(to: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut failed = io::ErrorKind::NotFound.into();
    for address in to.iter().take(MAX_TRIES) {
        match timeout(CONNECT_TIMEOUT, socket(address)?.connect(*address)).await {
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

/// From now on, closing this socket resets its connection, whether a task is dropped or the kernel
/// closes it with the process. The peer then knows that it may not have received everything.
///
/// # Errors
/// As `setsockopt(2)`.
pub(crate) fn end_abruptly(socket: impl AsFd) -> io::Result<()> {
    Ok(set_socket_linger(socket, Some(Duration::ZERO))?)
}

/// From now on, closing this socket ends the connection in order: everything was sent.
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
        // A name that now resolves to a private address is refused.
        let rebound = permitted(&rules, &found[..1], &own).unwrap_err();
        assert!(matches!(rebound, Some(Refusal::NotPublic { .. })), "{rebound:?}");
    }

    #[test]
    fn this_hosts_addresses_are_known() {
        let own = own_addresses().unwrap();
        assert!(own.iter().any(IpAddr::is_loopback), "{own:?}");
    }
}
