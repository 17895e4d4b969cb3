//! Making a process by a fork, ending it, and waiting for it.

use std::io;

/// Forks: the child's pid in the parent, none in the child. That one may go on with anything, since the caller has one thread:
/// nobody else can have held a lock, or been at work on shared memory, while it was copied.
///
/// # Errors
/// EINVAL when the caller has several threads; else as `fork(2)`.
pub fn fork_single_threaded() -> io::Result<Option<libc::pid_t>> {
    // It changes nothing, and fails where there is another thread: `unshare(2)`.
    // SAFETY: plain numbers.
    if unsafe { libc::unshare(libc::CLONE_THREAD) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the calling process has one thread, this one: it cannot have become more meanwhile.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        child => Ok(Some(child)),
    }
}

/// Ends the process at once. Nothing that it has in common with who made it is written out or dropped: in a child, destructors
/// and buffers are the parent's.
pub fn exit_now(code: libc::c_int) -> ! {
    loop {
        // SAFETY: ends the calling process without touching any memory.
        unsafe { libc::syscall(libc::SYS_exit_group, code) };
    }
}

/// Waits until a child has ended, however it does. Returns at once when it is none of the caller's, or was waited for.
pub fn reap(child: libc::pid_t) {
    // SAFETY: no status is asked for.
    while unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::__WALL) } < 0 {
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_several_threads_is_not_forked() {
        std::thread::scope(|scope| {
            let (done, wait) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || wait.recv());
            let forked = fork_single_threaded();
            if let Ok(None) = forked {
                exit_now(1);
            }
            let refused = forked.unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
            drop(done);
        });
    }
}
