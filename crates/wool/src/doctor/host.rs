//! What the kernel of this machine offers, and what follows from it.

use sys::probe::{CgroupLayout, Host, Kernel, Kvm, Surroundings};

use super::Finding;
use crate::worker::unenforced::LANDLOCK_PORTS;

/// Oldest kernel that is supported.
const OLDEST: Kernel = Kernel(5, 15);

/// The first kernel whose mount trees can be put together without being attached.
pub(super) const DETACHED: Kernel = Kernel(6, 15);

/// Fewer user namespaces than this are used up by instances.
const NAMESPACES: u64 = 4096;

pub(super) fn kernel(host: &Host) -> Finding {
    let Kernel(major, minor) = host.kernel;
    let found = format!("Linux {major}.{minor}");
    if host.kernel < OLDEST {
        Finding::missing("kernel", found, format!("boot Linux {}.{} or newer", OLDEST.0, OLDEST.1))
    } else if host.kernel < DETACHED {
        let advice = format!(
            "nothing has to be done: root file systems are staged instead of detached, some microseconds slower than on Linux {}.{}",
            DETACHED.0, DETACHED.1
        );
        Finding::degraded("kernel", found, advice)
    } else {
        Finding::ok("kernel", found)
    }
}

pub(super) fn surroundings(host: &Host) -> Finding {
    let what = "surroundings";
    match &host.surroundings {
        Surroundings::Machine => Finding::ok(what, "a machine of its own"),
        Surroundings::Wsl2 => Finding::ok(what, "WSL 2"),
        Surroundings::Container(name) => Finding::degraded(
            what,
            format!("inside a container ({name})"),
            "sandboxes need mounts, namespaces and cgroups: start the container privileged, or run on the machine itself",
        ),
    }
}

pub(super) fn user_namespaces(host: &Host) -> Finding {
    let what = "user namespaces";
    let found = format!("{} allowed", host.user_namespaces);
    match host.user_namespaces {
        0 => Finding::missing(what, "none allowed", "sysctl -w user.max_user_namespaces=65536"),
        few if few < NAMESPACES => Finding::degraded(
            what,
            found,
            "each instance takes one: sysctl -w user.max_user_namespaces=65536",
        ),
        // What restricts ordinary users does not concern the warden, which is root.
        _ if host.user_namespace_restrictions.is_empty() => Finding::ok(what, found),
        _ => Finding::ok(
            what,
            format!("{found}; for root only ({})", host.user_namespace_restrictions.join(", ")),
        ),
    }
}

pub(super) fn cgroups(host: &Host) -> Finding {
    let what = "cgroups";
    // All or nothing: a sandbox with one limit out of two would be a promise that is not kept.
    let without = "no limit of memory or processes is enforced and nothing is paused";
    match &host.cgroups {
        CgroupLayout::V1 => Finding::ok(what, "version 1"),
        CgroupLayout::Hybrid => Finding::ok(what, "version 1 beside an empty version 2"),
        CgroupLayout::V2Top => Finding::ok(what, "version 2, at the top of the hierarchy"),
        CgroupLayout::V2Delegated(group) => {
            Finding::ok(what, format!("version 2, delegated: below {}", group.display()))
        }
        CgroupLayout::Closed if host.missing_controllers.is_empty() => Finding::degraded(
            what,
            "there, and none can be made: others' processes, or a read-only mount, are in the way",
            format!(
                "{without}: start the worker by its systemd unit, or in a scope of its own (systemd-run --scope -p Delegate=yes)"
            ),
        ),
        CgroupLayout::Closed => Finding::degraded(
            what,
            format!("not usable: {} missing", host.missing_controllers.join(", ")),
            format!(
                "{without}: have the controllers delegated, for example by the systemd unit, or boot with cgroup_enable=memory"
            ),
        ),
        CgroupLayout::None => {
            Finding::degraded(what, "none", format!("{without}: mount the cgroup file systems"))
        }
    }
}

