//! Sockets by their arguments: which may be made, and which requests they accept.
//!
//! A zygote whose forks get a network of their own makes it itself, in a user namespace in which it
//! has every capability. A malicious package there would reach the kernel's interfaces for
//! administrators: devices and queues by netlink, packet filters' tables, IPsec, bridges, and the
//! modules behind them. Such a zygote is refused all of it, and so are its forks. The C library's
//! resolver works without netlink; `getifaddrs` fails. A landing can still bring up loopback.

use std::collections::BTreeMap;

use libc::c_long;

use super::is;
use super::program::{Case, Rule, Test};

/// From here on options of IPPROTO_IP belong to packet filters and load balancers (`IPT_BASE_CTL`
/// and above).
const TABLES: u32 = 64;

/// `IP6T_SO_SET_REPLACE` and `IP6T_SO_SET_ADD_COUNTERS`, whose numbers are `IP6T_SO_GET_INFO` and
/// `IP6T_SO_GET_ENTRIES` when read; other options of IPPROTO_IPV6 have numbers around them.
const TABLES_6: [i32; 2] = [64, 65];

/// `IP6T_SO_GET_REVISION_MATCH` and `IP6T_SO_GET_REVISION_TARGET`: they load modules.
const REVISIONS_6: [i32; 2] = [68, 69];

/// Requests of sockets (`SIOC…`): mask and value of those about addresses, flags and routes. The
/// next numbers belong to bridges, VLANs, tunnels, link parameters and drivers.
const REQUESTS: (u32, u32) = (0xffff_ff00, 0x8900);
const PLAIN_REQUESTS: (u32, u32) = (0xffff_ffc0, 0x8900);

/// Compares a socket's type without the flags above it.
fn type_is(kind: i32) -> Test {
    Test::Masked { mask: 0xf, value: kind.unsigned_abs() }
}

fn is_not(value: &i32) -> Test {
    Test::IsNot(value.unsigned_abs())
}

/// The sockets that `socket` and `socketpair` may make.
pub(super) fn socket_families(unix_sockets: bool, netlink: bool) -> (Rule, Rule) {
    // getaddrinfo and getifaddrs ask the kernel for addresses; no other netlink family (no
    // namespace stops AF_VSOCK).
    let mut sockets = Vec::new();
    if netlink {
        sockets.push(vec![(0, is(libc::AF_NETLINK)), (2, is(libc::NETLINK_ROUTE))]);
    }
    // TCP and UDP alone: other protocols load modules that no function needs. One test covers both
    // families: they differ by one bit.
    const BIT: i32 = libc::AF_INET ^ libc::AF_INET6;
    const _: () = assert!(BIT.count_ones() == 1 && libc::AF_INET & BIT == 0);
    let internet = Test::Masked { mask: !BIT.unsigned_abs(), value: libc::AF_INET.unsigned_abs() };
    for (kind, protocol) in
        [(libc::SOCK_STREAM, libc::IPPROTO_TCP), (libc::SOCK_DGRAM, libc::IPPROTO_UDP)]
    {
        for protocol in [0, protocol] {
            sockets.push(vec![(0, internet), (1, type_is(kind)), (2, is(protocol))]);
        }
    }
    // The kernel makes both sockets of a pair before it finds that their family has no pairs:
    // AF_UNIX only. Without a scope no datagrams, because such a socket could still be bound and
    // connected by an abstract name.
    let mut pairs = Vec::new();
    if unix_sockets {
        sockets.push(vec![(0, is(libc::AF_UNIX))]);
        pairs.push(vec![(0, is(libc::AF_UNIX))]);
    } else {
        for kind in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET] {
            pairs.push(vec![(0, is(libc::AF_UNIX)), (1, type_is(kind))]);
        }
    }
    (Rule::When(sockets), Rule::When(pairs))
}

/// Which options and requests a filter refuses.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketPolicy {
    /// Refuse programs (packet filters of sockets).
    pub(super) no_programs: bool,
    /// Refuse what only an administrator of the network may do: its maker is one.
    pub(super) administers: bool,
    /// Refuse what other sandboxes in a shared network could see of a socket.
    pub(super) shared: bool,
}

/// Memberships in multicast groups, joined, left, and by source (ip(7), ipv6(7)): a network lists
/// those of all its sockets (`RTM_GETMULTICAST`). In a network that reaches nothing they have no
/// use.
const MEMBERSHIPS: [i32; 11] = [
    libc::IP_ADD_MEMBERSHIP,
    libc::IP_DROP_MEMBERSHIP,
    libc::IP_ADD_SOURCE_MEMBERSHIP,
    libc::IP_DROP_SOURCE_MEMBERSHIP,
    IP_MSFILTER,
    MCAST_JOIN_GROUP,
    MCAST_JOIN_GROUP + 1,
    MCAST_JOIN_GROUP + 3,
    MCAST_JOIN_GROUP + 4,
    MCAST_JOIN_GROUP + 5,
    MCAST_JOIN_GROUP + 6,
];
const MEMBERSHIPS_6: [i32; 10] = [
    libc::IPV6_ADD_MEMBERSHIP,
    libc::IPV6_DROP_MEMBERSHIP,
    IPV6_JOIN_ANYCAST,
    IPV6_JOIN_ANYCAST + 1,
    MCAST_JOIN_GROUP,
    MCAST_JOIN_GROUP + 1,
    MCAST_JOIN_GROUP + 3,
    MCAST_JOIN_GROUP + 4,
    MCAST_JOIN_GROUP + 5,
    MCAST_JOIN_GROUP + 6,
];

