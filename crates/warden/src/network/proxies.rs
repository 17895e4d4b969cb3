//! The running proxies, and their end.

use sys::process::reap;

use crate::cgroup::Group;

/// The running proxies: one, except for the moment after one has died. Dropping this ends them.
#[derive(Debug, Default)]
pub(crate) struct Proxies {
    pub(crate) children: Vec<i32>,
    /// The cgroup of all proxies, made with the first.
    pub(crate) group: Option<Group>,
}

impl Proxies {
    /// Reaps proxies that have ended.
    pub(crate) fn reap(&mut self) {
        self.children.retain(|child| {
            // SAFETY: an unreaped child of this process; no status is asked for.
            unsafe { libc::waitpid(*child, std::ptr::null_mut(), libc::WNOHANG) == 0 }
        });
    }
}

impl Drop for Proxies {
    fn drop(&mut self) {
        for child in self.children.drain(..) {
            // SAFETY: an unreaped child of this process: the number is no other's.
            unsafe { libc::kill(child, libc::SIGKILL) };
            reap(child);
        }
    }
}
