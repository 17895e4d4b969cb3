//! Starting an interpreter from nothing: a root zygote, or an instance without one.
//!
//! ```text
//!   warden ─ fork ─► mover                       joins the cgroups, enters the namespaces and the root
//!     │                └─ clone(CLONE_PARENT) ─► in P; a zygote: the later interpreter
//!     │ ◄── its pid ────── exits                     └─ an instance: clone(CLONE_PARENT | CLONE_NEWPID), exits
//!     │ ◄── "I", with the kernel's credentials ────────── later interpreter, in a PID namespace of its own
//!     │ ─── a user namespace, where none was ready ─────► │
//!     │                                              │ limits; an instance: its user namespace
//!     │                                              │ ids, no capability, no new privileges
//!     │                                              │ Landlock, seccomp
//!     │ ◄── close-on-exec socket: step or nothing ── ▼ exec
//! ```
//! The second clone is needed because the kernel makes a PID namespace only below the one that the
//! caller itself lives in (`copy_pid_ns`: else EINVAL), and the mover lives in the host's. All of
//! them are the warden's own children. Everything is in place before Python is executed. A failed
//! step is reported through the socket.

use std::ffi::CString;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use sys::namespace::{IdMap, Parent, user_namespace};
use sys::process::{
    PidFd, become_user, become_user_with_capabilities, close_from, default_signals,
    drop_capabilities, exit_now, fork_single_threaded, install_filter, reap, set_no_new_privileges,
};
use sys::scm;
use thiserror::Error;

use crate::cgroup::{Cgroups, Group};
use crate::confine;
use crate::confine::filter::Role;
use crate::confine::filter::program::Program;
use crate::defence::Defence;
use crate::isolation::{Isolation, Namespaces};
use crate::limits::Network;
use crate::process::shared_namespaces::SharedNamespaces;
use crate::rootfs::mount_proc;
use crate::rootfs::root::Root;
use crate::uids::INNER;

/// The number of the guest's channel.
const CHANNEL: i32 = 3;
/// The number of the socket for a failed step; closed by the exec.
pub(crate) const TELL: i32 = 4;

/// The number of its user namespace, if it has one, until it has entered that.
const NAMESPACE: i32 = 5;

/// Everything needed to start an interpreter.
#[derive(Debug)]
pub struct Start<'a> {
    /// Zygote or instance.
    pub role: Role,
    /// The interpreter's path in the root.
    pub interpreter: &'a str,
    /// The root that it runs in.
    pub root: &'a Root,
    /// The isolation recipe.
    pub isolation: Isolation,
    /// The network that it is in.
    pub network: Network,
    /// The guest's end of the channel.
    pub channel: BorrowedFd<'a>,
    /// An instance's descriptors 1 and 2.
    pub output: Option<BorrowedFd<'a>>,
    /// The kernel uid that it runs as.
    pub uid: u32,
    /// The user namespace that it enters.
    pub namespace: &'a UserNamespace,
    /// The cgroup that it is charged to.
    pub group: &'a Group,
    /// The system-call filter.
    pub filter: &'a Program,
}

/// The user namespace of a sandbox that is started from nothing. In one of its own, an instance's
/// uid is [`INNER`], as a fork's is.
#[derive(Debug)]
pub enum UserNamespace {
    /// The warden's: for a zygote, whose forks get namespaces of their own, and for an instance
    /// that keeps its capabilities to show what that defence is worth.
    Initial,
    /// Made ahead of the start.
    Ready(OwnedFd),
    /// Made with this map during the start.
    Awaited(IdMap),
}

/// The step of a start that failed.
#[derive(Debug, Error)]
#[error("{step}")]
pub struct SpawnError {
    /// The name of the step.
    pub step: String,
    /// The error of that step.
    pub source: io::Error,
}

pub(crate) fn failed(step: &str) -> impl FnOnce(io::Error) -> SpawnError {
    move |source| SpawnError { step: step.to_owned(), source }
}

/// All processes ended without a report: they were killed.
pub(crate) fn ended_early() -> SpawnError {
    failed("start")(io::Error::from_raw_os_error(libc::ESRCH))
}

