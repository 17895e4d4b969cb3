//! Orders of the worker to the proxy: one JSON object a packet, with descriptors beside it. The
//! proxy answers nothing, so the worker never waits for it. A connection that comes before the
//! proxy listens waits in the kernel's queue.

use std::net::IpAddr;

use sandbox::Destination;
use sandbox::network::Host;
use serde::{Deserialize, Serialize};
use warden::isolation::Isolation;

use crate::addresses::FOR_NAMES;
use crate::rules::Rules;

/// Length limit of a packet, in bytes. Holds the maximum number of the longest rules, which take
/// more than the destinations.
pub const MAX_PACKET: usize = 64 << 10;

/// An order from the worker. A sandbox is named by its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Order {
    /// The first order: the bounds of every function.
    Bound {
        /// The operator's rules.
        rules: Rules,
        /// The lines of defence in force.
        isolation: Isolation,
    },
    /// A sandbox was made. Descriptors: its socket for name lookups, if its [`Plan`] has names,
    /// then a listening socket for each port.
    Open {
        /// The sandbox's number.
        sandbox: u64,
        /// Its function, as `tenant/function`: shared limits are divided by it.
        owner: String,
        /// Destinations it may connect to.
        destinations: Vec<Destination>,
    },
    /// A sandbox is paused: its connections are reset, and new ones wait.
    Pause {
        /// The sandbox's number.
        sandbox: u64,
    },
    /// A paused sandbox goes on.
    Resume {
        /// The sandbox's number.
        sandbox: u64,
    },
    /// A sandbox is being destroyed.
    Close {
        /// The sandbox's number.
        sandbox: u64,
    },
}

/// The listeners and routes that a list of destinations needs in a sandbox's network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Networks whose addresses are made local there, each with the length of its prefix.
    pub networks: Vec<(IpAddr, u8)>,
    /// Ports to listen on.
    pub ports: Vec<u16>,
    /// Whether the sandbox may look up names.
    pub names: bool,
}

impl Plan {
    /// The plan of a list.
    #[must_use]
    pub fn of(destinations: &[Destination]) -> Self {
        let mut networks = Vec::new();
        let mut names = false;
        for destination in destinations {
            match &destination.host {
                Host::Addresses(network) => networks.push((network.addr(), network.prefix_len())),
                Host::Name(_) | Host::Below(_) => names = true,
            }
        }
        if names {
            networks.push((FOR_NAMES.addr().into(), FOR_NAMES.prefix_len()));
        }
        networks.sort_unstable();
        networks.dedup();
        let mut ports: Vec<u16> = destinations.iter().map(|destination| destination.port).collect();
        ports.sort_unstable();
        ports.dedup();
        Self { networks, ports, names }
    }
}

#[cfg(test)]
mod tests {
    use warden::defence::Defence;

    use super::*;
    use crate::rules::{MAX_RULES, Rule};

    #[test]
    fn a_plan_has_each_network_and_port_once_and_says_whether_there_are_names() {
        let list = |texts: &[&str]| -> Vec<Destination> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let plan = Plan::of(&list(&["192.0.2.0/24:80", "192.0.2.0/24:443", "[2001:db8::1]:443"]));
        assert_eq!((plan.networks.len(), plan.ports, plan.names), (2, vec![80, 443], false));
        let plan = Plan::of(&list(&["*.example.com:443", "example.com:443"]));
        assert_eq!((plan.networks, plan.names), (vec![("198.18.0.0".parse().unwrap(), 16)], true));
    }

    #[test]
    fn the_longest_lists_fit_into_a_packet() {
        let name = format!(
            "{}.example.com:65535",
            ["a".repeat(60), "b".repeat(60), "c".repeat(60)].join(".")
        );
        let destinations = vec![name.parse().unwrap(); sandbox::network::MOST_DESTINATIONS];
        let owner = "o".repeat(256);
        let order = Order::Open { sandbox: u64::MAX, owner, destinations };
        assert!(serde_json::to_vec(&order).unwrap().len() < MAX_PACKET);
        let rule = "[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]/128:65535".parse::<Rule>().unwrap();
        let rules = vec![rule; MAX_RULES];
        let rules = Rules { allow: rules.clone(), deny: rules, worker: Some(65535) };
        let without = Defence::ALL.iter().copied().collect();
        let isolation = Isolation { without, ..Isolation::LEAN };
        let order = Order::Bound { rules, isolation };
        assert!(serde_json::to_vec(&order).unwrap().len() < MAX_PACKET);
    }
}
