//! Ids and capabilities of the calling thread. The raw calls affect this thread alone: callers have
//! one thread.

use std::io;

use super::set_no_new_privileges;

/// Gives up every capability of the calling thread, for good together with `no_new_privs`.
///
/// # Errors
/// As `capset(2)`.
pub fn drop_capabilities() -> io::Result<()> {
    set_capabilities(0, 0, 0)
}

/// Gives up for good every capability of the calling thread, and those that it could gain by
/// executing a program: empties the bounding set, where it may, and sets `no_new_privs`. Its
/// children have none either.
///
/// # Errors
/// As `prctl(2)` and `capset(2)`.
pub fn renounce_privilege() -> io::Result<()> {
    empty_bounding_set()?;
    set_no_new_privileges()?;
    // The ambient set goes with the inheritable one.
    drop_capabilities()
}

/// Empties the bounding set of the calling thread: no exec can then give it a capability. Without
/// CAP_SETPCAP the set stays. Such a thread can gain capabilities only by set-uid programs and file
/// capabilities, which `no_new_privs` forbids.
///
/// # Errors
/// As `prctl(2)`.
pub fn empty_bounding_set() -> io::Result<()> {
    for capability in 0..64 {
        // SAFETY: plain numbers.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } == 0 {
            continue;
        }
        let refused = io::Error::last_os_error();
        return match refused.raw_os_error() {
            // The kernel knows no higher capability, or forbids the change.
            Some(libc::EINVAL | libc::EPERM) => Ok(()),
            _ => Err(refused),
        };
    }
    Ok(())
}