/// Starts the interpreter. Returns its process, and, where it has no other output, the reading end
/// of its standard error.
///
/// # Errors
/// The step that failed, in any of the processes.
pub fn start(
    namespaces: &SharedNamespaces,
    cgroups: &Cgroups,
    what: &Start<'_>,
) -> Result<(PidFd, Option<OwnedFd>), SpawnError> {
    // With the sender's credentials: an instance knows only its number in its own namespace.
    let (told, tell) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|error| failed("socket pair")(error.into()))?;
    scm::want_credentials(told.as_fd(), true).map_err(failed("ask for credentials"))?;
    let pipe = match what.output {
        Some(_) => None,
        // Never blocks the interpreter, even if no process reads.
        None => Some(
            pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
                .map_err(|error| failed("pipe")(error.into()))?,
        ),
    };
    let (stderr, stderr_end) = pipe.unzip();
    let streams = (what.output, what.output.or(stderr_end.as_ref().map(AsFd::as_fd)));
    let Some(mover) = fork_single_threaded().map_err(failed("fork"))? else {
        // Else the children would keep the warden's end open, and never see it close.
        drop(told);
        if let Err(error) = move_in(namespaces, cgroups, what, streams, tell.as_fd()) {
            report(tell.as_fd(), &error);
        }
        exit_now(1);
    };
    drop((tell, stderr_end));
    let unsent = send_awaited(what.namespace, told.as_fd()).err();
    reap(mover);
    let ChildReports { moved, instance, failure } = listen(told.as_fd());
    let failure = unsent.or(failure);
    let interpreter = match what.role {
        Role::Zygote => moved,
        Role::Instance => {
            if let Some(between) = moved {
                reap(between);
            }
            instance
        }
    };
    if let Some(error) = failure {
        if let Some(pid) = interpreter {
            reap(pid);
        }
        return Err(error);
    }
    let pid = interpreter.ok_or_else(ended_early)?;
    let process = hold(pid).map_err(failed("open process"))?;
    Ok((process, stderr))
}

/// Makes the namespace that a sandbox waits for, and sends it. On an error the sandbox stops
/// waiting and ends.
fn send_awaited(namespace: &UserNamespace, told: BorrowedFd<'_>) -> Result<(), SpawnError> {
    let UserNamespace::Awaited(map) = namespace else { return Ok(()) };
    let made = user_namespace(Parent::Initial, map.outside, *map);
    let sent = made.map_err(failed("make user namespace")).and_then(|namespace| {
        match scm::send(told, b"N", &[namespace.as_fd()], true) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(failed("send user namespace")(error))
            }
            _ => Ok(()),
        }
    });
    if sent.is_err() {
        let _ = rustix::net::shutdown(told, Shutdown::Write);
    }
    sent
}

/// A pidfd of a child. If there is none to be had, the child is killed and reaped before this
/// returns: its uid and its cgroup are used again.
pub(crate) fn hold(pid: i32) -> io::Result<PidFd> {
    PidFd::open(pid).inspect_err(|_| {
        // SAFETY: an unreaped child of this process: the number is no other's.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        reap(pid);
    })
}

/// The reports of the child processes.
#[derive(Default)]
pub(crate) struct ChildReports {
    /// The process that the mover made in P.
    pub(crate) moved: Option<i32>,
    /// The process that this one made in a namespace of its own.
    instance: Option<i32>,
    pub(crate) failure: Option<SpawnError>,
}

/// Listens until the last of them has executed or ended. Reports of two processes come in any
/// order.
pub(crate) fn listen(told: BorrowedFd<'_>) -> ChildReports {
    let mut all = ChildReports::default();
    let mut bytes = [0u8; 512];
    loop {
        let received = match scm::receive(told, &mut bytes, true) {
            Ok(received) => received,
            // A child ended without reading the namespace that was sent to it. The kernel says so
            // once, before the children's messages.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => continue,
            Err(_) => break,
        };
        let said = String::from_utf8_lossy(&bytes[..received.length]);
        if said.is_empty() {
            break;
        } else if let Some(number) = said.strip_prefix('P') {
            all.moved = number.parse().ok();
        } else if said == "I" {
            all.instance = received.credentials.map(|sender| sender.pid);
        } else if let Some((code, step)) = said.strip_prefix('E').and_then(|l| l.split_once(' ')) {
            let source = io::Error::from_raw_os_error(code.parse().unwrap_or(libc::EIO));
            all.failure = Some(SpawnError { step: step.to_owned(), source });
        }
    }
    all
}

pub(crate) fn report(tell: BorrowedFd<'_>, error: &SpawnError) {
    let code = error.source.raw_os_error().unwrap_or(0);
    let _ = rustix::io::write(tell, format!("E{code} {}", error.step).as_bytes());
}

