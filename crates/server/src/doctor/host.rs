//! What the kernel of this machine offers, and what follows from it.

use sys::probe::{CgroupLayout, Host, Kernel, Kvm, Surroundings};

use super::Finding;

/// Oldest kernel that is supported.
const OLDEST: Kernel = Kernel(5, 15);

/// The first kernel whose mount trees can be put together without being attached.
const DETACHED: Kernel = Kernel(6, 15);

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
    let layout = match host.cgroups {
        CgroupLayout::V1 => "version 1",
        CgroupLayout::Hybrid => "version 1 beside an empty version 2",
        CgroupLayout::V2 => "version 2",
        CgroupLayout::None => {
            return Finding::degraded(
                what,
                "none",
                "no limit is enforced and nothing paused: mount the cgroup file systems",
            );
        }
    };
    if host.missing_controllers.is_empty() {
        return Finding::ok(what, layout);
    }
    let lacking = host.missing_controllers.join(", ");
    let advice = "limits of these are not enforced (without freezer: instances are not paused); have the controllers delegated, for example by the systemd unit";
    Finding::degraded(what, format!("{layout}, without {lacking}"), advice)
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
        let advice = "switch Landlock on: add it to the kernel's lsm= parameter; without it, siblings share their abstract sockets";
        return Finding::degraded(what, "seccomp, without Landlock", advice);
    }
    let modules = match host.security_modules.as_slice() {
        [] => String::new(),
        modules => format!("; security modules: {}", modules.join(", ")),
    };
    Finding::ok(what, format!("seccomp, Landlock {}{modules}", host.landlock))
}

pub(super) fn kvm(host: &Host) -> Finding {
    let what = "KVM";
    match host.kvm {
        Kvm::Open => Finding::ok(what, "/dev/kvm can be used"),
        Kvm::Closed => Finding::degraded(
            what,
            "/dev/kvm is there and not for this user",
            "functions run in containers; for micro-VMs join the group kvm",
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
    fn a_kernel_is_judged_by_its_number() {
        let judged = |kernel| super::kernel(&Host { kernel, ..Host::probe() }).level;
        assert_eq!(judged(Kernel(5, 10)), Level::Missing);
        assert_eq!(judged(Kernel(5, 15)), Level::Degraded);
        assert_eq!(judged(Kernel(6, 1)), Level::Degraded);
        assert_eq!(judged(Kernel(6, 18)), Level::Ok);
        assert_eq!(judged(Kernel(0, 0)), Level::Missing);
    }

    #[test]
    fn a_controller_that_is_not_there_is_never_passed_over() {
        let judged = |missing_controllers| {
            cgroups(&Host { cgroups: CgroupLayout::V2, missing_controllers, ..Host::probe() })
        };
        assert_eq!(judged(vec![]).level, Level::Ok);
        let lacking = judged(vec!["memory"]);
        assert_eq!(lacking.level, Level::Degraded);
        assert!(lacking.found.contains("memory") && lacking.advice.contains("not enforced"));
    }
}