/// linux/in.h; from the second on: leave group, block and unblock a source, join and leave by
/// source.
const IP_MSFILTER: i32 = 41;
const MCAST_JOIN_GROUP: i32 = 42;

/// linux/in6.h; the next number leaves.
const IPV6_JOIN_ANYCAST: i32 = 27;

/// Flow labels belong to a network, and a taken one is refused to others (ipv6-flowlabel:
/// `IPV6_FL_F_EXCL`).
const IPV6_FLOWLABEL_MGR: i32 = 32;

/// Restricts `setsockopt`, and for administrators of a network `getsockopt` and `ioctl`.
pub(super) fn keep_options(rules: &mut BTreeMap<c_long, Rule>, kept: SocketPolicy) {
    let SocketPolicy { no_programs, administers, shared } = kept;
    let (mut set, mut read) = (Vec::new(), Vec::new());
    if no_programs {
        set.push((libc::SOL_SOCKET, no_programs_of_sockets()));
    }
    if shared {
        set.push((libc::IPPROTO_IPV6, vec![is_not(&IPV6_FLOWLABEL_MGR)]));
    }
    if administers {
        let plain = Test::Masked { mask: !(TABLES - 1), value: 0 };
        let ipsec = [libc::IP_IPSEC_POLICY, libc::IP_XFRM_POLICY];
        set.push((libc::IPPROTO_IP, ipsec.iter().map(is_not).chain([plain]).collect()));
        let ipsec = [libc::IPV6_IPSEC_POLICY, libc::IPV6_XFRM_POLICY];
        set.push((libc::IPPROTO_IPV6, ipsec.iter().chain(&TABLES_6).map(is_not).collect()));
        read.push((libc::IPPROTO_IP, vec![plain]));
        read.push((libc::IPPROTO_IPV6, TABLES_6.iter().chain(&REVISIONS_6).map(is_not).collect()));
        let (mask, value) = REQUESTS;
        let of_others = vec![(1, Test::NotMasked { mask, value })];
        let (mask, value) = PLAIN_REQUESTS;
        let plain = vec![(1, Test::Masked { mask, value })];
        rules.insert(libc::SYS_ioctl, Rule::When(vec![of_others, plain]));
    }
    for (call, levels) in [(libc::SYS_setsockopt, set), (libc::SYS_getsockopt, read)] {
        if !levels.is_empty() {
            rules.insert(call, by_level(&levels));
        }
    }
    if shared && let Some(Rule::When(cases)) = rules.get(&libc::SYS_setsockopt) {
        let at = |level, options: &[i32]| -> Vec<Case> {
            options.iter().map(|option| vec![(1, is(level)), (2, is(*option))]).collect()
        };
        let mut ignored = at(libc::IPPROTO_IP, &MEMBERSHIPS);
        ignored.extend(at(libc::IPPROTO_IPV6, &MEMBERSHIPS_6));
        rules.insert(libc::SYS_setsockopt, Rule::IgnoredOrWhen(ignored, cases.clone()));
    }
}

/// Options that pass at these levels, where all tests hold; at all other levels every option
/// passes.
fn by_level(levels: &[(i32, Vec<Test>)]) -> Rule {
    let elsewhere: Case = levels.iter().map(|(level, _)| (1, is_not(level))).collect();
    let at = |(level, tests): &(i32, Vec<Test>)| -> Case {
        let tests = tests.iter().map(|test| (2, *test));
        std::iter::once((1, is(*level))).chain(tests).collect()
    };
    Rule::When(std::iter::once(elsewhere).chain(levels.iter().map(at)).collect())
}

