//! The namespaces that all sandboxes of a warden share. They are empty.
//!
//! - P, a PID namespace whose pid 1 is ours: it waits for the warden's end, has no capability and a
//!   uid of its own. Orphans become its children and are reaped by the kernel. When it dies,
//!   everything in P dies. Before Linux 6.15, where a pidfd does not tell how a process ended, it
//!   reaps them itself and reports to the warden through a pipe.
//! - M, a mount namespace with one empty read-only tmpfs. It belongs to the initial user namespace:
//!   a zygote that enters a slot's user namespace, unshares and walks back finds an empty directory
//!   and not the host's root.
//! - an empty network namespace with loopback down, whose `/proc/<pid>/net` is unreadable inside;
//!   an IPC and a UTS namespace.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{chdir, fchdir, getpid, pivot_root};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sys::mount::Tree;
use sys::namespace::unshare;
use sys::process::{PidFd, become_user, drop_capabilities, exit_now, set_undumpable};
use thiserror::Error;

use crate::defence::Defence;
use crate::isolation::{Isolation, Namespaces};
use crate::limits::Network;
use crate::process::deaths::{DEAD, Deaths, reap_and_tell};
use crate::rootfs::root::Root;
use crate::uids;

/// The number of pid 1's end of the pipe that shows that it lives; below it is [`DEAD`].
const ALIVE_PIPE: i32 = DEAD + 1;

/// The number of the warden's pidfd in pid 1.
const WARDEN: i32 = ALIVE_PIPE + 1;

/// The step at which the namespaces could not be made.
#[derive(Debug, Error)]
#[error("make the shared namespaces: {step}")]
pub struct NamespaceError {
    step: &'static str,
    source: io::Error,
}

fn step<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> NamespaceError {
    move |source| NamespaceError { step, source: source.into() }
}

/// The shared namespaces. Dropping this ends every sandbox.
#[derive(Debug)]
pub struct SharedNamespaces {
    pid_one: PidFd,
    /// A pipe whose other end only pid 1 has.
    held: OwnedFd,
    pid: OwnedFd,
    network: OwnedFd,
    ipc: OwnedFd,
    uts: OwnedFd,
    mount: OwnedFd,
    /// A directory of the warden's mount namespace, to mount on in a copy of it.
    empty: OwnedFd,
    deaths: Option<Deaths>,
}

