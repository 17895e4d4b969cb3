//! What a sandbox may reach: a class, and for [`Network::Egress`] a list of destinations.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What a sandbox may reach. A zygote's class is its children's class, for their whole life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// Nothing, not even loopback.
    #[default]
    None,
    /// Nothing but itself: it has a loopback of its own. No setting names it; what a function is may need it.
    Loopback,
    /// The destinations of a list, by TCP, through a proxy that opens no other.
    Egress,
    /// Whatever the host may reach. Only where the operator has allowed it to the function.
    Host,
}

impl Network {
    /// As it is written in settings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Loopback => "loopback",
            Self::Egress => "egress",
            Self::Host => "host",
        }
    }
}

/// Most destinations of one function.
pub const MOST_DESTINATIONS: usize = 64;

/// Most different ports in them: each is a listening socket of every sandbox.
pub const MOST_PORTS: usize = 12;

/// Where a sandbox may connect to, by TCP: `api.example.com:443`, `*.s3.example.com:443`, `192.0.2.0/24:5432`,
/// `[2001:db8::7]:443`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Destination {
    /// The host or hosts.
    pub host: Host,
    /// The TCP port, from 1 to 65535.
    pub port: u16,
}

/// Who a [`Destination`] is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// The host of this name, in lower case.
    Name(String),
    /// Every host whose name ends with a dot and this, in lower case.
    Below(String),
    /// Every address of a network.
    Addresses(IpNet),
}

/// Why a text is no [`Destination`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DestinationError {
    /// The text names no port.
    #[error(
        "{0:?} names no port from 1 to 65535: write it behind a colon, as in \"api.example.com:443\""
    )]
    Port(String),
    /// The sandbox would not ask anybody for that name.
    #[error(
        "{0:?} is the sandbox itself in there: name an address of the host, as in \"127.0.0.1:5432\""
    )]
    Itself(String),
    /// Neither a name nor addresses.
    #[error(
        "{0:?} is neither a host name, such as \"api.example.com\" or \"*.example.com\", nor a network, such as \"192.0.2.0/24\" or \"[2001:db8::]/32\""
    )]
    Host(String),
}

impl Destination {
    /// Whether a name, in lower case and without a dot at its end, is one of its hosts'.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        match &self.host {
            Host::Name(one) => one == name,
            Host::Below(above) => name
                .strip_suffix(above.as_str())
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            Host::Addresses(_) => false,
        }
    }

    /// Whether an address is one of its hosts', by itself and not by a name.
    #[must_use]
    pub fn has_address(&self, address: IpAddr) -> bool {
        matches!(&self.host, Host::Addresses(network) if network.contains(&address))
    }
}

impl FromStr for Destination {
    type Err = DestinationError;

    fn from_str(text: &str) -> Result<Self, DestinationError> {
        let (host, port) =
            text.rsplit_once(':').ok_or_else(|| DestinationError::Port(text.to_owned()))?;
        let digits = port.bytes().all(|digit| digit.is_ascii_digit());
        let port = port.parse().ok().filter(|port| digits && *port != 0);
        let host = match network(host).map(Host::Addresses).or_else(|| name(host)) {
            Some(found) => found,
            None => return Err(DestinationError::Host(host.to_owned())),
        };
        let host = match host {
            Host::Name(name) if is_localhost(&name) => return Err(DestinationError::Itself(name)),
            Host::Below(name) if is_localhost(&name) => return Err(DestinationError::Itself(name)),
            other => other,
        };
        Ok(Self { host, port: port.ok_or_else(|| DestinationError::Port(text.to_owned()))? })
    }
}

/// `192.0.2.7`, `192.0.2.0/24`, `[2001:db8::7]`, `[2001:db8::]/32`, `[2001:db8::/32]`.
pub(crate) fn network(text: &str) -> Option<IpNet> {
    let Some(rest) = text.strip_prefix('[') else {
        let address = text.split_once('/').map_or(text, |(address, _)| address);
        // Without brackets it would not be clear where the port begins.
        address.parse::<Ipv4Addr>().ok()?;
        return text
            .parse::<IpNet>()
            .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
            .ok()
            .map(|n| n.trunc());
    };
    let (inside, behind) = rest.split_once(']')?;
    let whole = format!("{inside}{behind}");
    let network =
        whole.parse::<IpNet>().or_else(|_| whole.parse::<IpAddr>().map(IpNet::from)).ok()?;
    // An IPv4 address in the clothes of an IPv6 one would be told from itself.
    let plain = network.addr().to_canonical() == network.addr() && network.addr().is_ipv6();
    plain.then(|| network.trunc())
}

