//! The system calls that Python and its libraries may make: an allow-list, with a reason for each
//! group.
//!
//! A root zygote installs it once, before Python is executed, and every fork inherits it.
//! Inheriting costs nothing, and the kernel answers unconditionally allowed calls from a bitmap.
//! Every other call is ENOSYS, as on a kernel that lacks it, so that libraries take their
//! fallbacks. [`refused`] says what the refused calls would reveal or allow.
//! `docs/developer/system-calls.md` is written from these lists.

pub mod allowed;
mod file_systems;
mod network;
pub mod program;
pub mod refused;

use std::collections::BTreeMap;

use libc::c_long;

use crate::defence::Defence;
use crate::isolation::{Isolation, Namespaces};
use crate::limits::Network;
use program::{Case, ForeignAbi, Program, Rule, Test, compile};

/// A system call's name, as libc has it (`SYS_read`), and its number on this architecture.
pub type Call = (&'static str, c_long);

macro_rules! calls {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name)),*] };
}
use calls;

/// Which kind of sandbox a filter is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Forks into slots: may enter a user namespace, make a PID namespace, chroot.
    Zygote,
    /// May do none of that.
    Instance,
}

/// Flags that `clone` refuses: all that make a namespace.
const NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET)
    .unsigned_abs();

/// Also refused: a child of the caller's own parent. A root zygote's parent is the warden, which
/// would never wait for it.
const PARENT: u32 = libc::CLONE_PARENT.unsigned_abs();

/// The filters of all roles and networks.
#[derive(Debug)]
pub(crate) struct Filters {
    zygotes: OfNetworks,
    instances: OfNetworks,
}

#[derive(Debug)]
struct OfNetworks {
    none: Program,
    egress: Program,
    host: Program,
}

impl Filters {
    /// Builds them: see [`build`].
    pub(crate) fn build(unix_sockets: bool, isolation: Isolation) -> Self {
        let of_role = |role| {
            let of = |network| build(role, unix_sockets, isolation, network);
            OfNetworks {
                none: of(Network::None),
                egress: of(Network::Egress),
                host: of(Network::Host),
            }
        };
        Self { zygotes: of_role(Role::Zygote), instances: of_role(Role::Instance) }
    }

    /// The filter of one role and network.
    pub(crate) fn of(&self, role: Role, network: Network) -> &Program {
        let of_role = match role {
            Role::Zygote => &self.zygotes,
            Role::Instance => &self.instances,
        };
        match network {
            Network::None => &of_role.none,
            Network::Egress => &of_role.egress,
            Network::Host => &of_role.host,
        }
    }
}

/// Builds the filter. `unix_sockets` is false where abstract sockets have no Landlock scope (before
/// Linux 6.12): all sandboxes of a network class share one network namespace, and with it the
/// abstract names.
#[must_use]
pub fn build(role: Role, unix_sockets: bool, isolation: Isolation, network: Network) -> Program {
    let mut rules: BTreeMap<c_long, Rule> = BTreeMap::new();
    for (_, number) in allowed::GROUPS.iter().flat_map(|group| group.calls) {
        rules.insert(*number, Rule::Always);
    }
    if network == Network::Host {
        // `listen` gives a socket a port if it has none, and Landlock's rules are only about
        // explicit ports.
        rules.remove(&libc::SYS_listen);
    }
    rules.insert(libc::SYS_clone, clone_flags(isolation));
    let own = |instance| network.own(instance, isolation.own);
    // The maker of a network namespace has every capability there.
    let administers = role == Role::Zygote
        && own(true).has(Namespaces::NETWORK)
        && isolation.has(Defence::FilterNetworkAdmin);
    let (sockets, pairs) = network::socket_families(unix_sockets, !administers);
    rules.insert(libc::SYS_socket, sockets);
    rules.insert(libc::SYS_socketpair, pairs);
    rules.insert(libc::SYS_fcntl, requests_of_files(isolation));
    rules.insert(libc::SYS_fadvise64, advice_on_files(isolation));
    let kept = network::SocketPolicy {
        no_programs: isolation.has(Defence::FilterPrograms),
        administers,
        shared: network == Network::None
            && !own(true).has(Namespaces::NETWORK)
            && isolation.has(Defence::FilterMemberships),
    };
    network::keep_options(&mut rules, kept);
    if isolation.has(Defence::FilterFileSystems) {
        file_systems::keep_requests(&mut rules);
    }
    refuse_filters(&mut rules, role, isolation);
    keep_options_of_processes(&mut rules, isolation);
    if isolation.has(Defence::LimitCore) {
        keep_core_limit(&mut rules);
    }
    if role == Role::Zygote {
        landing(&mut rules, own(false), own(true));
    }
    for refusal in refused::REFUSALS.iter().filter(|refusal| !isolation.has(refusal.defence)) {
        rules.extend(refusal.calls.iter().map(|(_, number)| (*number, Rule::Always)));
    }
    let foreign = match isolation.has(Defence::FilterArchitecture) {
        true => ForeignAbi::Killed,
        false => ForeignAbi::Allowed,
    };
    compile(&rules, foreign)
}