/// Runs in the mover; goes on in the later interpreter. Returns only with an error, and only in the
/// mover.
fn move_in(
    namespaces: &SharedNamespaces,
    cgroups: &Cgroups,
    what: &Start<'_>,
    streams: Streams<'_>,
    tell: BorrowedFd<'_>,
) -> Result<(), SpawnError> {
    // Before the fork: pages touched before joining would stay charged to the warden.
    cgroups.enter_as_sandbox(what.group).map_err(failed("enter cgroup"))?;
    confine::leave_session(what.isolation);
    confine::die_first(what.isolation);
    let own = what.network.own(what.role == Role::Instance, what.isolation.own);
    namespaces
        .enter(what.root, own, what.network)
        .map_err(failed("enter the shared namespaces"))?;
    let pid = clone(libc::CLONE_PARENT).map_err(failed("clone"))?;
    if pid > 0 {
        let _ = rustix::io::write(tell, format!("P{pid}").as_bytes());
        exit_now(0);
    }
    if what.role == Role::Instance {
        let apart = if what.isolation.has(Defence::PidNamespace) { libc::CLONE_NEWPID } else { 0 };
        match clone(libc::CLONE_PARENT | apart) {
            Ok(0) => drop(rustix::io::write(tell, b"I")),
            made => {
                if let Err(error) = made {
                    report(tell, &failed("clone into a pid namespace")(error));
                }
                // The process in between.
                exit_now(0);
            }
        }
    }
    let (tell, error) = match furnish(what, streams, tell) {
        // SAFETY: descriptor 4 is the socket, or closed: then the error is lost.
        Ok(()) => (unsafe { BorrowedFd::borrow_raw(TELL) }, become_interpreter(what)),
        // The worker's socket may still be at that number.
        Err(error) => (tell, error),
    };
    report(tell, &error);
    exit_now(1)
}

/// Runs in the later interpreter, in its PID namespace.
fn furnish(what: &Start<'_>, streams: Streams<'_>, tell: BorrowedFd<'_>) -> Result<(), SpawnError> {
    if what.isolation.own.has(Namespaces::MOUNT) {
        // The warden cannot attach it to a root in another mount namespace than its own.
        mount_proc(what.isolation).map_err(failed("mount /proc"))?;
    }
    let more = match what.namespace {
        UserNamespace::Ready(namespace) => Some(namespace.as_fd()),
        UserNamespace::Initial | UserNamespace::Awaited(_) => None,
    };
    arrange_descriptors(what.channel, streams, tell, more.as_slice())
        .map_err(failed("arrange descriptors"))?;
    if what.isolation.has(Defence::CloseDescriptors) {
        let first = if more.is_some() { 6 } else { 5 };
        // SAFETY: this process executes an interpreter or ends, and drops nothing that owns a
        // descriptor.
        unsafe { close_from(first) }.map_err(failed("close descriptors"))?;
    }
    Ok(())
}

/// A fork with flags. Returns 0 in the child.
pub(crate) fn clone(flags: i32) -> io::Result<i32> {
    // SAFETY: a fork of a process with one thread.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags | libc::SIGCHLD, 0, 0, 0, 0) };
    if pid < 0 {
        Err(io::Error::last_os_error())
    } else {
        i32::try_from(pid).map_err(io::Error::other)
    }
}

/// Runs in the later interpreter, with its descriptors arranged. Returns only with an error.
fn become_interpreter(what: &Start<'_>) -> SpawnError {
    default_signals();
    let confine = || -> Result<(), SpawnError> {
        confine::limit_resources(what.isolation).map_err(failed("limit resources"))?;
        let uid = enter_user_namespace(what).map_err(failed("enter user namespace"))?;
        if what.isolation.has(Defence::Capabilities) {
            become_user(uid).map_err(failed("take user id"))?;
            drop_capabilities().map_err(failed("drop capabilities"))?;
        } else {
            become_user_with_capabilities(uid).map_err(failed("take user id"))?;
        }
        set_no_new_privileges().map_err(failed("give up privileges"))?;
        confine::restrict_network(what.isolation, what.network)
            .map_err(failed("restrict by Landlock"))?;
        let argv = arguments(what).map_err(failed("name the interpreter"))?;
        let environment = confine::environment(what.isolation, what.role)
            .map_err(failed("name the environment"))?;
        // Last: from here on only listed calls are allowed.
        install_filter(what.filter).map_err(failed("install filter"))?;
        Err(failed("execute the interpreter")(exec(&argv, &environment)))
    };
    match confine() {
        Err(error) => error,
        Ok(()) => failed("execute the interpreter")(io::ErrorKind::Other.into()),
    }
}