fn name(text: &str) -> Option<Host> {
    let (below, name) = match text.strip_prefix("*.") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let name = name.to_ascii_lowercase();
    if !is_host_name(&name) {
        return None;
    }
    Some(if below { Host::Below(name) } else { Host::Name(name) })
}

/// Resolvers know it by themselves (RFC 6761, 6.3).
fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Whether it is a host's name in lower case, and nothing that a resolver would take for an address (`127.1`, `0x7f.1`).
#[must_use]
pub fn is_host_name(name: &str) -> bool {
    let label = |label: &str| {
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-' || c == b'_';
        (1..=63).contains(&label.len()) && !label.starts_with('-') && label.bytes().all(plain)
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    let number = last.bytes().all(|c| c.is_ascii_digit()) || last.starts_with("0x");
    name.len() <= 253 && name.split('.').all(label) && !number
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        match host {
            Host::Name(name) => write!(f, "{name}:{port}"),
            Host::Below(name) => write!(f, "*.{name}:{port}"),
            Host::Addresses(network) if network.addr().is_ipv6() => {
                write!(f, "[{}]/{}:{port}", network.addr(), network.prefix_len())
            }
            Host::Addresses(network) => write!(f, "{network}:{port}"),
        }
    }
}

impl TryFrom<String> for Destination {
    type Error = DestinationError;

    fn try_from(text: String) -> Result<Self, DestinationError> {
        text.parse()
    }
}

impl From<Destination> for String {
    fn from(destination: Destination) -> Self {
        destination.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destination(text: &str) -> Destination {
        text.parse().unwrap()
    }

    #[test]
    fn a_destination_is_read_back_as_it_is_written() {
        for (written, read) in [
            ("API.example.com:443", "api.example.com:443"),
            ("*.s3.example.com:443", "*.s3.example.com:443"),
            ("192.0.2.7:80", "192.0.2.7/32:80"),
            ("192.0.2.7/24:80", "192.0.2.0/24:80"),
            ("[2001:db8::7]:443", "[2001:db8::7]/128:443"),
            ("[2001:db8::/32]:443", "[2001:db8::]/32:443"),
            ("database:5432", "database:5432"),
        ] {
            assert_eq!(destination(written).to_string(), read);
            assert_eq!(destination(read), destination(written));
        }
    }

    #[test]
    fn what_is_no_destination_is_refused_with_an_example() {
        for bad in [
            "",
            "example.com",
            "example.com:",
            "example.com:0",
            "example.com:65536",
            "example.com:+1",
            ":443",
            "https://example.com:443",
            "*:443",
            "*.:443",
            "a..b:1",
            "a b:1",
            "-a:1",
            "a/24:1",
            "127.1:80",
            "0x7f.1:80",
            "1:80",
            "192.0.2.256:80",
            "192.0.2.0/33:80",
            "::1:80",
            "[192.0.2.7]:80",
            "[::ffff:127.0.0.1]:80",
            "[::1:80",
        ] {
            let error = bad.parse::<Destination>().unwrap_err().to_string();
            assert!(error.contains("example.com"), "{bad}: {error}");
        }
    }

    #[test]
    fn the_sandbox_itself_is_no_destination() {
        for itself in ["localhost:80", "LOCALHOST:80", "a.localhost:80", "*.localhost:80"] {
            let error = itself.parse::<Destination>().unwrap_err().to_string();
            assert!(error.contains("127.0.0.1:5432"), "{itself}: {error}");
        }
    }

    #[test]
    fn a_star_stands_for_one_label_or_more_and_never_for_none() {
        let star = destination("*.example.com:443");
        assert!(star.has_name("a.example.com") && star.has_name("a.b.example.com"));
        for other in ["example.com", ".example.com", "notexample.com", "a.example.com.evil.net"] {
            assert!(!star.has_name(other), "{other}");
        }
        let one = destination("example.com:443");
        assert!(one.has_name("example.com") && !one.has_name("a.example.com"));
    }

    #[test]
    fn a_name_has_no_address_of_its_own() {
        let network = destination("192.0.2.0/24:80");
        assert!(network.has_address("192.0.2.9".parse().unwrap()));
        assert!(!network.has_address("192.0.3.9".parse().unwrap()));
        assert!(!destination("example.com:80").has_address("192.0.2.9".parse().unwrap()));
    }
}