fn is(value: i32) -> Test {
    Test::Is(value.unsigned_abs())
}

/// dnotify sees other sandboxes' opens of shared files, as inotify does. A hint of the lifetime of
/// an inode's data stays with the inode and is readable by all who open it; before Linux 6.9 any
/// descriptor could set it.
fn requests_of_files(isolation: Isolation) -> Rule {
    let refused =
        [(Defence::FilterNotify, libc::F_NOTIFY), (Defence::FilterFileSystems, F_SET_RW_HINT)];
    let refused = refused.into_iter().filter(|(defence, _)| isolation.has(*defence));
    let tests: Case =
        refused.map(|(_, request)| (1, Test::IsNot(request.unsigned_abs()))).collect();
    if tests.is_empty() { Rule::Always } else { Rule::When(vec![tests]) }
}

/// `F_LINUX_SPECIFIC_BASE + 12` (linux/fcntl.h).
const F_SET_RW_HINT: i32 = 1036;

/// Cookies of core scheduling leave the other threads of a core idle while one runs
/// (core-scheduling.rst), also those of other sandboxes. Merged pages reveal by the time of a write
/// whether another sandbox has the same page (ksm.rst).
const SHARED_BY_PROCESSES: [i32; 2] = [PR_SCHED_CORE, PR_SET_MEMORY_MERGE];

/// Linux 5.14 (linux/prctl.h).
const PR_SCHED_CORE: i32 = 62;

/// Linux 6.4 (linux/prctl.h).
const PR_SET_MEMORY_MERGE: i32 = 67;

fn keep_options_of_processes(rules: &mut BTreeMap<c_long, Rule>, isolation: Isolation) {
    rules.insert(libc::SYS_madvise, Rule::Always);
    if !isolation.has(Defence::FilterProcessOptions) {
        return;
    }
    let mut tests: Case = match rules.get(&libc::SYS_prctl) {
        Some(Rule::When(cases)) => cases.concat(),
        _ => Vec::new(),
    };
    tests.extend(SHARED_BY_PROCESSES.map(|option| (0, Test::IsNot(option.unsigned_abs()))));
    rules.insert(libc::SYS_prctl, Rule::When(vec![tests]));
    rules.insert(libc::SYS_madvise, unmerged());
}

/// Any advice on memory except to merge its pages with others' (MADV_MERGEABLE), which is
/// PR_SET_MEMORY_MERGE for one range: EINVAL, as on a kernel without merging.
#[must_use]
pub fn unmerged() -> Rule {
    let other = Test::IsNot(libc::MADV_MERGEABLE.unsigned_abs());
    Rule::WhenElse(vec![vec![(2, other)]], libc::EINVAL)
}

/// Files of layers are shared, and so are their pages in memory. Any reader could have them dropped
/// (`invalidate_mapping_pages` asks for no permission), and other sandboxes' starts would wait for
/// the disk.
fn advice_on_files(isolation: Isolation) -> Rule {
    if !isolation.has(Defence::FilterPageCache) {
        return Rule::Always;
    }
    let other = Test::IsNot(libc::POSIX_FADV_DONTNEED.unsigned_abs());
    Rule::WhenElse(vec![vec![(3, other)]], 0)
}

/// The limit on core files stays at 1: a host that pipes them to a program obeys 1 and not 0
/// (core(5)). A program that sets it, as many do before they start a child, is told that it has:
/// there is no core file either way.
fn keep_core_limit(rules: &mut BTreeMap<c_long, Rule>) {
    let other = Test::IsNot(libc::RLIMIT_CORE);
    rules.insert(libc::SYS_setrlimit, Rule::WhenElse(vec![vec![(0, other)]], 0));
    let read = vec![(2, Test::Null)];
    rules.insert(libc::SYS_prlimit64, Rule::WhenElse(vec![vec![(1, other)], read], 0));
}

/// Filters for system calls are programs too, which the kernel compiles into the same memory: one
/// sandbox with all its processes could take tens of megabytes. Only a zygote installs filters, for
/// its forks (landing.c); those refuse all further ones.
fn refuse_filters(rules: &mut BTreeMap<c_long, Rule>, role: Role, isolation: Isolation) {
    if !isolation.has(Defence::FilterPrograms) {
        rules.insert(libc::SYS_seccomp, Rule::Always);
        return;
    }
    let other = Test::IsNot(libc::PR_SET_SECCOMP.unsigned_abs());
    rules.insert(libc::SYS_prctl, Rule::When(vec![vec![(0, other)]]));
    if role == Role::Zygote {
        let stacks = vec![(0, Test::Is(libc::SECCOMP_SET_MODE_FILTER)), (1, Test::Is(0))];
        rules.insert(libc::SYS_seccomp, Rule::When(vec![stacks]));
    }
}

/// A filter sees these flags; it could not see clone3's.
fn clone_flags(isolation: Isolation) -> Rule {
    let refused = |defence, flags| if isolation.has(defence) { flags } else { 0 };
    let mask = refused(Defence::FilterNamespaces, NAMESPACES)
        | refused(Defence::FilterCloneParent, PARENT);
    Rule::When(vec![vec![(0, Test::Masked { mask, value: 0 })]])
}

