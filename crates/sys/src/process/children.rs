//! Forking a process, ending it, and waiting for it.

use std::io;

/// Forks: the child's pid in the parent, none in the child. The child may run any code, because the
/// caller has one thread: no other thread can have held a lock, or written shared memory,
/// meanwhile.
///
/// # Errors
/// EINVAL when the caller has several threads; else as `fork(2)`.
pub fn fork_single_threaded() -> io::Result<Option<libc::pid_t>> {
    // `unshare(2)` with this flag changes nothing, and fails where there is another thread. SAFETY:
    // plain numbers.
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

/// Ends the process at once, without flushing buffers and running destructors: in a forked child,
/// these are the parent's.
pub fn exit_now(code: libc::c_int) -> ! {
    loop {
        // SAFETY: ends the calling process without touching any memory.
        unsafe { libc::syscall(libc::SYS_exit_group, code) };
    }
}

/// Waits until a child has ended. Returns at once when it is not a child of the caller, or was
/// waited for before.
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
