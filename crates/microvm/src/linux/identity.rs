//! System calls about the process itself and the machine that it believes to be on.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom as random};

use super::call::signed;
use super::proc::memory;
use super::process::Process;
use super::record::Record;
use super::start::USER;
use super::{Answer, clock};
use crate::machine::Stopper;
use crate::memory::layout::USER_HALF_END;

/// The number of a process that was started here, and is nobody's clone.
pub(super) const PID: u64 = 1;
/// The number of its first thread. The guest is told the process's instead: see [`seen`].
pub(super) const FIRST_THREAD: u64 = 1;

/// The number of a process that was cloned from one of the number `before`, or reset to where that stood. Libraries take a
/// change of it for a fork, and let go of random state that they would have in common with the one they were copied from
/// (OpenSSL 3 before each draw; Python's `tempfile`). No thread has such a number.
pub(super) fn another(before: u64) -> io::Result<u64> {
    const SPACE: u64 = 1 << 21;
    let mut bytes = [0; 8];
    // Of so few bytes all come.
    random(&mut bytes, GetRandomFlags::empty())?;
    let number = SPACE + u64::from_le_bytes(bytes) % (SPACE - 1);
    Ok(if number < before { number } else { number + 1 })
}

/// What the guest is told a thread's number to be: the first one's is the process's.
pub(super) fn seen(process: &Process, thread: u64) -> u64 {
    if thread == FIRST_THREAD { process.pid } else { thread }
}

/// Which thread the guest means. A C library may go on calling the first one as it was called before the process was cloned.
pub(super) fn meant(process: &Process, number: u64) -> u64 {
    if number == process.pid { FIRST_THREAD } else { number }
}

pub(super) fn arch_prctl(process: &mut Process, what: u64, value: u64) -> Answer {
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

/// `getresuid` and `getresgid`: all three are the one user's.
pub(super) fn own_ids(process: &mut Process, targets: [u64; 3]) -> Answer {
    let own = USER.to_le_bytes();
    for target in targets {
        process.space.write(target, 4)?.copy_from_slice(&own[..4]);
    }
    Ok(0)
}

/// `getcpu`: the one there is, of the one node.
pub(super) fn processor(process: &mut Process, targets: [u64; 2]) -> Answer {
    for target in targets.into_iter().filter(|target| *target != 0) {
        process.space.write(target, 4)?.fill(0);
    }
    Ok(0)
}

/// The highest priority of a policy, or the lowest.
pub(super) fn priority(policy: u64, of_real_time: u64) -> Answer {
    match signed(policy) {
        libc::SCHED_FIFO | libc::SCHED_RR => Ok(of_real_time),
        libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE | libc::SCHED_DEADLINE => Ok(0),
        _ => Err(Errno::INVAL),
    }
}

pub(super) fn prctl(process: &mut Process, what: u64, value: u64) -> Answer {
    let what = signed(what);
    match what {
        libc::PR_SET_NAME => {
            // Up to its end or 16 bytes: the string may end before unmapped memory.
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
        // Names of memory for the sake of /proc, dumps, deaths of parents: nothing follows from them here.
        libc::PR_SET_VMA | libc::PR_SET_PDEATHSIG | libc::PR_SET_DUMPABLE => Ok(0),
        _ => Err(Errno::INVAL),
    }
}

pub(super) fn uname(process: &mut Process, target: u64) -> Answer {
    const FIELD: usize = 65;
    let fields = ["Linux", "microvm", "6.1.0", "Lambswool", "x86_64", "(none)"];
    let mut record = Record::<{ 6 * FIELD }>::new();
    for (number, text) in fields.into_iter().enumerate() {
        record = record.text(number * FIELD, FIELD, text);
    }
    process.space.write(target, 6 * FIELD as u64)?.copy_from_slice(record.bytes());
    Ok(0)
}

pub(super) fn getrandom(process: &mut Process, target: u64, length: u64, flags: u64) -> Answer {
    const KNOWN: u64 = 7;
    const MOST: u64 = 32 << 20;
    if flags & !KNOWN != 0 {
        return Err(Errno::INVAL);
    }
    let stopper = process.stopper();
    fill_random(process.space.write(target, length.min(MOST))?, &stopper)
}

/// Randomness of the host's: how much of the target it filled before it was stopped. The host makes some hundred megabytes
/// a second.
pub(super) fn fill_random(target: &mut [u8], stopper: &Stopper) -> Answer {
    const PIECE: usize = 1 << 20;
    let mut done = 0;
    while done < target.len() && !(done > 0 && stopper.wanted()) {
        let end = target.len().min(done + PIECE);
        match random(&mut target[done..end], GetRandomFlags::empty()) {
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(done as u64)
}

/// ESRCH for a number of another process's: there is none.
pub(super) fn own(process: &Process, number: u64) -> Result<(), Errno> {
    let number = u64::from(signed(number).cast_unsigned());
    if number == 0 || number == process.pid || number == FIRST_THREAD {
        Ok(())
    } else {
        Err(Errno::SRCH)
    }
}

/// `getrusage`: what was used of the processor, and nothing of children, of whom there are none. What the machine's memory takes
/// is not told: to know it takes a walk through the host's tables.
pub(super) fn getrusage(process: &mut Process, who: u64, target: u64) -> Answer {
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

/// `times`: what was used of the processor, all of it by the program, in hundredths of a second; and how many of these have
/// passed since the host was started.
pub(super) fn times(process: &mut Process, target: u64) -> Answer {
    if target != 0 {
        let record = Record::<32>::new().long(0, hundredths(process.used.now()));
        process.space.write(target, 32)?.copy_from_slice(record.bytes());
    }
    Ok(hundredths(clock::since_start()))
}

pub(super) fn hundredths(time: Duration) -> u64 {
    u64::try_from(time.as_millis() / 10).unwrap_or(u64::MAX)
}

pub(super) fn sysinfo(process: &mut Process, target: u64) -> Answer {
    let (most, left) = memory(process);
    let record = Record::<112>::new()
        .long(0, clock::since_start().as_secs())
        .long(32, most)
        .long(40, left)
        .int(80, 1)
        .int(104, 1);
    process.space.write(target, 112)?.copy_from_slice(record.bytes());
    Ok(0)
}

/// To the one processor, or to none.
pub(super) fn set_affinity(process: &mut Process, thread: u64, length: u64, mask: u64) -> Answer {
    let thread = meant(process, u64::from(signed(thread).cast_unsigned()));
    if thread != 0 && !process.kernel.threads.live(thread) {
        return Err(Errno::SRCH);
    }
    let bytes = process.space.read(mask, length.min(8))?;
    if bytes.first().is_some_and(|byte| byte & 1 == 1) { Ok(0) } else { Err(Errno::INVAL) }
}

/// One processor.
pub(super) fn affinity(process: &mut Process, length: u64, target: u64) -> Answer {
    if length < 8 {
        return Err(Errno::INVAL);
    }
    process.space.write(target, 8)?.copy_from_slice(&1_u64.to_le_bytes());
    Ok(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn randomness_is_not_made_to_the_end_for_a_guest_that_is_to_stop() {
        let (stopper, mut target) = (Stopper::default(), vec![0; 3 << 20]);
        assert_eq!(fill_random(&mut target, &stopper).unwrap(), 3 << 20);
        stopper.stop();
        assert_eq!(fill_random(&mut target, &stopper).unwrap(), 1 << 20);
    }
}
