//! Which addresses may be connected to: built-in rules, and the operator's rules for every
//! function.
//!
//! The most specific rule that contains an address decides, as in a routing table: the longest
//! prefix; then a rule with a port before one without; then the operator's before a built-in one;
//! then a refusal. The built-in rules refuse every address that is not public, and each address of
//! this host. Two refusals stand above all rules: [`addresses::NEVER`](crate::addresses) and the
//! worker's own API.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use ipnet::IpNet;
use sandbox::network::{Destination, Host};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::addresses::{NEVER, NOT_PUBLIC, holding};

/// A network, at one port or at all: `10.0.0.0/8`, `192.0.2.7:5432`, `[fd00::]/8`, `[fd00::7]:443`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rule {
    network: IpNet,
    port: Option<u16>,
}

/// Why a text is no [`Rule`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} is no network: write addresses, with or without a port, as in \"10.0.0.0/8\", \"192.0.2.7:5432\" or \"[fd00::]/8:443\""
)]
pub struct RuleError(String);

impl Rule {
    fn holds(&self, network: &IpNet, port: u16) -> bool {
        self.network.contains(network) && self.port.is_none_or(|own| own == port)
    }

    /// Sorts rules by how specific they are: prefix length, then whether there is a port.
    fn weight(&self) -> (u8, bool) {
        (self.network.prefix_len(), self.port.is_some())
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        // Parsed as a destination, which always has a port.
        let parse = |text: &str| match text.parse::<Destination>() {
            Ok(Destination { host: Host::Addresses(network), port }) => Some((network, port)),
            _ => None,
        };
        if let Some((network, port)) = parse(text) {
            return Ok(Self { network, port: Some(port) });
        }
        let (network, _) = parse(&format!("{text}:1")).ok_or_else(|| RuleError(text.to_owned()))?;
        Ok(Self { network, port: None })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.network {
            IpNet::V4(network) => write!(f, "{network}")?,
            IpNet::V6(network) => write!(f, "[{}]/{}", network.addr(), network.prefix_len())?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl TryFrom<String> for Rule {
    type Error = RuleError;

    fn try_from(text: String) -> Result<Self, RuleError> {
        text.parse()
    }
}

impl From<Rule> for String {
    fn from(rule: Rule) -> Self {
        rule.to_string()
    }
}

/// Maximum number of rules in each list: one packet tells the proxy of both.
pub const MAX_RULES: usize = 512;

/// The operator's rules for every function of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Networks that may be reached although they are not public.
    pub allow: Vec<Rule>,
    /// Networks that may not be reached.
    pub deny: Vec<Rule>,
    /// The port of the worker's API, which no function reaches at this host.
    pub worker: Option<u16>,
}

/// Why a destination may not be connected to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// No rule can allow this network.
    #[error("{network} is {what}: no function reaches that")]
    Never {
        /// The refused network.
        network: IpNet,
        /// The purpose of that network.
        what: &'static str,
    },
    /// The worker's own API is not for functions.
    #[error("port {0} of this host is the worker's own API: no function reaches that")]
    Worker(u16),
    /// One of this host's own addresses.
    #[error("{0} is this host itself: its operator would have to name it in `egress_allow`")]
    Own(IpAddr),
    /// The network is not public, and the operator does not allow it.
    #[error("{network} is {what}: its operator would have to name it in `egress_allow`")]
    NotPublic {
        /// The refused network.
        network: IpNet,
        /// The purpose of that network.
        what: &'static str,
    },
    /// The operator denies this network.
    #[error("{0} is in the operator's `egress_deny`")]
    Denied(IpNet),
}

impl Rules {
    /// Judges one address; `own` are the addresses of this host.
    ///
    /// # Errors
    /// Why the address may not be connected to.
    pub fn judge(&self, to: SocketAddr, own: &[IpAddr]) -> Result<(), Refusal> {
        // An address that a resolver writes as ::ffff:127.0.0.1 is 127.0.0.1.
        let address = to.ip().to_canonical();
        let network = IpNet::from(address);
        never(&network)?;
        let ours = own.contains(&address);
        if self.worker == Some(to.port()) && (ours || address.is_loopback()) {
            return Err(Refusal::Worker(to.port()));
        }
        if ours && !address.is_loopback() {
            return match self.decided(&network, to.port()) {
                Some((true, prefix)) if prefix == network.max_prefix_len() => Ok(()),
                Some((false, _)) => Err(Refusal::Denied(network)),
                _ => Err(Refusal::Own(address)),
            };
        }
        self.bounds(&network, to.port())
    }

