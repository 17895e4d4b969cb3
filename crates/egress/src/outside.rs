//! The world as the proxy sees it: the host's resolver, and addresses to connect to.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::timeout;

use crate::rules::{Refusal, Rules};

/// How long names may take to be resolved: two tries of resolv.conf(5).
const RESOLVE: Duration = Duration::from_secs(10);

/// How long one address may take to answer.
const CONNECT: Duration = Duration::from_secs(10);

/// Bytes that the kernel buffers each way, before it doubles them (socket(7)): it grows them no further then, as it would to
/// megabytes for a peer that sends faster than a function reads.
const BUFFER: u32 = 128 << 10;

/// Addresses of one name that are tried.
const TRIED: usize = 4;

/// Asks the host's resolver. Not empty.
///
/// # Errors
/// When there is no such name, or no answer.
pub(crate) async fn resolve(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let found: Vec<_> = timeout(RESOLVE, lookup_host((name, port))).await??.collect();
    if found.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(found) }
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

/// Connects to the first that answers.
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
    Ok(socket)
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