impl SharedNamespaces {
    /// Makes the namespaces. The empty file system is mounted on the directory `empty` in the
    /// child's own mount namespace; in the caller's, where `empty` was opened, nothing is mounted.
    /// The caller's working directory becomes `/`. With `reap` pid 1 reports deaths: for kernels
    /// that do not.
    ///
    /// # Errors
    /// When the caller lacks a privilege or the host a namespace.
    pub fn new(empty: OwnedFd, reap: bool, isolation: Isolation) -> Result<Self, NamespaceError> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(step("pipe"))?;
        let (deaths, dead) =
            pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(step("pipe"))?;
        let flags = [
            (Defence::NetworkNamespace, libc::CLONE_NEWNET),
            (Defence::IpcNamespace, libc::CLONE_NEWIPC),
            (Defence::EmptyPlace, libc::CLONE_NEWNS),
        ]
        .into_iter()
        .filter(|(defence, _)| isolation.has(*defence))
        .fold(libc::CLONE_NEWPID | libc::CLONE_NEWUTS | libc::SIGCHLD, |all, (_, one)| all | one);
        let warden = PidFd::open(getpid().as_raw_pid()).map_err(step("open the warden"))?;
        // With a mount namespace the child gets its own copy of the working directory. Its path
        // could by then name another directory.
        fchdir(&empty).map_err(step("enter the empty directory"))?;
        // SAFETY: a fork of a process with one thread: the child may run any code.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        if pid < 0 {
            return Err(step("clone")(io::Error::last_os_error()));
        }
        if pid == 0 {
            be_pid_one(&write, reap.then_some(&dead), &warden, isolation);
        }
        chdir("/").map_err(step("leave the empty directory"))?;
        drop(write);
        let pid = i32::try_from(pid).map_err(|_| step("clone")(io::Error::other("pid")))?;
        let pid_one = PidFd::open(pid).map_err(step("open pid 1"))?;
        let mut said = [0u8; 1];
        if rustix::io::read(&read, &mut said).unwrap_or(0) != 1 {
            return Err(step("start pid 1")(io::Error::other("it ended early")));
        }
        let open = |name: &str| File::open(format!("/proc/{pid}/ns/{name}")).map(OwnedFd::from);
        Ok(Self {
            pid: open("pid").map_err(step("open pid namespace"))?,
            network: open("net").map_err(step("open network namespace"))?,
            ipc: open("ipc").map_err(step("open ipc namespace"))?,
            uts: open("uts").map_err(step("open uts namespace"))?,
            mount: open("mnt").map_err(step("open mount namespace"))?,
            pid_one,
            held: read,
            empty,
            deaths: reap.then(|| Deaths::new(deaths)),
        })
    }

    /// The reports of pid 1 about processes that were orphaned in P, where it makes them.
    pub(crate) fn deaths(&mut self) -> Option<&mut Deaths> {
        self.deaths.as_mut()
    }

    /// The number in P of a process, where pid 1 will report its death.
    #[must_use]
    pub fn number_inside(&self, pid: i32) -> Option<i32> {
        self.deaths.as_ref()?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }

    /// Whether pid 1 lives; if not, nothing can be started here any more.
    ///
    /// Its pidfd would tell too late: a dying pid 1 waits for all processes of its namespace, and
    /// those in a version 1 freezer do not die. Its descriptors are closed before that.
    #[must_use]
    pub fn alive(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.held.as_fd(), PollFlags::empty())];
        let _ = poll(&mut fds, Some(&Timespec::default()));
        !fds[0].revents().contains(PollFlags::HUP)
    }

    /// Lets the kernel kill all processes here. Frozen ones (version 1) die when they are thawed.
    pub(crate) fn end(&self) {
        let _ = self.pid_one.kill();
    }

    /// Whether this is the network that sandboxes without one of their own share.
    #[must_use]
    pub(crate) fn is_network(&self, inode: u64) -> bool {
        rustix::fs::fstat(&self.network).map_or(true, |ours| ours.st_ino == inode)
    }

    /// Whether the process has a PID namespace of its own below P. A process in P itself would get
    /// a `/proc` with the processes of every sandbox.
    #[must_use]
    pub fn has_own_pid_namespace(&self, pid: i32) -> bool {
        let ours = rustix::fs::fstat(&self.pid);
        let theirs = rustix::fs::stat(format!("/proc/{pid}/ns/pid"));
        ours.is_ok_and(|ours| theirs.is_ok_and(|theirs| theirs.st_ino != ours.st_ino))
    }

    /// Runs in a child of the warden, in its cgroup: moves it into the shared namespaces, except
    /// for the kinds in `own`, and into `root`. Processes that it makes from now on are in P.
    ///
    /// # Errors
    /// As `setns(2)`, `unshare(2)`, `pivot_root(2)`.
    pub fn enter(&self, root: &Root, own: Namespaces, network: Network) -> io::Result<()> {
        // The mount namespace last: it replaces the working directory and root.
        for (fd, kind, shared) in [
            (&self.pid, LinkNameSpaceType::ProcessID, true),
            (
                &self.network,
                LinkNameSpaceType::Network,
                network != Network::Host && !own.has(Namespaces::NETWORK),
            ),
            (&self.ipc, LinkNameSpaceType::InterProcessCommunication, !own.has(Namespaces::IPC)),
            // A new UTS namespace has the host name of the one before.
            (&self.uts, LinkNameSpaceType::HostNameAndNISDomainName, true),
            (&self.mount, LinkNameSpaceType::Mount, !own.has(Namespaces::MOUNT)),
        ] {
            if shared {
                move_into_link_name_space(fd.as_fd(), Some(kind))?;
            }
        }
        if own.has(Namespaces::MOUNT) {
            // Before the new namespace is made: it has its own copy of the working directory.
            fchdir(if root.is_attached() { root.as_fd() } else { self.empty.as_fd() })?;
        }
        unshare(own.bits())?;
        if own.has(Namespaces::NETWORK) {
            sys::loopback::bring_up()?;
        }
        if own.has(Namespaces::MOUNT) {
            return pivot(root);
        }
        fchdir(root)?;
        Ok(rustix::process::chroot(".")?)
    }

    /// Runs in a child of the warden: processes that it makes from now on are in P.
    ///
    /// # Errors
    /// As `setns(2)`.
    pub(crate) fn enter_processes(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.pid.as_fd(), Some(LinkNameSpaceType::ProcessID))?)
    }

    /// The shared namespaces that a process enters by itself, the mount namespace last.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 4] {
        [&self.network, &self.ipc, &self.uts, &self.mount].map(AsFd::as_fd)
    }
}

impl Drop for SharedNamespaces {
    fn drop(&mut self) {
        self.end();
        // With pid 1 all processes in P die, among them children of the warden; the kernel lets pid
        // 1 wait for these to be reaped, so it is the last. At most two seconds: in a container
        // without an init nothing else reaps the rest.
        for _ in 0..1000 {
            let ended = !self.pid_one.alive();
            // SAFETY: no status is asked for.
            match unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } {
                // A child that is still there is not in P: the guardian.
                0 if ended => return,
                0 => std::thread::sleep(std::time::Duration::from_millis(2)),
                -1 => return,
                _ => {}
            }
        }
    }
}

/// Runs in a child of the warden, in a mount namespace that is a copy of the warden's: makes `root`
/// its whole content. The working directory is the mount point of a root that has one, or else one
/// for it.
fn pivot(root: &Root) -> io::Result<()> {
    if !root.is_attached() {
        let tree = Tree::from(root.as_fd().try_clone_to_owned()?);
        tree.attach(rustix::fs::CWD, ".")?;
        fchdir(root)?;
    }
    leave_all_but_here()
}