/// No option that gives a socket a program: the kernel compiles it into memory that is limited for
/// the whole host and charged to no cgroup. When that is used up, filters like this one cannot be
/// installed any more.
fn no_programs_of_sockets() -> Vec<Test> {
    let programs = [
        libc::SO_ATTACH_FILTER,
        libc::SO_ATTACH_BPF,
        libc::SO_ATTACH_REUSEPORT_CBPF,
        libc::SO_ATTACH_REUSEPORT_EBPF,
    ];
    programs.iter().map(is_not).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(rules: &BTreeMap<c_long, Rule>, call: c_long, level: u32, option: u32) -> bool {
        let holds = |(argument, test): &(u32, Test)| {
            let value = if *argument == 1 { level } else { option };
            match *test {
                Test::Is(wanted) => value == wanted,
                Test::IsNot(unwanted) => value != unwanted,
                Test::Masked { mask, value: wanted } => value & mask == wanted,
                Test::NotMasked { mask, value: unwanted } => value & mask != unwanted,
                Test::Null => value == 0,
            }
        };
        match rules.get(&call) {
            None | Some(Rule::Always) => true,
            Some(Rule::IgnoredOrWhen(ignored, _))
                if ignored.iter().any(|case| case.iter().all(holds)) =>
            {
                false
            }
            Some(Rule::When(cases) | Rule::WhenElse(cases, _) | Rule::IgnoredOrWhen(_, cases)) => {
                cases.iter().any(|case| case.iter().all(holds))
            }
        }
    }

    #[test]
    fn a_maker_of_networks_has_the_options_of_plain_sockets_and_no_tables() {
        let mut rules = BTreeMap::new();
        keep_options(
            &mut rules,
            SocketPolicy { no_programs: true, administers: true, shared: false },
        );
        let (set, read, ioctl) = (libc::SYS_setsockopt, libc::SYS_getsockopt, libc::SYS_ioctl);
        // SO_REUSEADDR, IP_TOS, IP_MULTICAST_ALL, IPV6_V6ONLY, IPV6_TCLASS, TCP_NODELAY.
        for (level, option) in [(1, 2), (0, 1), (0, 49), (41, 26), (41, 67), (6, 1)] {
            assert!(passes(&rules, set, level, option), "{level} {option}");
            assert!(passes(&rules, read, level, option), "{level} {option}");
        }
        // SO_ATTACH_FILTER, IP_XFRM_POLICY, IPT_SO_SET_REPLACE, ARPT_, EBT_, IP_VS_SO_SET_ADD,
        // IPV6_XFRM_POLICY, IP6T_SO_SET_REPLACE.
        for (level, option) in
            [(1, 26), (0, 17), (0, 64), (0, 96), (0, 128), (0, 1154), (41, 35), (41, 64)]
        {
            assert!(!passes(&rules, set, level, option), "{level} {option}");
        }
        for (level, option) in [(0, 64), (0, 66), (0, 128), (41, 64), (41, 65), (41, 68), (41, 69)]
        {
            assert!(!passes(&rules, read, level, option), "{level} {option}");
        }
        // TCGETS, FIONREAD, FICLONE, SIOCGIFCONF, SIOCSIFFLAGS, SIOCGIFINDEX.
        for request in [0x5401, 0x541b, 0x4004_9409, 0x8912, 0x8914, 0x8933] {
            assert!(passes(&rules, ioctl, request, 0), "{request:x}");
        }
        // SIOCSIFBR, SIOCSIFTXQLEN, SIOCETHTOOL, SIOCSIFVLAN, SIOCBRADDBR, SIOCDEVPRIVATE.
        for request in [0x8941, 0x8943, 0x8946, 0x8983, 0x89a0, 0x89f0] {
            assert!(!passes(&rules, ioctl, request, 0), "{request:x}");
        }
    }

    #[test]
    fn a_sandbox_that_makes_no_network_is_refused_programs_only() {
        let mut rules = BTreeMap::new();
        let none = SocketPolicy { no_programs: false, administers: false, shared: false };
        keep_options(&mut rules, SocketPolicy { no_programs: true, ..none });
        assert_eq!(rules.len(), 1);
        assert!(!passes(&rules, libc::SYS_setsockopt, 1, 26));
        assert!(passes(&rules, libc::SYS_setsockopt, 0, 64));
        keep_options(&mut BTreeMap::new(), none);
    }

    #[test]
    fn where_sandboxes_share_a_network_none_joins_a_group_or_takes_a_label() {
        let mut rules = BTreeMap::new();
        keep_options(
            &mut rules,
            SocketPolicy { no_programs: true, administers: false, shared: true },
        );
        let set = libc::SYS_setsockopt;
        for (level, options) in [(0, &MEMBERSHIPS[..]), (41, &MEMBERSHIPS_6), (41, &[32])] {
            for option in options {
                assert!(!passes(&rules, set, level, option.unsigned_abs()), "{level} {option}");
            }
        }
        // SO_REUSEADDR, IP_TOS, IP_MULTICAST_TTL, IP_MULTICAST_LOOP, IPV6_V6ONLY,
        // IPV6_MULTICAST_HOPS, TCP_NODELAY.
        for (level, option) in [(1, 2), (0, 1), (0, 33), (0, 34), (41, 26), (41, 18), (6, 1)] {
            assert!(passes(&rules, set, level, option), "{level} {option}");
        }
        let Some(Rule::IgnoredOrWhen(ignored, _)) = rules.get(&set) else { panic!("{rules:?}") };
        assert_eq!(ignored.len(), MEMBERSHIPS.len() + MEMBERSHIPS_6.len());
    }
}
