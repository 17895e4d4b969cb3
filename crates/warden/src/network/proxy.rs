//! The proxy of sandboxes' outgoing connections. The warden starts it because only it can give a
//! process a uid of its own.
//!
//! ```text
//!   warden ─ fork ─► joins a cgroup ─► exec wool-egress, still root ─► uid, no capability, Landlock, seccomp; only then
//!                                                                      reads its control socket, which the worker has
//! ```
//! It is in the host's network, and in none of the sandboxes' namespaces. The executed program is
//! the one beside the warden's own; the command names no path.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sys::process::{
    close_from, default_signals, die_with_parent, exit_now, fork_single_threaded, reap,
};

use crate::cgroup::Group;
use crate::confine;
use crate::limits::{Cpu, Limits, Network};
use crate::outcome::{CommandError, CommandResult, kernel};
use crate::process::beside;
use crate::process::spawn::{self, failed};
use crate::protocol::Answer;
use crate::state::Warden;

/// The program, beside the warden's own.
const PROGRAM: &str = "wool-egress";

/// Limits that suffice for thousands of connections.
const LIMITS: Limits = Limits {
    memory_bytes: 512 << 20,
    shown_bytes: 512 << 20,
    pids: 600,
    scratch_bytes: 0,
    scratch_inodes: 0,
    cpu: Cpu::UNLIMITED,
};

/// The current proxy, and those that are about to end.
const MAX_PROXIES: usize = 4;

impl Warden {
    /// Carries out [`Command::Proxy`](crate::protocol::Command::Proxy).
    pub(crate) fn start_proxy(&mut self) -> CommandResult {
        self.proxies.reap();
        if self.proxies.children.len() >= MAX_PROXIES {
            return Err(CommandError::Wrong("enough proxies run"));
        }
        let group = match &self.proxies.group {
            Some(group) => group.clone(),
            None => {
                let made = self.cgroups.make_apart("egress", LIMITS);
                let made = made.map_err(kernel("make cgroup"))?;
                let limited = self.limit_sockets(&made, Network::Host, LIMITS);
                if limited.is_err() {
                    self.cgroups.remove(&made);
                }
                limited?;
                self.proxies.group.insert(made).clone()
            }
        };
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(kernel("make channel"))?;
        let (told, tell) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(kernel("socket pair"))?;
        let program = beside::find(PROGRAM).map_err(kernel("find wool-egress"))?;
        let Some(child) = fork_single_threaded().map_err(kernel("fork"))? else {
            let arranged = self.become_proxy(&group, theirs.as_fd(), tell.as_fd());
            let (tell, error) = match arranged {
                Ok(()) => {
                    default_signals();
                    let environment = [c"PATH=/usr/bin:/bin".to_owned()];
                    let error =
                        failed("execute wool-egress")(spawn::exec(&[program], &environment));
                    // SAFETY: descriptor 4 is the socket, or closed: then the error is lost.
                    (unsafe { BorrowedFd::borrow_raw(spawn::TELL) }, error)
                }
                // The worker's socket may still be at that number.
                Err(error) => (tell.as_fd(), failed("arrange the proxy")(error)),
            };
            spawn::report(tell, &error);
            exit_now(1);
        };
        drop((theirs, tell));
        if let Some(error) = spawn::listen(told.as_fd()).failure {
            reap(child);
            return Err(error.into());
        }
        self.proxies.children.push(child);
        Ok((Answer::Done, vec![ours]))
    }

    /// Runs in the child.
    fn become_proxy(
        &self,
        group: &Group,
        control: BorrowedFd<'_>,
        tell: BorrowedFd<'_>,
    ) -> io::Result<()> {
        self.cgroups.enter(group)?;
        confine::leave_session(self.host.isolation);
        die_with_parent()?;
        // Its log goes where the warden's goes.
        let words = std::io::stderr();
        spawn::arrange_descriptors(control, (None, Some(words.as_fd())), tell, &[])?;
        // SAFETY: this process executes the proxy or ends, and drops nothing that owns a
        // descriptor.
        unsafe { close_from(5) }
    }
}
