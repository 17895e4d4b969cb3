//! Processes: who they are, what ends with what, and what they can never do again.

mod children;
mod credentials;
mod pidfd;

use std::io;
use std::os::unix::process::CommandExt;

use rustix::process::{Resource, getrlimit, setrlimit};

pub use children::{exit_now, fork_single_threaded, reap};
pub use credentials::{
    as_effective_user, as_effective_user_with_capabilities, become_user,
    become_user_with_capabilities, drop_capabilities, empty_bounding_set, privileged_thread,
    raise_capabilities, renounce_privilege, without_capabilities,
};
pub use pidfd::{Ended, Identity, PidFd};

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
    command.process_group(0);
    die_with_starter(command);
}

/// Has the program that `command` starts live no longer than the thread that starts it, however that ends.
pub fn die_with_starter(command: &mut std::process::Command) {
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
    // SAFETY: it makes two system calls and takes no memory.
    unsafe { command.pre_exec(bind) };
}

/// Has each process of the program that `command` starts take no more than these. A limit that is lower already stays.
pub fn limit(command: &mut std::process::Command, most: &[(Resource, u64)]) {
    let most = most.to_vec();
    let limit = move || {
        for &(resource, most) in &most {
            let mut limits = getrlimit(resource);
            limits.current = Some(limits.current.map_or(most, |current| current.min(most)));
            setrlimit(resource, limits)?;
        }
        Ok(())
    };
    // SAFETY: it makes system calls and takes no memory.
    unsafe { command.pre_exec(limit) };
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
