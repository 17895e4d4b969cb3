//! The place where all sandboxes live: namespaces that hold nothing.
//!
//! - P, a PID namespace whose pid 1 is ours: it does nothing but exist, has no capability and a uid of its own. Orphans
//!   become its children and are reaped by the kernel. When it dies, everything in P dies.
//! - M, a mount namespace with one empty read-only tmpfs. It belongs to the initial user namespace: a zygote that
//!   enters a slot's user namespace, unshares and walks back finds an empty directory and not the host's root.
//! - an empty network namespace with loopback down, an IPC and a UTS namespace.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::process::{chdir, pivot_root};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sys::process::{PidFd, become_user, die_with_parent, drop_capabilities, set_undumpable};
use thiserror::Error;

use crate::uids;

/// Why the place could not be made.
#[derive(Debug, Error)]
#[error("make the sandboxes' place: {step}")]
pub struct PlaceError {
    step: &'static str,
    source: io::Error,
}

fn step<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> PlaceError {
    move |source| PlaceError { step, source: source.into() }
}

/// See the module's own words. Dropping it ends every sandbox.
#[derive(Debug)]
pub struct Place {
    pid_one: PidFd,
    pid: OwnedFd,
    network: OwnedFd,
    ipc: OwnedFd,
    uts: OwnedFd,
    mount: OwnedFd,
}

impl Place {
    /// Makes it. `empty` is an existing directory to mount the empty file system on, in the child's own mount
    /// namespace.
    ///
    /// # Errors
    /// When the caller lacks a privilege or the host a namespace.
    pub fn new(empty: &Path) -> Result<Self, PlaceError> {
        let (read, write) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(step("pipe"))?;
        let flags = libc::CLONE_NEWPID
            | libc::CLONE_NEWNET
            | libc::CLONE_NEWNS
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS
            | libc::SIGCHLD;
        // SAFETY: a fork of a process with one thread: the child may go on with anything.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        if pid < 0 {
            return Err(step("clone")(io::Error::last_os_error()));
        }
        if pid == 0 {
            be_pid_one(empty, &write);
        }
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
        })
    }

    /// Whether pid 1 lives; if not, nothing can be started here any more.
    #[must_use]
    pub fn alive(&self) -> bool {
        self.pid_one.alive()
    }

    /// Whether the process has a PID namespace of its own below P. One that lives in P itself would get a `/proc` with
    /// everybody's processes.
    #[must_use]
    pub fn holds_apart(&self, pid: i32) -> bool {
        let ours = rustix::fs::fstat(&self.pid);
        let theirs = rustix::fs::stat(format!("/proc/{pid}/ns/pid"));
        ours.is_ok_and(|ours| theirs.is_ok_and(|theirs| theirs.st_ino != ours.st_ino))
    }

    /// Runs in a child of the warden: moves it into the place and into `root`. Processes that it makes from now on
    /// are in P.
    ///
    /// # Errors
    /// As `setns(2)`.
    pub fn enter(&self, root: BorrowedFd<'_>) -> io::Result<()> {
        // The mount namespace last: it takes the working directory and root along.
        for (fd, kind) in [
            (&self.pid, LinkNameSpaceType::ProcessID),
            (&self.network, LinkNameSpaceType::Network),
            (&self.ipc, LinkNameSpaceType::InterProcessCommunication),
            (&self.uts, LinkNameSpaceType::HostNameAndNISDomainName),
            (&self.mount, LinkNameSpaceType::Mount),
        ] {
            move_into_link_name_space(fd.as_fd(), Some(kind))?;
        }
        rustix::process::fchdir(root)?;
        Ok(rustix::process::chroot(".")?)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.pid_one.kill();
        // With pid 1 go all that are in P, among them the warden's other children. At most two seconds: nobody else
        // reaps what is left behind in a container without an init of its own.
        for _ in 0..1000 {
            // SAFETY: no status is asked for.
            match unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } {
                0 => std::thread::sleep(std::time::Duration::from_millis(2)),
                -1 => return,
                _ => {}
            }
        }
    }
}

/// Runs in the child that becomes pid 1 of P.
fn be_pid_one(empty: &Path, ready: &OwnedFd) -> ! {
    let prepared = (|| -> io::Result<()> {
        die_with_parent()?;
        mount_nothing(empty)?;
        rustix::system::sethostname(b"sandbox")?;
        rustix::io::write(ready, b"r")?;
        // SAFETY: this process uses none of the descriptors that it inherited.
        unsafe { sys::process::close_from(0) }?;
        become_user(uids::FIRST - 1)?;
        drop_capabilities()?;
        set_undumpable()?;
        // The change of ids has cleared it.
        die_with_parent()?;
        // SAFETY: the kernel then reaps orphans by itself.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        Ok(())
    })();
    if prepared.is_err() {
        // SAFETY: ends the process.
        unsafe { libc::_exit(1) };
    }
    loop {
        // SAFETY: waits for a signal.
        unsafe { libc::pause() };
    }
}

fn mount_nothing(empty: &Path) -> io::Result<()> {
    use rustix::mount::{
        MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
    };
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
    let options = CString::new("size=4k,mode=555")?;
    mount("none", empty, "tmpfs", flags, Some(options.as_c_str()))?;
    chdir(empty)?;
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    Ok(chdir("/")?)
}