/// Enters the user namespace, if the sandbox has one of its own, and closes it. From here on its
/// capabilities belong to that namespace alone. Returns the uid to take.
fn enter_user_namespace(what: &Start<'_>) -> io::Result<u32> {
    let namespace = match what.namespace {
        UserNamespace::Initial => return Ok(what.uid),
        // SAFETY: `furnish` put it there; nothing else owns it in this process.
        UserNamespace::Ready(_) => unsafe { OwnedFd::from_raw_fd(NAMESPACE) },
        UserNamespace::Awaited(_) => receive_namespace()?,
    };
    let kind = Some(rustix::thread::LinkNameSpaceType::User);
    rustix::thread::move_into_link_name_space(namespace.as_fd(), kind)?;
    Ok(INNER)
}

/// Waits for the namespace that [`send_awaited`] sends.
fn receive_namespace() -> io::Result<OwnedFd> {
    // SAFETY: `furnish` put the socket there, and it is closed by the exec alone.
    let tell = unsafe { BorrowedFd::borrow_raw(TELL) };
    let received = scm::receive(tell, &mut [0; 1], true)?;
    received.fds?.pop().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// The later descriptors 1 and 2; none: `/dev/null`.
pub(crate) type Streams<'a> = (Option<BorrowedFd<'a>>, Option<BorrowedFd<'a>>);

/// Arranges descriptors: 0 is `/dev/null`, 1 and 2 the output, 3 the channel, 4 the socket for
/// errors, from 5 on `more`. The caller closes those above.
pub(crate) fn arrange_descriptors(
    channel: BorrowedFd<'_>,
    (stdout, stderr): Streams<'_>,
    tell: BorrowedFd<'_>,
    more: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let null = ManuallyDrop::new(null);
    // First out of the way of 0..4: a descriptor that is to be moved may be where another is to go.
    let high =
        |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 16).map(IntoRawFd::into_raw_fd);
    let (null, channel, tell) = (high(null.as_fd())?, high(channel)?, high(tell)?);
    let (stdout, stderr) = (stdout.map_or(Ok(null), high)?, stderr.map_or(Ok(null), high)?);
    let more = more.iter().map(|fd| high(*fd)).collect::<Result<Vec<_>, _>>()?;
    let fixed = [
        (null, 0, 0),
        (stdout, 1, 0),
        (stderr, 2, 0),
        (channel, CHANNEL, 0),
        (tell, TELL, libc::O_CLOEXEC),
    ];
    let more = more.into_iter().zip(TELL + 1..).map(|(fd, number)| (fd, number, 0));
    for (fd, number, flags) in fixed.into_iter().chain(more) {
        // SAFETY: plain numbers; no code in this process uses what was at `number` any more.
        if unsafe { libc::dup3(fd, number, flags) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn arguments(what: &Start<'_>) -> io::Result<Vec<CString>> {
    let program: &[&str] = match what.role {
        Role::Zygote => &["/opt/lambswool/lambswool_guest/__main__.py", "zygote"],
        Role::Instance => &["/opt/lambswool/instance.pyc"],
    };
    let words = [what.interpreter, "-I", "-S", "-B"].into_iter().chain(program.iter().copied());
    words.map(|word| Ok(CString::new(word)?)).collect()
}

pub(crate) fn exec(argv: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
        list.iter().map(|entry| entry.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, variables) = (pointers(argv), pointers(environment));
    let Some(program) = argv.first() else {
        return io::ErrorKind::InvalidInput.into();
    };
    // SAFETY: both arrays end with null and point at strings that outlive the call.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), variables.as_ptr()) };
    io::Error::last_os_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_reads_nothing_is_heard_when_it_ends() {
        let (told, tell) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        scm::send(told.as_fd(), b"N", &[], true).unwrap();
        report(tell.as_fd(), &failed("arrange descriptors")(io::ErrorKind::Other.into()));
        drop(tell);
        assert_eq!(listen(told.as_fd()).failure.unwrap().step, "arrange descriptors");
    }

    #[test]
    fn a_sandbox_does_not_wait_for_a_namespace_that_cannot_be_made() {
        let (told, tell) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        // A range that goes on behind the last id.
        let namespace =
            UserNamespace::Awaited(IdMap { inside: INNER, outside: u32::MAX - 1, count: 2 });
        let error = send_awaited(&namespace, told.as_fd()).unwrap_err();
        assert_eq!(error.step, "make user namespace");
        assert_eq!(scm::receive(tell.as_fd(), &mut [0; 1], false).unwrap().length, 0);
        // It can still say how it ended.
        report(tell.as_fd(), &failed("enter user namespace")(io::ErrorKind::UnexpectedEof.into()));
        drop(tell);
        assert_eq!(listen(told.as_fd()).failure.unwrap().step, "enter user namespace");
    }
}
