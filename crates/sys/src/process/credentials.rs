//! Ids and capabilities of the calling thread alone: the functions of [`rustix::thread`] do not tell
//! the C library's other threads, as its own do. Callers have one thread.

use std::io;

use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// What a thread without any capability has.
const NONE: CapabilitySets = CapabilitySets {
    effective: CapabilitySet::empty(),
    permitted: CapabilitySet::empty(),
    inheritable: CapabilitySet::empty(),
};

/// Gives up every capability of the calling thread, for good together with `no_new_privs`.
///
/// # Errors
/// As `capset(2)`.
pub fn drop_capabilities() -> io::Result<()> {
    Ok(set_capabilities(None, NONE)?)
}

/// Gives up for good every capability of the calling thread, and those that it could gain by
/// executing a program: empties the bounding set, where it may, and sets `no_new_privs`. Its
/// children have none either.
///
/// # Errors
/// As `prctl(2)` and `capset(2)`.
pub fn renounce_privilege() -> io::Result<()> {
    empty_bounding_set()?;
    set_no_new_privs(true)?;
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
    for capability in every_capability() {
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The kernel knows no higher capability, or forbids the change.
            Err(Errno::INVAL | Errno::PERM) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Each capability that there could be, also those that a later kernel adds.
fn every_capability() -> impl Iterator<Item = CapabilitySet> {
    (0..64).map(|number| CapabilitySet::from_bits_retain(1 << number))
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
    let permitted = capabilities(None)?.permitted;
    Ok(set_capabilities(None, CapabilitySets { effective: permitted, permitted, ..NONE })?)
}

/// Runs `action` with no effective capability, then goes back. Files that it opens carry none: the
/// kernel checks the credentials of the opener.
///
/// # Errors
/// As `capset(2)`. The process must end then: its credentials are not what they were.
pub fn without_capabilities<T>(action: impl FnOnce() -> T) -> io::Result<T> {
    let permitted = capabilities(None)?.permitted;
    set_capabilities(None, CapabilitySets { permitted, ..NONE })?;
    let done = action();
    raise_capabilities()?;
    Ok(done)
}

/// Takes the user and group id for good, with no supplementary groups.
///
/// # Errors
/// As `setresuid(2)`.
pub fn become_user(id: u32) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    Ok(set_thread_res_uid(user, user, user)?)
}

/// Like [`become_user`], but every capability is kept, also over an exec. For tests that take a
/// defence away to see what it is worth.
///
/// # Errors
/// As `setresuid(2)`, `capset(2)`, `prctl(2)`.
pub fn become_user_with_capabilities(id: u32) -> io::Result<()> {
    set_keep_capabilities(true)?;
    become_user(id)?;
    let permitted = capabilities(None)?.permitted;
    let all = CapabilitySets { effective: permitted, permitted, inheritable: permitted };
    set_capabilities(None, all)?;
    for capability in every_capability().filter(|one| permitted.contains(*one)) {
        configure_capability_in_ambient_set(capability, true)?;
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

fn set_effective(id: u32) -> io::Result<()> {
    let user = || set_thread_res_uid(None, Uid::from_raw(id), None);
    let group = || set_thread_res_gid(None, Gid::from_raw(id), None);
    // Groups change while the user id is 0.
    if id == 0 {
        user().and_then(|()| group())?;
    } else {
        group().and_then(|()| user())?;
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
