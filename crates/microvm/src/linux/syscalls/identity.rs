//! System calls about the process itself, and the machine as the guest sees it.

use std::time::Duration;

use rustix::io::Errno;

use crate::linux::abi::record::Record;
use crate::linux::abi::registers::{Answer, signed};
use crate::linux::state::host_clock;
use crate::linux::state::ids::USER;
use crate::linux::state::process::Process;
use crate::linux::syscalls::files::proc::memory;
use crate::memory::layout::USER_HALF_END;

pub(crate) fn arch_prctl(process: &mut Process, what: u64, value: u64) -> Answer {
    const SET_FS: u64 = 0x1002;
    const GET_FS: u64 = 0x1003;
    match what {
        SET_FS if value < USER_HALF_END => process.vcpu.set_fs_base(value),
        GET_FS => {
            let base = process.vcpu.fs_base().to_le_bytes();
            process.space.write(value, 8)?.copy_from_slice(&base);
        }
        _ => return Err(Errno::INVAL),
    }
    Ok(0)
}

/// `getresuid` and `getresgid`: the only user, three times.
pub(crate) fn own_ids(process: &mut Process, targets: [u64; 3]) -> Answer {
    let own = USER.to_le_bytes();
    for target in targets {
        process.space.write(target, 4)?.copy_from_slice(&own[..4]);
    }
    Ok(0)
}

/// `getcpu`: the only processor, of the only node.
pub(crate) fn processor(process: &mut Process, targets: [u64; 2]) -> Answer {
    for target in targets.into_iter().filter(|target| *target != 0) {
        process.space.write(target, 4)?.fill(0);
    }
    Ok(0)
}

/// The highest or the lowest priority of a policy.
pub(crate) fn priority(policy: u64, of_real_time: u64) -> Answer {
    match signed(policy) {
        libc::SCHED_FIFO | libc::SCHED_RR => Ok(of_real_time),
        libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE | libc::SCHED_DEADLINE => Ok(0),
        _ => Err(Errno::INVAL),
    }
}

pub(crate) fn prctl(process: &mut Process, what: u64, value: u64) -> Answer {
    let what = signed(what);
    match what {
        libc::PR_SET_NAME => {
            // Up to its end or 16 bytes: unmapped memory may follow the string.
            let mut name = [0; 16];
            for (at, byte) in (0..).zip(&mut name[..15]) {
                let at = value.checked_add(at).ok_or(Errno::FAULT)?;
                *byte = process.space.read(at, 1)?[0];
                if *byte == 0 {
                    break;
                }
            }
            process.kernel.name = name;
            Ok(0)
        }
        libc::PR_GET_NAME => {
            let name = process.kernel.name;
            process.space.write(value, 16)?.copy_from_slice(&name);
            Ok(0)
        }
        // Names of memory, deaths of parents, dumps: accepted without effect.
        libc::PR_SET_VMA | libc::PR_SET_PDEATHSIG | libc::PR_SET_DUMPABLE => Ok(0),
        _ => Err(Errno::INVAL),
    }
}

pub(crate) fn uname(process: &mut Process, target: u64) -> Answer {
    const FIELD: usize = 65;
    let fields = ["Linux", "microvm", "6.1.0", "Lambswool", "x86_64", "(none)"];
    let mut record = Record::<{ 6 * FIELD }>::new();
    for (number, text) in fields.into_iter().enumerate() {
        record = record.text(number * FIELD, FIELD, text);
    }
    process.space.write(target, 6 * FIELD as u64)?.copy_from_slice(record.bytes());
    Ok(0)
}

/// `getrusage`: processor time of the process; children do not exist. Memory is not told, which
/// would take a walk through the host's tables.
pub(crate) fn getrusage(process: &mut Process, who: u64, target: u64) -> Answer {
    let used = match signed(who) {
        libc::RUSAGE_SELF | libc::RUSAGE_THREAD => process.used.now(),
        libc::RUSAGE_CHILDREN => Duration::ZERO,
        _ => return Err(Errno::INVAL),
    };
    let record =
        Record::<144>::new().long(0, used.as_secs()).long(8, u64::from(used.subsec_micros()));
    process.space.write(target, 144)?.copy_from_slice(record.bytes());
    Ok(0)
}

/// `times`: processor time of the program, and time since the host was started, in hundredths of a
/// second.
pub(crate) fn times(process: &mut Process, target: u64) -> Answer {
    if target != 0 {
        let record = Record::<32>::new().long(0, host_clock::hundredths(process.used.now()));
        process.space.write(target, 32)?.copy_from_slice(record.bytes());
    }
    Ok(host_clock::hundredths(host_clock::since_start()))
}

pub(crate) fn sysinfo(process: &mut Process, target: u64) -> Answer {
    let (most, left) = memory(process);
    let record = Record::<112>::new()
        .long(0, host_clock::since_start().as_secs())
        .long(32, most)
        .long(40, left)
        .int(80, 1)
        .int(104, 1);
    process.space.write(target, 112)?.copy_from_slice(record.bytes());
    Ok(0)
}

/// `sched_setaffinity`: the mask has to allow the only processor.
pub(crate) fn set_affinity(process: &mut Process, thread: u64, length: u64, mask: u64) -> Answer {
    let thread = process.meant_thread(u64::from(signed(thread).cast_unsigned()));
    if thread != 0 && !process.kernel.threads.live(thread) {
        return Err(Errno::SRCH);
    }
    let bytes = process.space.read(mask, length.min(8))?;
    if bytes.first().is_some_and(|byte| byte & 1 == 1) { Ok(0) } else { Err(Errno::INVAL) }
}

/// `sched_getaffinity`: the only processor.
pub(crate) fn affinity(process: &mut Process, length: u64, target: u64) -> Answer {
    if length < 8 {
        return Err(Errno::INVAL);
    }
    process.space.write(target, 8)?.copy_from_slice(&1_u64.to_le_bytes());
    Ok(8)
}
