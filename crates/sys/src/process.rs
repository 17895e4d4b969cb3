//! Processes: pidfds, identities, capabilities.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Signal(i32),
}

impl Ended {
    /// From the kernel's word for it: `wait(2)`.
    #[must_use]
    pub fn from_status(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            Self::Signal(libc::WTERMSIG(status))
        } else {
            Self::Exited(libc::WEXITSTATUS(status))
        }
    }
}

/// Who a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its number.
    pub pid: i32,
    /// Real, effective, saved and file-system user id.
    pub uids: [u32; 4],
}

/// Holds on to one process: never another one with the same number.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// Opens the process that has this number now.
    ///
    /// # Errors
    /// As `pidfd_open(2)`: ESRCH when there is none.
    pub fn open(pid: i32) -> io::Result<Self> {
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// Whether the process still runs (a zombie does not).
    #[must_use]
    pub fn alive(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)) == Ok(0)
    }

    /// Waits until the process has ended, at most `milliseconds`. Says whether it has.
    #[must_use]
    pub fn wait(&self, milliseconds: u32) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let limit = Timespec {
            tv_sec: i64::from(milliseconds / 1000),
            tv_nsec: i64::from(milliseconds % 1000) * 1_000_000,
        };
        poll(&mut fds, Some(&limit)) == Ok(1)
    }

    /// Kills it. A process that is gone already is no error.
    ///
    /// # Errors
    /// EPERM for a process of another user.
    pub fn kill(&self) -> io::Result<()> {
        match pidfd_send_signal(&self.0, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// How it ended, even if somebody else has reaped it: Linux ≥ 6.15. Before that, for a child of the caller's that
    /// waits to be reaped. None while it runs or where unknown.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        if let Some(info) = self.info(PIDFD_INFO_EXIT)
            && info.mask & PIDFD_INFO_EXIT != 0
        {
            return Some(Ended::from_status(info.exit_code));
        }
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::PidFd(self.0.as_fd()), look).ok()??;
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Some(Ended::Exited(code)),
            (None, signal) => signal.map(Ended::Signal),
        }
    }

    /// Number and user ids of the process, in the caller's namespaces: from the kernel directly (3 µs, Linux ≥ 6.13),
    /// else from `/proc`. None when it is gone.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        if let Some(info) = self.info(PIDFD_INFO_PID | PIDFD_INFO_CREDS)
            && info.mask & PIDFD_INFO_CREDS != 0
        {
            let [real, _, effective, _, saved, _, file_system, _] = info.ids;
            let pid = i32::try_from(info.pid).ok()?;
            return Some(Identity { pid, uids: [real, effective, saved, file_system] });
        }
        let pid = self.child_number()?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        let mut ids = line.split_whitespace().filter_map(|id| id.parse().ok());
        Some(Identity { pid, uids: [ids.next()?, ids.next()?, ids.next()?, ids.next()?] })
    }

    /// The process's number, also when it has ended and waits to be reaped.
    #[must_use]
    pub fn child_number(&self) -> Option<i32> {
        let path = format!("/proc/self/fdinfo/{}", self.0.as_raw_fd());
        let text = std::fs::read_to_string(path).ok()?;
        let number = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
        number.trim().parse().ok().filter(|pid| *pid > 0)
    }

    /// The PID namespace it lives in: Linux ≥ 6.11.
    ///
    /// # Errors
    /// ENOTTY before that kernel, ESRCH when it is gone.
    pub fn pid_namespace(&self) -> io::Result<OwnedFd> {
        const PIDFD_GET_PID_NAMESPACE: libc::c_ulong = 0xff06;
        // SAFETY: this request takes no argument and returns a descriptor.
        let fd = unsafe { libc::ioctl(self.0.as_raw_fd(), PIDFD_GET_PID_NAMESPACE as _, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made it for us.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    fn info(&self, mask: u64) -> Option<PidfdInfo> {
        // _IOWR(0xFF, 11, struct pidfd_info) for the 64-byte first version.
        const PIDFD_GET_INFO: libc::c_ulong = 0xc040_ff0b;
        let mut info = PidfdInfo { mask, ..PidfdInfo::default() };
        // SAFETY: the request's size field says 64 bytes, which is what `info` has.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), PIDFD_GET_INFO as _, &raw mut info) };
        (result == 0).then_some(info)
    }
}

impl From<OwnedFd> for PidFd {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

const PIDFD_INFO_PID: u64 = 1;
const PIDFD_INFO_CREDS: u64 = 2;
const PIDFD_INFO_EXIT: u64 = 8;

#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroupid: u64,
    pid: u32,
    tgid: u32,
    ppid: u32,
    ids: [u32; 8],
    exit_code: i32,
}

const _: () = assert!(size_of::<PidfdInfo>() == 64);

/// Gives up every capability of the calling thread, for good together with `no_new_privs`.
///
/// # Errors
/// As `capset(2)`.
pub fn drop_capabilities() -> io::Result<()> {
    set_capabilities(0, 0, 0)
}

/// Makes every permitted capability effective again, after a change of the effective user id took them away.
///
/// # Errors
/// As `capset(2)`.
pub fn raise_capabilities() -> io::Result<()> {
    let permitted = permitted_capabilities()?;
    set_capabilities(permitted, permitted, 0)
}

/// Runs `action` with no effective capability, then goes back. What is opened meanwhile carries none: the kernel asks the
/// credentials of whoever opened.
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
    // SAFETY: plain numbers. The raw call concerns this thread alone: the caller has no other.
    if unsafe { libc::syscall(libc::SYS_setresgid, id, id, id) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    if unsafe { libc::syscall(libc::SYS_setresuid, id, id, id) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Like [`become_user`], but every capability is kept, beyond an exec as well: what a defence is worth is seen by taking
/// it away.
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

/// Runs `action` with the effective user id `uid` and **no effective capability**, then goes back. What is opened
/// meanwhile carries the credentials of that user. An effective-id change clears the parent-death signal
/// (`prctl(2)`): whoever has one re-arms it.
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

/// The process can no longer be traced or have its `/proc` files read by its own user; it leaves no core.
///
/// # Errors
/// As `prctl(2)`.
pub fn set_undumpable() -> io::Result<()> {
    // SAFETY: plain numbers.
    let result = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The calling thread dies when its parent does. Cleared by a change of ids and by a set-uid exec.
///
/// # Errors
/// As `prctl(2)`.
pub fn die_with_parent() -> io::Result<()> {
    // SAFETY: plain numbers.
    let result = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has the program that `command` starts live no longer than the thread that starts it, which must wait for it, and gives
/// it a process group of its own, so that all that it starts can be killed with it.
pub fn bind_to_starter(command: &mut std::process::Command) {
    let starter = std::process::id();
    let bind = move || {
        die_with_parent()?;
        // SAFETY: plain numbers.
        match u32::try_from(unsafe { libc::getppid() }) {
            // It ended before we asked.
            Ok(parent) if parent != starter => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            _ => Ok(()),
        }
    };
    command.process_group(0);
    // SAFETY: it makes two system calls and takes no memory.
    unsafe { command.pre_exec(bind) };
}

/// Nothing that is executed from here on gains privilege.
///
/// # Errors
/// As `prctl(2)`.
pub fn set_no_new_privileges() -> io::Result<()> {
    // SAFETY: plain numbers.
    let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Installs a seccomp filter for the calling thread and all that it starts, for good. After
/// [`set_no_new_privileges`].
///
/// # Errors
/// As `seccomp(2)`: EINVAL for a program that the kernel's checker refuses.
pub fn install_filter(program: &[libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(io::Error::other)?;
    // The kernel only reads.
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: `program` points at `len` instructions that outlive the call.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives every signal its default treatment. An exec keeps what is ignored: whoever is started in the background by a
/// shell has SIGINT ignored, and so would all that it starts.
pub fn default_signals() {
    for number in 1..=libc::SIGRTMAX() {
        // SAFETY: plain numbers. SIGKILL, SIGSTOP and the C library's own are refused, and need nothing.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
}

/// Closes every descriptor from `first` on (Linux ≥ 5.9).
///
/// # Errors
/// As `close_range(2)`.
///
/// # Safety
/// Nobody may use any of them afterwards: call it only right before an exec or in a child that owns nothing else.
pub unsafe fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: the caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pidfd_tells_when_and_how_a_process_ended() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "read x; exit 7"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pidfd = PidFd::open(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(pidfd.alive());
        drop(child.stdin.take());
        assert!(pidfd.wait(5000));
        assert!(!pidfd.alive());
        child.wait().unwrap();
        // Linux before 6.15 cannot tell.
        assert!(matches!(pidfd.ended(), Some(Ended::Exited(7)) | None));
    }

    /// Where in the machine's memory the page of a value is; 0: whoever opened the page map may not know.
    fn frame(page_map: &std::fs::File, value: &u64) -> u64 {
        let mut entry = [0; 8];
        let at = (value as *const u64).addr() as u64 / 4096 * 8;
        std::os::unix::fs::FileExt::read_exact_at(page_map, &mut entry, at).unwrap();
        u64::from_le_bytes(entry) & ((1 << 55) - 1)
    }

    #[test]
    fn what_is_opened_without_capabilities_has_none_later_and_they_come_back() {
        let required = std::env::var("LAMBSWOOL_REQUIRE").unwrap_or_default();
        let required = required.split(',').any(|name| name == "root");
        let open = || std::fs::File::open("/proc/self/pagemap").unwrap();
        let value = Box::new(7_u64);
        if frame(&open(), &value) == 0 {
            assert!(!required, "LAMBSWOOL_REQUIRE says that this is root");
            eprintln!("SKIPPED: needs root");
            return;
        }
        let page_map = without_capabilities(open).unwrap();
        assert_eq!(frame(&page_map, &value), 0);
        assert_ne!(frame(&open(), &value), 0, "they are back");
    }
}