/// Calls that a zygote needs to land its forks: the namespaces of further zygotes and of instances.
fn landing(rules: &mut BTreeMap<c_long, Rule>, zygotes: Namespaces, instances: Namespaces) {
    // Not by pidfd: that takes a process's namespaces, whatever the flags of the slot's own.
    rules.insert(libc::SYS_setns, Rule::When(vec![vec![(1, is(libc::CLONE_NEWUSER))]]));
    // Exactly what an instance's landing makes, and what a further zygote's makes.
    let mut unshared = vec![libc::CLONE_NEWPID | instances.bits()];
    if zygotes != Namespaces::NONE {
        unshared.push(zygotes.bits());
    }
    let allowed = unshared.into_iter().map(|kinds| vec![(0, is(kinds))]).collect();
    rules.insert(libc::SYS_unshare, Rule::When(allowed));
    rules.insert(libc::SYS_chroot, Rule::Always);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[cfg(target_arch = "x86_64")]
    fn words(calls: &[Call]) -> String {
        let names = calls.iter().map(|(name, _)| name.trim_start_matches("SYS_"));
        names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" ")
    }

    /// The text of `docs/developer/system-calls.md`.
    #[cfg(target_arch = "x86_64")]
    fn page() -> String {
        use std::fmt::Write;

        let mut page = String::from(
            "# System calls of containers\n\nWhat a container's filter allows and refuses, written from `crates/warden/src/confine/filter` by its tests \
             (`WRITE_DOCS=1 cargo test -p warden`).\nEvery other call, including those of later kernels, is refused with \
             ENOSYS.\n\n## Allowed\n\n| group | why | calls |\n| --- | --- | --- |\n",
        );
        for group in allowed::GROUPS.iter().filter(|group| !group.calls.is_empty()) {
            let _ =
                writeln!(page, "| {} | {} | {} |", group.name, group.reason, words(group.calls));
        }
        page.push_str(
            "| by their arguments | `clone` without flags that make a namespace or a child for the caller's parent; \
             `socket` of TCP and UDP, AF_UNIX and NETLINK_ROUTE; `socketpair` of AF_UNIX; `fcntl` but for F_NOTIFY and F_SET_RW_HINT; \
             `fadvise64`, where POSIX_FADV_DONTNEED is answered with success and not done; \
             `setsockopt` but for SO_ATTACH_* of SOL_SOCKET and IPV6_FLOWLABEL_MGR, and where sandboxes share a network \
             memberships in multicast groups are answered with success and not made; where zygotes make networks for what they fork no NETLINK_ROUTE, \
             `setsockopt` and `getsockopt` without tables and IPsec, `ioctl` without devices' own requests; `ioctl` without what names or maps the file system that layers are on (FIEMAP, FS_IOC_GETFSUUID, \
             FS_IOC_GETFSSYSFSPATH, FS_IOC_GETFSLABEL, requests of Btrfs and XFS; ENOTTY); `prctl` but for PR_SET_SECCOMP, PR_SCHED_CORE and PR_SET_MEMORY_MERGE; `madvise` but for MADV_MERGEABLE (EINVAL); `setrlimit` and `prlimit64`, where RLIMIT_CORE is answered with success and not set; \
             a zygote's `setns` with CLONE_NEWUSER, `unshare` with exactly what its forks make for themselves, `chroot`, `seccomp` with SECCOMP_SET_MODE_FILTER and no flags | \
             `clone` `socket` `socketpair` `fcntl` `fadvise64` `setsockopt` `getsockopt` `ioctl` `prctl` `madvise` `setrlimit` `prlimit64` `setns` `unshare` `chroot` `seccomp` |\n\n## Refused, and what for\n\n| defence | \
             where it would lead | calls |\n| --- | --- | --- |\n",
        );
        for refusal in refused::REFUSALS.iter().filter(|refusal| !refusal.calls.is_empty()) {
            let (name, calls) = (refusal.defence.name(), words(refusal.calls));
            let _ = writeln!(page, "| {name} | {} | {calls} |", refusal.reason);
        }
        page
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_page_of_system_calls_says_what_the_filter_does() {
        let written = include_str!("../../../../../docs/developer/system-calls.md");
        if std::env::var_os("WRITE_DOCS").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/developer/system-calls.md");
            return std::fs::write(path, page()).unwrap();
        }
        assert!(written == page(), "write it anew: WRITE_DOCS=1 cargo test -p warden");
    }

    #[test]
    fn no_call_is_both_allowed_and_refused_or_in_two_groups() {
        let allowed = allowed::GROUPS.iter().flat_map(|group| group.calls);
        let refused = refused::REFUSALS.iter().flat_map(|refusal| refusal.calls);
        let mut seen = BTreeSet::new();
        for (name, number) in allowed.chain(refused) {
            assert!(seen.insert(number), "{name} stands twice");
        }
    }
}
