//! Processes to signal. By pidfd, and only after a look at who it is: numbers are used again, and not only by us.

use std::fs;
use std::os::fd::OwnedFd;

use e2e::Site;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process that may be gone by now.
#[derive(Debug)]
pub(crate) struct Victim(Option<OwnedFd>);

impl Victim {
    /// A process that cannot have been replaced by another: a child of ours, or of one.
    pub(crate) fn of(pid: u32) -> Self {
        let pid = Pid::from_raw(pid.cast_signed());
        Self(pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()))
    }

    /// A process that still is a sandbox of this site's.
    fn of_sandbox(pid: u32, site: &Site) -> Self {
        let victim = Self::of(pid);
        if sandboxes(site).contains(&pid) { victim } else { Self(None) }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(process) = &self.0 {
            // It may have ended.
            let _ = pidfd_send_signal(process, signal);
        }
    }
}

/// Which of the sandboxes' processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Zygote,
    /// The first process of an instance: running, paused, or a fork that waits for code.
    Instance,
    /// Of micro-VMs: a reference machine and all its clones.
    Monitor,
}

/// The proxy of functions with a network, while one runs: nobody else is in its group.
pub(crate) fn proxy(site: &Site) -> Option<Victim> {
    let groups = site.cgroups().into_iter().map(|dir| dir.join("egress"));
    let files =
        groups.flat_map(|dir| ["cgroup.procs", "self/cgroup.procs"].map(|file| dir.join(file)));
    let listed = files.filter_map(|file| fs::read_to_string(file).ok());
    let pid =
        listed.flat_map(|pids| pids.lines().filter_map(|pid| pid.parse().ok()).next()).next()?;
    let victim = Victim::of(pid);
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    (name.trim() == "wool-egress").then_some(victim)
}

/// All sandboxed processes.
pub(crate) fn sandboxes(site: &Site) -> Vec<u32> {
    let mut pids = site.sandboxed();
    pids.sort_unstable();
    pids
}

/// One of them, as `choose` says among how many.
pub(crate) fn choose(
    site: &Site,
    kind: Kind,
    choose: impl FnOnce(usize) -> usize,
) -> Option<Victim> {
    let of_kind: Vec<u32> =
        sandboxes(site).into_iter().filter(|pid| kind_of(*pid) == Some(kind)).collect();
    let chosen = *of_kind.get(choose(of_kind.len().max(1)))?;
    Some(Victim::of_sandbox(chosen, site))
}

/// By its name, and by its numbers: a zygote has one here and one among the sandboxes, an instance a third in a namespace of its own.
fn kind_of(pid: u32) -> Option<Kind> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    match *numbers.split_whitespace().collect::<Vec<_>>() {
        [_, _] if name.trim() == "wool-vmm" => Some(Kind::Monitor),
        [_, _] => Some(Kind::Zygote),
        [_, _, "1"] => Some(Kind::Instance),
        _ => None,
    }
}
