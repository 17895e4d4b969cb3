//! Processes: identity, lifetime, and privileges that they give up for good.

mod children;
mod credentials;
mod pidfd;

use std::io;
use std::os::unix::process::CommandExt;

use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Resource, Signal, getpid, getppid, getrlimit, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};
use rustix::thread::set_no_new_privs;

pub use children::{exit_now, fork_single_threaded, reap};
pub use credentials::{
    as_effective_user, as_effective_user_with_capabilities, become_user,
    become_user_with_capabilities, drop_capabilities, empty_bounding_set, privileged_thread,
    raise_capabilities, renounce_privilege, without_capabilities,
};
pub use pidfd::{Identity, PidFd, ProcessEnd};

/// Forbids processes of the same user to trace the calling one or to read its `/proc` files. It
/// leaves no core dump.
///
/// # Errors
/// As `prctl(2)`.
pub fn set_undumpable() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// The calling thread dies when its parent does. Cleared by a change of ids and by a set-uid exec.
///
/// # Errors
/// As `prctl(2)`.
pub fn die_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Ends the program that `command` starts when the starting thread ends; that thread must wait for
/// it. Gives the program a process group of its own, so that it can be killed with all its
/// children.
pub fn bind_to_starter(command: &mut std::process::Command) {
    command.process_group(0);
    die_with_starter(command);
}

/// Ends the program that `command` starts when the starting thread ends, for whatever reason.
pub fn die_with_starter(command: &mut std::process::Command) {
    let starter = getpid();
    let bind = move || {
        die_with_parent()?;
        // It may have ended before the signal was set.
        if getppid() == Some(starter) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: it makes two system calls and takes no memory.
    unsafe { command.pre_exec(bind) };
}

/// Limits the resources of the program that `command` starts, and of its children. A lower limit
/// stays.
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

/// Forbids that an exec gains privilege, for good.
///
/// # Errors
/// As `prctl(2)`.
pub fn set_no_new_privileges() -> io::Result<()> {
    Ok(set_no_new_privs(true)?)
}

/// Installs a seccomp filter for the calling thread and its children, for good. After
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

/// Gives every signal its default action. An exec keeps ignored signals: a shell ignores SIGINT in
/// programs that it starts in the background, and so would their children.
pub fn default_signals() {
    for number in 1..=libc::SIGRTMAX() {
        // SAFETY: plain numbers. SIGKILL, SIGSTOP and the C library's own are refused, and need
        // nothing.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
}

/// Closes every descriptor from `first` on (Linux ≥ 5.9).
///
/// # Errors
/// As `close_range(2)`.
///
/// # Safety
/// None of them may be used afterwards: call it only right before an exec or in a child that owns
/// nothing else.
pub unsafe fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: the caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
