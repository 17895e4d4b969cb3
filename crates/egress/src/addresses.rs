//! Special-purpose addresses: IANA's registries (RFC 6890), and the metadata services of
//! clouds.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A network with the word for its purpose.
pub(crate) type SpecialNetwork = (IpNet, &'static str);

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix))
}

const fn v6(bits: u128, prefix: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::from_bits(bits), prefix))
}

/// Addresses that stand for names in sandboxes: reserved for benchmarks between networks (RFC
/// 2544), so they are on no internet.
pub const FOR_NAMES: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(198, 18, 0, 0), 16);

const METADATA: &str = "a cloud's service of metadata";
const EMBEDDED: &str = "an IPv4 address within an IPv6 one";

/// Networks that no function reaches, even if the operator allows them.
pub(crate) const NEVER: &[SpecialNetwork] = &[
    (v4(0, 0, 0, 0, 8), "no host's address"),
    (v4(169, 254, 0, 0, 16), "link-local, where clouds have their metadata"),
    (v4(168, 63, 129, 16, 32), METADATA),
    (v4(100, 100, 100, 200, 32), METADATA),
    (v4(192, 0, 0, 192, 32), METADATA),
    (v4(198, 18, 0, 0, 15), "made up for a name"),
    (v4(224, 0, 0, 0, 4), "multicast"),
    (v4(240, 0, 0, 0, 4), "reserved or broadcast"),
    (v6(0, 128), "no host's address"),
    (v6(0x0064_ff9b << 96, 96), EMBEDDED),
    (v6(0x0064_ff9b_0001 << 80, 48), EMBEDDED),
    (v6(0x2001_0000 << 96, 32), EMBEDDED),
    (v6(0x2002 << 112, 16), EMBEDDED),
    (v6(0xfe80 << 112, 10), "link-local"),
    (v6(0xff00 << 112, 8), "multicast"),
    (v6(0xfd00_0ec2 << 96, 32), METADATA),
    (v6(0xfd00_00c1 << 96 | 0xa9fe_a9fe, 128), METADATA),
    (v6(0xfd20_00ce << 96 | 0x254, 128), METADATA),
];

/// Networks that no function reaches unless the operator allows them: all that are not public.
pub(crate) const NOT_PUBLIC: &[SpecialNetwork] = &[
    (v4(10, 0, 0, 0, 8), "private"),
    (v4(172, 16, 0, 0, 12), "private"),
    (v4(192, 168, 0, 0, 16), "private"),
    (v4(100, 64, 0, 0, 10), "shared behind a provider"),
    (v4(127, 0, 0, 0, 8), "loopback"),
    (v4(192, 0, 0, 0, 24), "for protocols"),
    (v4(192, 0, 2, 0, 24), "for documentation"),
    (v4(198, 51, 100, 0, 24), "for documentation"),
    (v4(203, 0, 113, 0, 24), "for documentation"),
    (v6(1, 128), "loopback"),
    (v6(0xfc00 << 112, 7), "private"),
    (v6(0x2001_0db8 << 96, 32), "for documentation"),
    (v6(0x3fff << 112, 20), "for documentation"),
    // All but 2000::/3.
    (v6(0, 3), "not global"),
    (v6(0x4000 << 112, 2), "not global"),
    (v6(0x8000 << 112, 1), "not global"),
];

/// The most specific entry that contains all of a network.
pub(crate) fn holding(
    list: &'static [SpecialNetwork],
    network: &IpNet,
) -> Option<&'static SpecialNetwork> {
    let all = list.iter().filter(|(special, _)| special.contains(network));
    all.max_by_key(|(special, _)| special.prefix_len())
}
