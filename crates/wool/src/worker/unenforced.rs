//! What is not enforced on this host, though a function may count on it.
//!
//! Asked twice: by a worker, of its warden, which has tried; by `wool doctor`, of what can be seen without trying. A worker
//! with `strict` does not start where there is anything; else each deploy's answer names it.

use container::{Isolation, Layout};
use sys::probe::{CgroupLayout, Host};

use platform::limits::Unenforced;

/// Landlock's first version that has rules for TCP ports: Linux 6.7.
pub(crate) const LANDLOCK_PORTS: u32 = 4;

/// What this host can enforce.
#[derive(Clone, Copy, Debug)]
pub struct Enforcement {
    /// Sandboxes have cgroups for memory, processes and pausing.
    groups: bool,
    /// And for processors.
    cpu: bool,
    /// Its version; 0 where it is off.
    landlock: u32,
    isolation: Isolation,
}

impl Enforcement {
    /// As the warden has them.
    #[must_use]
    pub fn of_warden(layout: Layout, cpu: bool, probed: &Host, isolation: Isolation) -> Self {
        Self { groups: layout != Layout::None, cpu, landlock: probed.landlock, isolation }
    }

    /// As far as can be seen.
    #[must_use]
    pub fn probed(host: &Host, isolation: Isolation) -> Self {
        let groups = !matches!(host.cgroups, CgroupLayout::Closed | CgroupLayout::None);
        Self { groups, cpu: groups && host.cpu, landlock: host.landlock, isolation }
    }

    /// What is missing.
    #[must_use]
    pub fn unenforced(self) -> Vec<Unenforced> {
        const NO_GROUPS: &str =
            "no cgroups that can be used: `wool doctor` says what is in the way";
        const NO_CPU: &str =
            "no cgroup controller `cpu`: have it mounted, or delegated to the worker's unit";
        const NO_LANDLOCK: &str = "Landlock is off: add it to the kernel's lsm= parameter";
        const NO_PORTS: &str = "this kernel's Landlock knows no ports: boot Linux 6.7 or newer";
        let ports = self.landlock == 0 || self.landlock >= LANDLOCK_PORTS;
        let means = [
            (self.groups, "memory", NO_GROUPS),
            (self.groups, "processes and threads", NO_GROUPS),
            (self.groups, "pausing of idle instances", NO_GROUPS),
            (self.cpu, "processors", NO_CPU),
            (self.landlock > 0, "Landlock, the second line before sockets", NO_LANDLOCK),
            (
                ports,
                "Landlock's rules for TCP, the second line before connecting and listening",
                NO_PORTS,
            ),
        ];
        let missing = means.into_iter().filter(|(has, ..)| !has);
        let of_host = missing.map(|(_, what, because)| (what, because));
        let switched_off = self
            .isolation
            .weaker()
            .into_iter()
            .map(|what| (what, "the setting `internals.container_recipe` says so"));
        of_host
            .chain(switched_off)
            .map(|(what, because)| Unenforced {
                what: what.to_owned(),
                because: because.to_owned(),
            })
            .collect()
    }
}

/// All of them as one text.
#[must_use]
pub fn listed(missing: &[Unenforced]) -> String {
    missing.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(groups: bool, cpu: bool, landlock: u32, isolation: &str) -> Vec<String> {
        let isolation = isolation.parse().unwrap();
        let missing = Enforcement { groups, cpu, landlock, isolation }.unenforced();
        missing.into_iter().map(|one| one.what).collect()
    }

    #[test]
    fn each_limit_and_defence_that_is_missing_is_named() {
        assert_eq!(missing(true, true, 4, "lean"), [""; 0]);
        assert_eq!(missing(true, false, 7, "lean"), ["processors"]);
        let none = missing(false, false, 0, "lean,own=net");
        assert_eq!(none.len(), 6, "{none:?}");
        for what in [
            "memory",
            "processes",
            "pausing",
            "processors",
            "Landlock",
            "sandboxes have a loopback",
        ] {
            assert!(none.iter().any(|one| one.starts_with(what)), "{what}: {none:?}");
        }
    }

    #[test]
    fn a_landlock_without_rules_for_tcp_is_not_passed_off_as_one_with_them() {
        for older in 1..=3 {
            let missing = missing(true, true, older, "lean");
            assert!(matches!(&missing[..], [one] if one.starts_with("Landlock's rules for TCP")));
        }
    }

    #[test]
    fn a_look_tells_the_same_as_the_warden() {
        let host = Host { cgroups: CgroupLayout::Closed, cpu: true, ..Host::probe() };
        let seen = Enforcement::probed(&host, Isolation::LEAN).unenforced();
        assert_eq!(
            seen,
            Enforcement::of_warden(Layout::None, false, &host, Isolation::LEAN).unenforced()
        );
    }
}
