//! Whose a listener of this machine is, as the kernel says: any user may listen where a worker listens by default.

use std::io;
use std::net::Ipv4Addr;

/// The state of a socket that listens (`TCP_LISTEN`, linux/net/tcp_states.h).
const LISTENS: &str = "0A";

/// The users who listen where a connection to a port of 127.0.0.1 ends, each once.
pub(super) fn owners(port: u16) -> io::Result<Vec<u32>> {
    let mut owners = of(&std::fs::read_to_string("/proc/net/tcp")?, port);
    match std::fs::read_to_string("/proc/net/tcp6") {
        Ok(table) => owners.extend(of(&table, port)),
        // A kernel without IPv6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    owners.sort_unstable();
    owners.dedup();
    Ok(owners)
}

/// The same, of a table of proc(5): `sl local_address rem_address st queues timer retransmits uid …`.
fn of(table: &str, port: u16) -> Vec<u32> {
    let owner = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (address, its_port) = words.nth(1)?.split_once(':')?;
        let state = words.nth(1)?;
        let here = u16::from_str_radix(its_port, 16) == Ok(port) && is_met(address);
        (here && state == LISTENS).then(|| words.nth(3)?.parse().ok())?
    };
    table.lines().filter_map(owner).collect()
}

/// Whether a listener at that address gets what is meant for 127.0.0.1: also one of IPv6 may. Words of an address stand in the
/// machine's byte order.
fn is_met(address: &str) -> bool {
    let words: Option<Vec<u32>> = (0..address.len())
        .step_by(8)
        .map(|at| u32::from_str_radix(address.get(at..at + 8)?, 16).ok().map(u32::to_be))
        .collect();
    let own = [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED].map(u32::from);
    match words.as_deref() {
        Some([word]) => own.contains(word),
        Some([0, 0, 0 | 0xffff, word]) => own.contains(word),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn whoever_may_get_what_is_meant_for_the_port_is_among_its_owners() {
        let line = |address: u32, port: &str, state: &str, uid: &str| {
            let address = u32::from_be(address);
            format!(
                "   0: {address:08X}:{port} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  {uid}        0 26 1\n"
            )
        };
        let own = u32::from(Ipv4Addr::LOCALHOST);
        assert_eq!(of(&line(own, "2116", "0A", "1001"), 8470), [1001]);
        assert_eq!(of(&line(0, "2116", "0A", "1002"), 8470), [1002]);
        for other in [
            line(own, "2117", "0A", "1"),
            line(own, "2116", "01", "1"),
            line(own + 1, "2116", "0A", "1"),
        ] {
            assert_eq!(of(&other, 8470), [0; 0], "{other}");
        }
        let six = |address: &str| {
            format!("   0: {address}:2116 {:032}:0000 0A 0:0 00:0 0  1003        0 26 1\n", 0)
        };
        let mapped = format!("{:016}{:08X}{:08X}", 0, u32::from_be(0xffff), u32::from_be(own));
        assert_eq!(of(&six(&mapped), 8470), [1003]);
        assert_eq!(of(&six(&"0".repeat(32)), 8470), [1003]);
        // ::1 is another address.
        assert_eq!(of(&six(&format!("{:024}{:08X}", 0, u32::from_be(1))), 8470), [0; 0]);
    }

    #[test]
    fn the_kernel_says_whose_our_own_listener_is() {
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
            // A kernel without IPv6.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let port = listener.local_addr().unwrap().port();
            let own = rustix::process::geteuid().as_raw();
            assert_eq!(owners(port).unwrap(), [own], "{address}");
        }
    }
}