pub(super) fn confinement(host: &Host) -> Finding {
    let what = "confinement";
    if !host.seccomp {
        return Finding::missing(
            what,
            "no seccomp filters",
            "boot a kernel with CONFIG_SECCOMP_FILTER",
        );
    }
    if host.landlock == 0 {
        let advice = "switch Landlock on: add it to the kernel's lsm= parameter; without it, functions have no Unix sockets but pairs, and those in the host's network listen on TCP ports";
        return Finding::degraded(what, "seccomp, without Landlock", advice);
    }
    if host.landlock < LANDLOCK_PORTS {
        return Finding::degraded(
            what,
            format!("seccomp, Landlock {} without rules for TCP", host.landlock),
            "boot Linux 6.7 or newer; without them, nothing stands behind the network namespace",
        );
    }
    let modules = match host.security_modules.as_slice() {
        [] => String::new(),
        modules => format!("; security modules: {}", modules.join(", ")),
    };
    Finding::ok(what, format!("seccomp, Landlock {}{modules}", host.landlock))
}

/// `has_machines`: there is a monitor for this processor.
pub(super) fn kvm(found: Kvm, has_machines: bool) -> Finding {
    let what = "KVM";
    if !has_machines {
        return Finding::degraded(
            what,
            "micro-VMs need an x86-64 processor",
            "functions run in containers",
        );
    }
    match found {
        Kvm::Open => Finding::ok(what, "/dev/kvm can be used"),
        Kvm::Closed => Finding::degraded(
            what,
            "/dev/kvm is there and not for this user",
            "where root can open it, functions have micro-VMs all the same; to start any as this user join the group kvm",
        ),
        Kvm::Foreign => Finding::degraded(
            what,
            "/dev/kvm is not KVM",
            "functions run in containers; for micro-VMs have udev make /dev/kvm anew, the device 10:232",
        ),
        Kvm::Missing => Finding::degraded(
            what,
            "no /dev/kvm",
            "functions run in containers; micro-VMs need virtualisation switched on",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn kvm_is_of_no_use_where_there_is_no_monitor_for_the_processor() {
        assert_eq!(kvm(Kvm::Open, true).level, Level::Ok);
        let elsewhere = kvm(Kvm::Open, false);
        assert_eq!(elsewhere.level, Level::Degraded);
        assert!(elsewhere.found.contains("x86-64"), "{elsewhere:?}");
    }

    #[test]
    fn a_kernel_is_judged_by_its_number() {
        let judged = |kernel| super::kernel(&Host { kernel, ..Host::probe() }).level;
        assert_eq!(judged(Kernel(5, 10)), Level::Missing);
        assert_eq!(judged(Kernel(5, 15)), Level::Degraded);
        assert_eq!(judged(Kernel(6, 1)), Level::Degraded);
        assert_eq!(judged(Kernel(6, 18)), Level::Ok);
        assert_eq!(judged(Kernel(0, 0)), Level::Missing);
    }

    #[test]
    fn a_landlock_is_judged_by_what_its_version_can() {
        let judged = |landlock| confinement(&Host { landlock, seccomp: true, ..Host::probe() });
        for older in [1, 3] {
            let judged = judged(older);
            assert_eq!(judged.level, Level::Degraded);
            assert!(judged.found.contains("without rules for TCP"), "{judged:?}");
        }
        assert_eq!((judged(0).level, judged(4).level), (Level::Degraded, Level::Ok));
    }

    #[test]
    fn a_limit_that_cannot_be_enforced_is_never_passed_over() {
        let judged = |layout, missing_controllers| {
            cgroups(&Host { cgroups: layout, missing_controllers, ..Host::probe() })
        };
        for there in [CgroupLayout::V2Top, CgroupLayout::V2Delegated("/unit".into())] {
            assert_eq!(judged(there, vec![]).level, Level::Ok);
        }
        for missing in [vec![], vec!["memory"]] {
            let closed = judged(CgroupLayout::Closed, missing.clone());
            assert_eq!(closed.level, Level::Degraded);
            assert!(missing.iter().all(|name| closed.found.contains(name)), "{closed:?}");
            assert!(closed.advice.contains("is enforced"), "{closed:?}");
        }
    }
}
