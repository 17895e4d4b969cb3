//! Monitors of micro-VMs. The warden starts them because only it can give a process a uid, a cgroup
//! and namespaces.
//!
//! ```text
//!   warden ─ fork ─► mover: joins the cgroup, enters P ─ clone(CLONE_PARENT) ─► exec wool-vmm, still root
//!                                                                                 │ opens /dev/kvm
//!                                                                                 │ shared network, IPC, UTS
//!                                                                                 │ shared mounts: an empty root
//!                                                                                 │ own user namespace, uid, no capability
//!                                                                                 ▼ Landlock, seccomp; then reads its channel
//! ```
//! The executed program is the one beside the warden's own, in the machine's own root. It loads its
//! libraries from there, and confines itself before it reads any input (`vmm::monitor::jail`). The
//! command names no interpreter and no path.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use sys::namespace::{IdMap, Parent, user_namespace};
use sys::process::{PidFd, close_from, default_signals, exit_now, fork_single_threaded, reap};

use crate::cgroup::Group;
use crate::confine;
use crate::limits::{Limits, Network};
use crate::outcome::{CommandError, CommandResult, done, kernel};
use crate::process::beside;
use crate::process::spawn::{self, SpawnError, failed};
use crate::protocol::{Answer, MAX_OPENED, Python};
use crate::rootfs::empty::EmptyingProgress;
use crate::sandbox::prepare::WorkerEnds;
use crate::sandbox::record::{Kind, Sandbox};
use crate::state::Warden;
use crate::uids::{Allotment, INNER};

/// The first unused descriptor. Below it are the standard streams, the channel, the socket for
/// errors, and five namespaces.
const FIRST_UNUSED: u32 = 10;

/// The program, beside the warden's own.
const PROGRAM: &str = "wool-vmm";

impl Warden {
    pub(crate) fn monitor(&mut self, name: u64, limits: Limits) -> CommandResult {
        let uid = self.uids.take_one().ok_or(CommandError::Wrong("no kernel uid is free"))?;
        let made = self.cgroups.make(name, limits, uid).map_err(kernel("make cgroup"));
        let started = made.and_then(|group| match self.start_monitor(&group, uid) {
            Ok(started) => Ok((group, started)),
            Err(refused) => {
                self.cgroups.kill(&group);
                self.cgroups.remove(&group);
                Err(refused)
            }
        });
        let (group, (channel, process, stderr)) = match started {
            Ok(started) => started,
            Err(refused) => {
                self.give_back(Allotment::Single(uid), None);
                return Err(refused);
            }
        };
        let sandbox = Sandbox {
            kind: Kind::Instance,
            uid,
            allotment: Allotment::Single(uid),
            group,
            root: None,
            python: Python {
                base: String::new(),
                guest: String::new(),
                interpreter: String::new(),
            },
            network: Network::None,
            reaches: None,
            limits,
            process: Some(process),
            inside: None,
            zygote: None,
            stderr: Some(stderr),
            child: true,
            dying: false,
            scratch: EmptyingProgress::default(),
            held: EmptyingProgress::default(),
            counted: false,
        };
        self.show_or_release(name, sandbox, WorkerEnds { channel, output: None })
    }

    pub(crate) fn limit_memory(&mut self, name: u64, memory_bytes: u64) -> CommandResult {
        let sandbox = self.find(name)?;
        let (group, limits) = (sandbox.group.clone(), Limits { memory_bytes, ..sandbox.limits });
        self.cgroups.limit(&group, limits).map_err(kernel("limit memory"))?;
        self.find(name)?.limits = limits;
        done()
    }

    pub(crate) fn open_layers(&self, layers: &[String]) -> CommandResult {
        if layers.len() > MAX_OPENED {
            return Err(CommandError::Wrong("too many layers at once"));
        }
        let opened: Result<Vec<_>, _> = layers.iter().map(|layer| self.roots.open(layer)).collect();
        Ok((Answer::Done, opened?))
    }

    fn start_monitor(
        &self,
        group: &Group,
        uid: u32,
    ) -> Result<(OwnedFd, PidFd, OwnedFd), CommandError> {
        let map = IdMap { inside: INNER, outside: uid, count: 1 };
        let namespace =
            user_namespace(Parent::Initial, uid, map).map_err(kernel("make user namespace"))?;
        let pair = |kind| socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let (ours, theirs) = pair(SocketType::SEQPACKET).map_err(kernel("make channel"))?;
        let (told, tell) = pair(SocketType::SEQPACKET).map_err(kernel("socket pair"))?;
        let (stderr, stderr_end) =
            pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(kernel("pipe"))?;
        let program = beside::find(PROGRAM).map_err(kernel("find wool-vmm"))?;
        let Some(mover) = fork_single_threaded().map_err(kernel("fork"))? else {
            let end = MonitorEnds {
                channel: theirs.as_fd(),
                stderr: stderr_end.as_fd(),
                tell: tell.as_fd(),
            };
            if let Err(error) = self.move_in(group, &end, namespace.as_fd(), &program) {
                spawn::report(tell.as_fd(), &error);
            }
            exit_now(1);
        };
        drop((tell, stderr_end));
        reap(mover);
        let said = spawn::listen(told.as_fd());
        if let Some(error) = said.failure {
            said.moved.into_iter().for_each(reap);
            return Err(error.into());
        }
        let process = spawn::hold(said.moved.ok_or_else(spawn::ended_early)?)
            .map_err(kernel("open process"))?;
        Ok((ours, process, stderr))
    }

    /// Runs in the mover; goes on in the later monitor. Returns only with an error, and only in the
    /// mover.
    fn move_in(
        &self,
        group: &Group,
        ends: &MonitorEnds<'_>,
        namespace: BorrowedFd<'_>,
        program: &CString,
    ) -> Result<(), SpawnError> {
        // Before the fork: pages touched before joining would stay charged to the warden.
        self.cgroups.enter_as_sandbox(group).map_err(failed("enter cgroup"))?;
        confine::leave_session(self.host.isolation);
        self.namespaces.enter_processes().map_err(failed("enter the sandboxes' processes"))?;
        let pid = spawn::clone(libc::CLONE_PARENT).map_err(failed("clone"))?;
        if pid > 0 {
            let _ = rustix::io::write(ends.tell, format!("P{pid}").as_bytes());
            exit_now(0);
        }
        let [network, ipc, uts, mount] = self.namespaces.descriptors();
        let more = [network, ipc, uts, mount, namespace];
        let arranged =
            spawn::arrange_descriptors(ends.channel, (None, Some(ends.stderr)), ends.tell, &more);
        // SAFETY: this process executes the monitor or ends, and drops nothing that owns a
        // descriptor.
        let (tell, error) = match arranged.and_then(|()| unsafe { close_from(FIRST_UNUSED) }) {
            Ok(()) => {
                default_signals();
                let error =
                    failed("execute wool-vmm")(spawn::exec(std::slice::from_ref(program), &[]));
                // SAFETY: descriptor 4 is the socket, or closed: then the error is lost.
                (unsafe { BorrowedFd::borrow_raw(spawn::TELL) }, error)
            }
            // The worker's socket may still be at that number.
            Err(error) => (ends.tell, failed("arrange descriptors")(error)),
        };
        spawn::report(tell, &error);
        exit_now(1)
    }
}

/// The child's ends of its sockets.
struct MonitorEnds<'a> {
    channel: BorrowedFd<'a>,
    stderr: BorrowedFd<'a>,
    tell: BorrowedFd<'a>,
}