/// The name of a thread of this process that has a capability, or can gain one by executing a
/// program; none when no thread can.
///
/// # Errors
/// Without `/proc`.
pub fn privileged_thread() -> io::Result<Option<String>> {
    for thread in std::fs::read_dir("/proc/self/task")? {
        let thread = thread?;
        match std::fs::read_to_string(thread.path().join("status")) {
            Ok(status) if is_without_privilege(&status) => {}
            Ok(_) => return Ok(Some(thread.file_name().to_string_lossy().into_owned())),
            // The thread has ended since.
            Err(error) if !thread.path().exists() => drop(error),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Whether `/proc/PID/status` describes a thread that has given up all privilege (proc(5)).
fn is_without_privilege(status: &str) -> bool {
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let none = |set: &str| value(set).is_some_and(|bits| bits.bytes().all(|bit| bit == b'0'));
    value("NoNewPrivs:") == Some("1")
        && ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"].into_iter().all(none)
}

/// Makes every permitted capability effective again, after a change of the effective user id has
/// cleared them.
///
/// # Errors
/// As `capset(2)`.
pub fn raise_capabilities() -> io::Result<()> {
    let permitted = permitted_capabilities()?;
    set_capabilities(permitted, permitted, 0)
}

/// Runs `action` with no effective capability, then goes back. Files that it opens carry none: the
/// kernel checks the credentials of the opener.
///
/// # Errors
/// As `capset(2)`. The process must end then: its credentials are not what they were.
pub fn without_capabilities<T>(action: impl FnOnce() -> T) -> io::Result<T> {
    set_capabilities(0, permitted_capabilities()?, 0)?;
    let done = action();
    raise_capabilities()?;
    Ok(done)
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

fn permitted_capabilities() -> io::Result<u64> {
    let mut header = CapHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let mut data = [CapData::default(); 2];
    // SAFETY: version 3 reads and writes two data elements.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::from(data[0].permitted) | u64::from(data[1].permitted) << 32)
}

#[expect(clippy::cast_possible_truncation, reason = "capset takes the set in two halves")]
fn set_capabilities(effective: u64, permitted: u64, inheritable: u64) -> io::Result<()> {
    let mut header = CapHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let half = |shift: u32| CapData {
        effective: (effective >> shift) as u32,
        permitted: (permitted >> shift) as u32,
        inheritable: (inheritable >> shift) as u32,
    };
    let data = [half(0), half(32)];
    // SAFETY: version 3 reads two data elements.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes the user and group id for good, with no supplementary groups.
///
/// # Errors
/// As `setresuid(2)`.
pub fn become_user(id: u32) -> io::Result<()> {
    // SAFETY: an empty list needs no memory.
    if unsafe { libc::setgroups(0, std::ptr::null()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: plain numbers. The raw call affects this thread alone: the caller has no other.
    if unsafe { libc::syscall(libc::SYS_setresgid, id, id, id) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    if unsafe { libc::syscall(libc::SYS_setresuid, id, id, id) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Like [`become_user`], but every capability is kept, also over an exec. For tests that take a
/// defence away to see what it is worth.
///
/// # Errors
/// As `setresuid(2)`, `capset(2)`, `prctl(2)`.
pub fn become_user_with_capabilities(id: u32) -> io::Result<()> {
    // SAFETY: plain numbers.
    if unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    become_user(id)?;
    let permitted = permitted_capabilities()?;
    set_capabilities(permitted, permitted, permitted)?;
    for capability in (0..64).filter(|at| permitted >> at & 1 == 1) {
        let raise = libc::PR_CAP_AMBIENT_RAISE;
        // SAFETY: plain numbers.
        if unsafe { libc::prctl(libc::PR_CAP_AMBIENT, raise, capability, 0, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Runs `action` with the effective user id `uid` and **no effective capability**, then goes back.
/// Files that it opens carry the credentials of that user. A change of the effective id clears the
/// parent-death signal (`prctl(2)`): a caller that uses one must set it again.
///
/// # Errors
/// As `setresuid(2)`; the action's result comes back inside.
pub fn as_effective_user<T>(uid: u32, action: impl FnOnce() -> T) -> io::Result<T> {
    set_effective(uid)?;
    let result = action();
    set_effective(0)?;
    Ok(result)
}

/// Like [`as_effective_user`], with all capabilities kept effective.
///
/// # Errors
/// As `setresuid(2)` and `capset(2)`.
pub fn as_effective_user_with_capabilities<T>(
    uid: u32,
    action: impl FnOnce() -> T,
) -> io::Result<T> {
    as_effective_user(uid, || raise_capabilities().map(|()| action()))?
}

fn set_effective(uid: u32) -> io::Result<()> {
    let keep = u32::MAX;
    // SAFETY: plain numbers.
    if uid == 0 && unsafe { libc::syscall(libc::SYS_setresuid, keep, uid, keep) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: plain numbers. Groups change while the user id is still 0.
    if unsafe { libc::syscall(libc::SYS_setresgid, keep, uid, keep) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: plain numbers.
    if uid != 0 && unsafe { libc::syscall(libc::SYS_setresuid, keep, uid, keep) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frame of a value's page; 0: the opener of the page map may not read frames.
    fn frame(page_map: &std::fs::File, value: &u64) -> u64 {
        let mut entry = [0; 8];
        let at = (value as *const u64).addr() as u64 / 4096 * 8;
        std::os::unix::fs::FileExt::read_exact_at(page_map, &mut entry, at).unwrap();
        u64::from_le_bytes(entry) & ((1 << 55) - 1)
    }

    #[test]
    fn a_thread_that_renounces_keeps_nothing_and_other_threads_are_found() {
        if !rustix::process::geteuid().is_root() {
            return skips::skip("root", "only root has anything to renounce");
        }
        let status = || std::fs::read_to_string("/proc/thread-self/status").unwrap();
        std::thread::spawn(move || {
            assert!(!is_without_privilege(&status()));
            renounce_privilege().unwrap();
            assert!(is_without_privilege(&status()));
            assert!(status().contains("CapBnd:\t0000000000000000\n"), "{}", status());
            // The test's other threads have not given up theirs.
            assert!(privileged_thread().unwrap().is_some());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_file_opened_without_capabilities_has_none_after_they_come_back() {
        let open = || std::fs::File::open("/proc/self/pagemap").unwrap();
        let value = Box::new(7_u64);
        if frame(&open(), &value) == 0 {
            return skips::skip("root", "only root may look at page frames");
        }
        let page_map = without_capabilities(open).unwrap();
        assert_eq!(frame(&page_map, &value), 0);
        assert_ne!(frame(&open(), &value), 0, "they are back");
    }
}
