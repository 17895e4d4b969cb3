//! Addresses of host names, from the host's resolver: `getaddrinfo(3)`.
//!
//! The standard library calls it too, but hides why a lookup failed. A server that answers lookups
//! of others needs the cause: a missing name may be cached as missing, a failed lookup may not.

use std::ffi::{CStr, CString};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ptr;

use thiserror::Error;

/// Why a name has no address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ResolveError {
    /// A server that is responsible for the name's zone says that the name does not exist.
    #[error("there is no such name")]
    NoName,
    /// The name exists and has no address.
    #[error("the name has no address")]
    NoAddress,
    /// No server could be asked, or no answer was usable.
    #[error("the name could not be resolved: {0}")]
    Failed(String),
}

impl ResolveError {
    /// Maps a result of `getaddrinfo(3)`; `system` is errno at that time.
    fn of(said: i32, system: io::Error) -> Self {
        match said {
            libc::EAI_NONAME => Self::NoName,
            libc::EAI_NODATA => Self::NoAddress,
            libc::EAI_SYSTEM => Self::Failed(system.to_string()),
            other => {
                // SAFETY: takes any number, and returns a text that is never freed.
                let text = unsafe { libc::gai_strerror(other) };
                // SAFETY: as above; it ends with a zero.
                let text = unsafe { CStr::from_ptr(text) };
                Self::Failed(text.to_string_lossy().into_owned())
            }
        }
    }
}

/// A list that `getaddrinfo(3)` allocated.
struct Found(*mut libc::addrinfo);

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: came from getaddrinfo, and is freed here only.
        unsafe { libc::freeaddrinfo(self.0) }
    }
}

/// The addresses of a name with that port, at least one, in the order in which to try them. Blocks
/// for as long as `resolv.conf(5)` says, and cannot be interrupted.
///
/// # Errors
/// Why there is no address.
pub fn addresses(name: &str, port: u16) -> Result<Vec<SocketAddr>, ResolveError> {
    let name = CString::new(name).map_err(|_| ResolveError::NoName)?;
    // SAFETY: all zeros ask for everything.
    let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
    // Otherwise each address would be listed once for each kind of socket.
    hints.ai_socktype = libc::SOCK_STREAM;
    let mut first = ptr::null_mut();
    // SAFETY: name and hints outlive the call, and the list goes where there is room for it.
    let said =
        unsafe { libc::getaddrinfo(name.as_ptr(), ptr::null(), &raw const hints, &raw mut first) };
    if said != 0 {
        return Err(ResolveError::of(said, io::Error::last_os_error()));
    }
    let found = Found(first);
    let (mut all, mut at) = (Vec::new(), found.0);
    while !at.is_null() {
        // SAFETY: an entry of the list, which lives until `found` is dropped.
        let entry = unsafe { at.read() };
        all.extend(address(&entry, port));
        at = entry.ai_next;
    }
    if all.is_empty() { Err(ResolveError::NoAddress) } else { Ok(all) }
}

/// The address of one entry of a list from `getaddrinfo(3)`.
fn address(entry: &libc::addrinfo, port: u16) -> Option<SocketAddr> {
    match entry.ai_family {
        libc::AF_INET => {
            // SAFETY: an entry of this family has an address of this type.
            let v4 = unsafe { entry.ai_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddr::new(IpAddr::V4(ip), port))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { entry.ai_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_an_address_leads_to_it() {
        for (text, expected) in
            [("192.0.2.7", "192.0.2.7:443"), ("2001:db8::7", "[2001:db8::7]:443")]
        {
            assert_eq!(addresses(text, 443), Ok(vec![expected.parse().unwrap()]));
        }
        assert!(addresses("localhost", 1).unwrap().iter().all(|found| found.ip().is_loopback()));
    }

    #[test]
    fn only_a_name_said_to_be_missing_is_missing() {
        let of = |said| ResolveError::of(said, io::ErrorKind::TimedOut.into());
        assert_eq!(of(libc::EAI_NONAME), ResolveError::NoName);
        assert_eq!(of(libc::EAI_NODATA), ResolveError::NoAddress);
        for failed in [libc::EAI_AGAIN, libc::EAI_FAIL, libc::EAI_MEMORY, libc::EAI_SYSTEM] {
            assert!(matches!(of(failed), ResolveError::Failed(why) if !why.is_empty()), "{failed}");
        }
        assert_eq!(addresses("a\0b", 1), Err(ResolveError::NoName));
    }
}