    /// Judges a destination at deploy time: a network must be reachable as a whole; of a name
    /// nothing is known yet.
    ///
    /// # Errors
    /// Why the destination can never be reached.
    pub fn judge_wish(&self, wish: &Destination) -> Result<(), Refusal> {
        let Host::Addresses(network) = &wish.host else { return Ok(()) };
        never(network)?;
        self.bounds(network, wish.port)
    }

    fn bounds(&self, network: &IpNet, port: u16) -> Result<(), Refusal> {
        let special = holding(NOT_PUBLIC, network);
        let least = special.map_or(0, |(special, _)| special.prefix_len());
        match (self.decided(network, port), special) {
            (Some((true, prefix)), _) if prefix >= least => Ok(()),
            (Some((false, prefix)), _) if prefix >= least => Err(Refusal::Denied(*network)),
            (_, Some((_, what))) => Err(Refusal::NotPublic { network: *network, what }),
            (_, None) => Ok(()),
        }
    }

    /// The verdict of the operator's most specific rule, and the length of its prefix.
    fn decided(&self, network: &IpNet, port: u16) -> Option<(bool, u8)> {
        let best = |rules: &[Rule]| {
            rules.iter().filter(|rule| rule.holds(network, port)).map(Rule::weight).max()
        };
        let (allow, deny) = (best(&self.allow), best(&self.deny));
        let decides = allow.max(deny)?;
        Some((allow > deny, decides.0))
    }
}

fn never(network: &IpNet) -> Result<(), Refusal> {
    match holding(NEVER, network) {
        Some((_, what)) => Err(Refusal::Never { network: *network, what }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], deny: &[&str]) -> Rules {
        let all = |list: &[&str]| list.iter().map(|rule| rule.parse().unwrap()).collect();
        Rules { allow: all(allow), deny: all(deny), worker: Some(8470) }
    }

    fn judged(rules: &Rules, to: &str) -> Result<(), Refusal> {
        rules.judge(to.parse().unwrap(), &["198.51.100.1".parse().unwrap()])
    }

    #[test]
    fn without_a_word_of_the_operators_only_public_addresses_are_reached() {
        let ours = rules(&[], &[]);
        for public in ["8.8.8.8:53", "100.63.0.1:1", "[2606:4700::1]:443", "172.32.0.1:80"] {
            assert_eq!(judged(&ours, public), Ok(()), "{public}");
        }
        for other in [
            "10.0.0.1:80",
            "172.16.0.1:80",
            "192.168.1.1:80",
            "127.0.0.1:80",
            "127.9.9.9:80",
            "100.64.0.1:80",
            "192.0.2.1:80",
            "[::1]:80",
            "[fd12::1]:80",
            "[2001:db8::1]:80",
            "[::7f00:1]:80",
            "[::ffff:10.0.0.1]:80",
        ] {
            assert!(matches!(judged(&ours, other), Err(Refusal::NotPublic { .. })), "{other}");
        }
        assert!(matches!(judged(&ours, "198.51.100.1:80"), Err(Refusal::Own(_))));
    }

    #[test]
    fn no_rule_opens_a_forbidden_network() {
        let all = rules(
            &["0.0.0.0/0", "[::]/0", "169.254.169.254", "[fe80::]/10", "[fd00:ec2::254]"],
            &[],
        );
        for never in [
            "0.0.0.0:80",
            "169.254.169.254:80",
            "[::ffff:169.254.169.254]:80",
            "168.63.129.16:80",
            "100.100.100.200:80",
            "224.0.0.1:80",
            "255.255.255.255:80",
            "198.18.0.1:443",
            "[::]:80",
            "[fe80::1]:80",
            "[ff02::1]:80",
            "[fd00:ec2::254]:80",
            "[64:ff9b::7f00:1]:80",
            "[2002:7f00:1::]:80",
            "[2001::1]:80",
        ] {
            assert!(matches!(judged(&all, never), Err(Refusal::Never { .. })), "{never}");
        }
    }

    #[test]
    fn the_workers_api_is_never_reached_at_any_address_of_this_host() {
        let all = rules(&["0.0.0.0/0", "[::]/0", "127.0.0.0/8", "[::1]", "198.51.100.1"], &[]);
        for api in [
            "127.0.0.1:8470",
            "127.3.3.3:8470",
            "[::1]:8470",
            "[::ffff:127.0.0.1]:8470",
            "198.51.100.1:8470",
        ] {
            assert_eq!(judged(&all, api), Err(Refusal::Worker(8470)), "{api}");
        }
        for other in ["127.0.0.1:80", "[::1]:80", "198.51.100.1:80", "8.8.8.8:8470"] {
            assert_eq!(judged(&all, other), Ok(()), "{other}");
        }
    }

    #[test]
    fn the_most_specific_rule_decides() {
        let some = rules(
            &["10.1.0.0/16", "10.2.3.4:5432", "8.8.8.8"],
            &["0.0.0.0/0", "10.1.9.0/24", "10.1.9.1:22"],
        );
        for (to, reached) in [
            ("10.1.2.3:80", true),
            ("10.1.9.3:80", false),
            ("10.2.3.4:5432", true),
            ("10.2.3.4:80", false),
            ("8.8.8.8:53", true),
            ("8.8.4.4:53", false),
            ("10.3.0.1:80", false),
        ] {
            assert_eq!(judged(&some, to).is_ok(), reached, "{to}");
        }
        // Of two equally specific rules, a refusal wins; otherwise the operator's.
        assert!(judged(&rules(&["10.0.0.0/8"], &["10.0.0.0/8"]), "10.0.0.1:80").is_err());
        assert!(judged(&rules(&["10.0.0.0/8"], &[]), "10.0.0.1:80").is_ok());
        // Allowing the whole internet allows neither private networks nor this host.
        let world = rules(&["0.0.0.0/0"], &[]);
        assert!(
            judged(&world, "10.0.0.1:80").is_err() && judged(&world, "198.51.100.1:80").is_err()
        );
    }

    #[test]
    fn a_destination_that_can_never_be_reached_is_refused_beforehand() {
        let some = rules(&["10.1.0.0/16:5432"], &["9.9.9.0/24"]);
        let wish = |text: &str| some.judge_wish(&text.parse().unwrap());
        for good in ["10.1.2.0/24:5432", "8.8.8.0/24:443", "0.0.0.0/0:443", "example.com:443"] {
            assert_eq!(wish(good), Ok(()), "{good}");
        }
        for bad in
            ["169.254.169.254:80", "10.1.2.3:80", "10.0.0.0/8:5432", "9.9.9.9:443", "[fe80::1]:1"]
        {
            assert!(wish(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_rule_is_read_back_as_it_is_written() {
        for text in ["10.0.0.0/8", "192.0.2.7/32:5432", "[fd00::]/8", "[fd00::7]/128:443"] {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
        }
        for bad in ["example.com", "example.com:443", "10.0.0.0/40", "", "10.0.0.1:0", "fd00::/8"] {
            assert!(bad.parse::<Rule>().unwrap_err().to_string().contains("10.0.0.0/8"), "{bad}");
        }
    }
}