/// Runs in the child that becomes pid 1 of P, until the warden has ended.
///
/// A parent-death signal (`prctl(2)`) would be unreliable. The kernel sends it in the name of the
/// dying parent, and drops it where that may not signal the child: the warden has no capability
/// while it opens a file as a zygote's user.
fn be_pid_one(ready: &OwnedFd, dead: Option<&OwnedFd>, warden: &PidFd, isolation: Isolation) -> ! {
    let prepared = (|| -> io::Result<()> {
        if isolation.has(Defence::HiddenSockets) && isolation.has(Defence::NetworkNamespace) {
            hide_sockets()?;
        }
        if isolation.has(Defence::EmptyPlace) {
            mount_nothing()?;
        }
        if !isolation.has(Defence::LoopbackDown) {
            sys::loopback::bring_up()?;
        }
        rustix::system::sethostname(b"sandbox")?;
        rustix::io::write(ready, b"r")?;
        if let Some(dead) = dead {
            // SAFETY: no code uses what is at this number: this process uses nothing else of what
            // it inherited.
            unsafe { libc::dup2(dead.as_raw_fd(), DEAD) };
        }
        // SAFETY: as above.
        unsafe { libc::dup2(ready.as_raw_fd(), ALIVE_PIPE) };
        // SAFETY: as above.
        unsafe { libc::dup2(warden.as_fd().as_raw_fd(), WARDEN) };
        // SAFETY: as above.
        unsafe { sys::process::close_from(WARDEN.unsigned_abs() + 1) }?;
        become_user(uids::FIRST - 1)?;
        drop_capabilities()?;
        set_undumpable()?;
        if dead.is_none() {
            // SAFETY: the kernel then reaps orphans by itself.
            unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        }
        Ok(())
    })();
    if prepared.is_ok() {
        // SAFETY: it stays open until this process ends.
        let warden = unsafe { BorrowedFd::borrow_raw(WARDEN) };
        match dead {
            Some(_) => reap_and_tell(warden),
            None => while !has_ended(warden) {},
        }
    }
    exit_now(prepared.is_err().into())
}

/// Waits for the end of a pidfd's process. False when the wait was interrupted.
fn has_ended(process: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(process, PollFlags::IN)];
    poll(&mut fds, None) == Ok(1)
}

/// Lets only root read `/proc/<pid>/net` of the caller's network namespace. Sandboxes share that
/// namespace, and would see each other's sockets by name there: `subset=pid` does not hide that
/// directory.
fn hide_sockets() -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/net")? {
        let path = entry?.path();
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o500))?;
    }
    Ok(())
}

/// Mounts an empty file system at the working directory and makes it the whole content of the
/// namespace.
fn mount_nothing() -> io::Result<()> {
    use rustix::mount::{MountPropagationFlags, mount_change};
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let tree = Tree::empty_tmpfs()?;
    let root = tree.as_fd().try_clone_to_owned()?;
    tree.attach(rustix::fs::CWD, ".")?;
    fchdir(&root)?;
    leave_all_but_here()
}

/// Makes the mount at the working directory the namespace's root, and detaches all other mounts.
fn leave_all_but_here() -> io::Result<()> {
    pivot_root(".", ".")?;
    rustix::mount::unmount(".", rustix::mount::UnmountFlags::DETACH)?;
    Ok(chdir("/")?)
}

#[cfg(test)]
mod tests {
    use sys::process::as_effective_user;

    use super::*;

    #[test]
    fn pid_1_ends_with_a_warden_that_is_killed_while_it_acts_as_another_user() {
        if !rustix::process::geteuid().is_root() {
            return skips::skip("root", "only root can make namespaces");
        }
        for reap in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
            let empty = std::fs::File::open(dir.path()).unwrap().into();
            // SAFETY: the child makes namespaces as the warden does, and never returns.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                let namespaces = SharedNamespaces::new(empty, reap, Isolation::default());
                let pid_one =
                    namespaces.as_ref().ok().and_then(|namespaces| namespaces.pid_one.identity());
                let _ = as_effective_user(uids::FIRST, || {
                    let pid = pid_one.map_or(0, |who| who.pid);
                    let _ = rustix::io::write(&write, &pid.to_ne_bytes());
                    // SAFETY: waits for the signal that ends it.
                    unsafe { libc::pause() };
                });
                // SAFETY: ends the process.
                unsafe { libc::_exit(1) };
            }
            drop(write);
            let mut said = [0; 4];
            assert_eq!(rustix::io::read(&read, &mut said), Ok(4));
            let pid_one = PidFd::open(i32::from_ne_bytes(said)).unwrap();
            assert!(pid_one.alive());
            PidFd::open(pid).unwrap().kill().unwrap();
            // SAFETY: no status is asked for.
            assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, pid);
            assert!(pid_one.wait(10_000), "it outlives the warden");
        }
    }
}
