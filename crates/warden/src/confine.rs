//! What an interpreter is confined by before it is executed, beside its ids and its filter: limits, Landlock, an environment.
//! Runs in the process that becomes the interpreter.

use std::ffi::CString;
use std::io;

use landlock::{AccessNet, Ruleset, RulesetAttr, Scope};

use crate::defence::Defence;
use crate::filter::Role;
use crate::isolation::Isolation;
use crate::protocol::Network;

/// How much sooner than others sandboxes go when the host itself is out of memory: half of all memory's worth (proc(5)).
const DIE_FIRST: &str = "500";

/// Runs while the host's `/proc` can still be seen.
pub(crate) fn die_first(isolation: Isolation) {
    if isolation.has(Defence::DieFirst) {
        // Refused where it is more already.
        let _ = std::fs::write("/proc/self/oom_score_adj", DIE_FIRST);
    }
}

/// Runs in the mover, which leads no session: what it forks is in the new one. A session is an automatic group of the scheduler
/// (sched(7)), and a process that may write to its own `/proc/self/autogroup` says there what all of the group weigh.
pub(crate) fn leave_session(isolation: Isolation) {
    if isolation.has(Defence::OwnSession) {
        // Refused to a leader only.
        let _ = rustix::process::setsid();
    }
}

/// Timers, too, count as pending signals. What is forked from a zygote counts together with all that have its creator.
const PENDING_SIGNALS: u64 = 1024;

/// Runs while there are capabilities. What the warden was given less of stays less, where it cannot be more.
pub(crate) fn limit_resources(isolation: Isolation) -> io::Result<()> {
    let limits = [
        // Not 0, which a host that pipes cores to a program takes no heed of (core(5)).
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

/// No TCP at all, and no abstract socket or signal out of the domain, as far as the kernel's Landlock goes: a second
/// line behind the empty network namespace. Who may connect to something still has no port of its own to listen on, and in the
/// host's network this is the second line behind the filter, which refuses `listen`. Files are the root tree's job: inherited
/// file rules would make a tmpfs that is mounted later inaccessible.
pub(crate) fn restrict_network(isolation: Isolation, network: Network) -> io::Result<()> {
    let restrict = || -> Result<(), landlock::RulesetError> {
        let mut rules = Ruleset::default();
        // The kernel refuses rules about nothing.
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

/// What a sandbox sees of an environment: nothing of the worker's. Numeric pools start at one thread, because a fork
/// takes only the forking thread along. A zygote has the loader bind all symbols at once, and not each fork its own when
/// they are needed, on pages that must then be copied.
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
