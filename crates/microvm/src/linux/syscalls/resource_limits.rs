//! `prlimit`, `getrlimit`, `setrlimit`, `getpriority` and `setpriority`.

use rustix::io::Errno;

use crate::linux::abi::record::{Record, long_at};
use crate::linux::abi::registers::{Answer, fd, signed};
use crate::linux::state::ids::USER;
use crate::linux::state::process::Process;
use crate::linux::state::resource_limits::KINDS;

/// `prlimit` of this process, which also serves `getrlimit` and `setrlimit`.
pub(crate) fn prlimit(process: &mut Process, pid: u64, what: u64, new: u64, old: u64) -> Answer {
    let wanted = match new {
        0 => None,
        new => {
            let bytes = process.space.read(new, 16)?;
            Some([long_at(bytes, 0), long_at(bytes, 8)])
        }
    };
    let kind = usize::try_from(signed(what)).ok().filter(|kind| *kind < KINDS);
    let kind = kind.ok_or(Errno::INVAL)?;
    process.check_own(pid)?;
    let before = process.kernel.limits.all[kind];
    // As in a container, setting the limit of core files succeeds without effect.
    if let Some(wanted) = wanted.filter(|_| kind != libc::RLIMIT_CORE as usize) {
        let [soft, hard] = wanted;
        if soft > hard {
            return Err(Errno::INVAL);
        }
        // Raising a hard limit takes CAP_SYS_RESOURCE.
        if hard > before[1] {
            return Err(Errno::PERM);
        }
        process.kernel.limits.set(kind, wanted);
        process.enforce_limits();
    }
    if old != 0 {
        let record = Record::<16>::new().long(0, before[0]).long(8, before[1]);
        process.space.write(old, 16)?.copy_from_slice(record.bytes());
    }
    Ok(0)
}

/// ESRCH for another process, group or user than this one; EINVAL for an unknown kind.
fn own_priority(process: &Process, which: u64, who: u64) -> Result<(), Errno> {
    match signed(which) {
        0 | 1 => process.check_own(who),
        2 if matches!(fd(who), 0 | USER) => Ok(()),
        2 => Err(Errno::SRCH),
        _ => Err(Errno::INVAL),
    }
}

/// `getpriority`, which returns 20 less the niceness.
pub(crate) fn niceness(process: &Process, which: u64, who: u64) -> Answer {
    own_priority(process, which, who)?;
    Ok(20 - u64::from(process.kernel.limits.niceness))
}

/// `setpriority`: niceness can only grow.
pub(crate) fn set_niceness(process: &mut Process, which: u64, who: u64, wanted: u64) -> Answer {
    own_priority(process, which, who)?;
    let wanted = signed(wanted).clamp(-20, 19);
    let now = &mut process.kernel.limits.niceness;
    match u8::try_from(wanted) {
        Ok(wanted) if wanted >= *now => {
            *now = wanted;
            Ok(0)
        }
        _ => Err(Errno::ACCESS),
    }
}
