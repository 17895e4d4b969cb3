//! Limits, Landlock and environment of an interpreter, before it is executed. Runs in the process
//! that becomes the interpreter. `filter` is its filter of system calls (seccomp), not of packets.

pub mod filter;

use std::ffi::CString;
use std::io;

use landlock::{AccessNet, Ruleset, RulesetAttr, Scope};

use crate::confine::filter::Role;
use crate::defence::Defence;
use crate::isolation::Isolation;
use crate::limits::Network;

/// How much more likely than others a sandbox is killed when the host itself is out of memory: as
/// if it used half of all memory more (proc(5)).
const DIE_FIRST: &str = "500";

/// Runs while the host's `/proc` can still be seen.
pub(crate) fn die_first(isolation: Isolation) {
    if isolation.has(Defence::DieFirst) {
        // Refused where the value is higher already.
        let _ = std::fs::write("/proc/self/oom_score_adj", DIE_FIRST);
    }
}

/// Runs in the mover, which leads no session: its children are in the new one. A session is an
/// automatic group of the scheduler (sched(7)), and a process that may write to its
/// `/proc/self/autogroup` sets the weight of the whole group.
pub(crate) fn leave_session(isolation: Isolation) {
    if isolation.has(Defence::OwnSession) {
        // Refused to a session leader only.
        let _ = rustix::process::setsid();
    }
}

/// Limit on pending signals, which include timers. All forks of a zygote count together, because
/// they have the same creator.
const PENDING_SIGNALS: u64 = 1024;

/// Runs while the process has capabilities. A limit of the warden's own that is lower, and cannot
/// be raised, stays.
pub(crate) fn limit_resources(isolation: Isolation) -> io::Result<()> {
    let limits = [
        // Not 0: a host that pipes cores to a program ignores that (core(5)).
        (Defence::LimitCore, libc::RLIMIT_CORE, 1),
        (Defence::LimitPriority, libc::RLIMIT_RTPRIO, 0),
        (Defence::LimitPriority, libc::RLIMIT_NICE, 0),
        (Defence::LimitFiles, libc::RLIMIT_NOFILE, 1024),
        (Defence::LimitSignals, libc::RLIMIT_SIGPENDING, PENDING_SIGNALS),
    ];
    for (_, resource, value) in limits.into_iter().filter(|(defence, ..)| isolation.has(*defence)) {
        let mut limit = libc::rlimit { rlim_cur: value, rlim_max: value };
        // SAFETY: `limit` outlives the call.
        if unsafe { libc::setrlimit(resource, &raw const limit) } == 0 {
            continue;
        }
        let refused = io::Error::last_os_error();
        // SAFETY: as above.
        let read = unsafe { libc::getrlimit(resource, &raw mut limit) };
        if read != 0 || limit.rlim_max >= value {
            return Err(refused);
        }
    }
    Ok(())
}

/// Forbids TCP, abstract sockets, and signals out of the domain, as far as the kernel's Landlock
/// goes: a second line behind the empty network namespace. A sandbox that may connect still has no
/// port to listen on; in the host's network this is the second line behind the filter, which
/// refuses `listen`. Files are left to the root tree: inherited file rules would make a tmpfs that
/// is mounted later inaccessible.
pub(crate) fn restrict_network(isolation: Isolation, network: Network) -> io::Result<()> {
    let restrict = || -> Result<(), landlock::RulesetError> {
        let mut rules = Ruleset::default();
        // The kernel refuses a ruleset that handles nothing.
        if !isolation.has(Defence::LandlockNetwork) && !isolation.has(Defence::LandlockScopes) {
            return Ok(());
        }
        if isolation.has(Defence::LandlockNetwork) {
            let connects = network != Network::None;
            let all = AccessNet::BindTcp | AccessNet::ConnectTcp;
            rules = rules.handle_access(if connects { AccessNet::BindTcp.into() } else { all })?;
        }
        if isolation.has(Defence::LandlockScopes) {
            rules = rules.scope(Scope::AbstractUnixSocket | Scope::Signal)?;
        }
        rules.create()?.restrict_self()?;
        Ok(())
    };
    restrict().map_err(io::Error::other)
}

/// The environment of a sandbox: nothing of the worker's. Numeric pools start at one thread,
/// because a fork takes only the forking thread along. In a zygote the loader binds all symbols at
/// once. Otherwise each fork would bind its own when they are needed, on pages that must then be
/// copied.
pub(crate) fn environment(isolation: Isolation, role: Role) -> io::Result<Vec<CString>> {
    let inherited = std::env::vars_os().filter(|_| !isolation.has(Defence::CleanEnvironment));
    let inherited = inherited.map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        CString::new(name.into_encoded_bytes())
    });
    let own = [
        "PATH=/usr/bin",
        "LANG=C.UTF-8",
        "HOME=/tmp",
        "TMPDIR=/tmp",
        "OPENBLAS_NUM_THREADS=1",
        "OMP_NUM_THREADS=1",
        "MKL_NUM_THREADS=1",
        "NUMEXPR_NUM_THREADS=1",
    ]
    .map(CString::new);
    let binding = (role == Role::Zygote).then(|| CString::new("LD_BIND_NOW=1"));
    Ok(own.into_iter().chain(binding).chain(inherited).collect::<Result<_, _>>()?)
}
