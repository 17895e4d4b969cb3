//! Starting the warden: the only moment at which privilege is needed.
//!
//! ```text
//!   root                  wool up ─► wool-warden
//!   root, for an account  wool-warden --await, then wool up as that account
//!   a user                wool up ─► sudo ─► wool-warden --detach ─► itself, in a session of its own
//!                           │          │ ◄──── "it serves" ─────────────┘
//!                           │ ◄─ ends ─┘
//!                           └── lends sudo its terminal meanwhile
//! ```
//! In each case the warden connects to a socket in the state directory, and ends when the worker
//! closes that connection.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
    sockopt::socket_peercred,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use sys::terminal::{self, LentTerminal};
use thiserror::Error;
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};
use warden::isolation::Isolation;

use crate::watch::watch;

/// Timeout of the start: long enough for a person to type a password.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(300);

/// Options of a warden's start.
#[derive(Clone, Debug)]
pub struct WardenOptions {
    /// The `wool-warden` program.
    pub program: PathBuf,
    /// The state directory, absolute.
    pub state: PathBuf,
    /// The isolation recipe of its sandboxes.
    pub isolation: Isolation,
    /// The pid of a warden that root has started already: see [`start_waiting`].
    pub waiting: Option<i32>,
}

/// Why the warden did not start.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// The program cannot be executed.
    #[error("{program} cannot be started; it belongs beside `wool`")]
    Start {
        /// Path of the program.
        program: String,
        /// The error of the exec.
        source: io::Error,
    },
    /// The warden's socket could not be made.
    #[error("make the warden's socket in {dir}")]
    Socket {
        /// The directory of the socket.
        dir: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// This user is not root, and there is no sudo.
    #[error("the warden needs root, and there is no sudo: install it, or run this as root")]
    NoSudo,
    /// The warden ended before it connected.
    #[error("the warden ended at once ({status}); its own words are above")]
    Ended {
        /// Its exit status or signal.
        status: String,
    },
    /// The warden did not start through sudo, which may have printed the reason.
    #[error(
        "the warden did not start through sudo ({status}), whose words are above: have sudo allow this user {program}, or run this as root"
    )]
    Refused {
        /// Path of the program.
        program: String,
        /// Exit status of sudo.
        status: String,
    },
    /// A directory of the warden could not be made.
    #[error("make {dir}")]
    Directory {
        /// Path of the directory.
        dir: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A process that is not root's connected to the warden's socket.
    #[error("a process of user {uid} reached the warden's socket in its place")]
    Impostor {
        /// User id of that process.
        uid: u32,
    },
}

/// A started warden.
#[derive(Debug)]
pub enum WardenProcess {
    /// A child of ours.
    Child(Child),
    /// Started through sudo, which has ended: otherwise it would end the warden with the terminal.
    Detached(AsyncFd<OwnedFd>),
}

impl WardenProcess {
    /// Waits for its end. Returns the exit status where that is known.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub async fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        match self {
            Self::Child(child) => child.wait().await.map(Some),
            // A pidfd is readable when its process has ended.
            Self::Detached(pidfd) => pidfd.readable().await.map(|_| None),
        }
    }
}

/// Starts the warden and returns the connected socket: directly when the caller is root, else
/// through `sudo`, which asks for the password on the terminal if it must. The warden logs to
/// standard error.
///
/// # Errors
/// See [`LaunchError`].
pub async fn launch(options: &WardenOptions) -> Result<(OwnedFd, WardenProcess), LaunchError> {
    // Made by the worker, so that they are the user's and not root's. The first is also the lock of
    // wardens.
    for name in ["run", "run/empty", "run/stages"] {
        let dir = options.state.join(name);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.map_err(|source| LaunchError::Directory { dir, source })?;
    }
    let path = options.socket();
    let broken = |source| LaunchError::Socket { dir: options.state.join("run"), source };
    let listener = listen_at(&path).map_err(broken)?;
    if let Some(pid) = options.waiting {
        let warden =
            Pid::from_raw(pid).ok_or_else(|| broken(io::ErrorKind::InvalidInput.into()))?;
        let warden = pidfd_open(warden, PidfdFlags::empty()).map_err(io::Error::from);
        let warden = warden.and_then(watch).map_err(broken)?;
        let socket = loop {
            let socket = tokio::select! {
                accepted = accept(&listener) => accepted.map_err(broken)?,
                _ = warden.readable() => return Err(LaunchError::Ended { status: "unknown".to_owned() }),
            };
            // The warden of another start that lost the race for this directory ends when its
            // connection does, and lets the awaited one go on.
            if checked(&socket).map_err(broken)??.as_raw_nonzero().get() == pid {
                break socket;
            }
        };
        let _ = std::fs::remove_file(&path);
        return Ok((socket, WardenProcess::Detached(warden)));
    }
    let mut command = as_root(&options.program)?;
    tell(&mut command, options);
    // Ctrl-C is for the worker, which then drains: the warden ends when the worker's socket closes.
    // The warden makes a session for itself, which a group's leader cannot.
    if !is_root() {
        command.process_group(0);
    }
    let (accepted, child) = if is_root() {
        let mut child = command.spawn().map_err(not_started(&options.program))?;
        tokio::select! {
            accepted = accept(&listener) => (accepted, Some(child)),
            status = child.wait() => return Err(ended(&options.program, status)),
        }
    } else {
        through_sudo(&mut command, &options.program).await?;
        (accept(&listener).await, None)
    };
    let _ = std::fs::remove_file(&path);
    let socket = accepted.map_err(broken)?;
    let peer = checked(&socket).map_err(broken)??;
    let process = match child {
        Some(child) => WardenProcess::Child(child),
        None => {
            let pidfd = pidfd_open(peer, PidfdFlags::empty()).map_err(io::Error::from);
            WardenProcess::Detached(pidfd.and_then(watch).map_err(broken)?)
        }
    };
    Ok((socket, process))
}

/// Starts a warden that waits at most a minute for its worker, which this process becomes. Needs
/// root. Returns the warden's pid. With `apart` its output is discarded: a worker in the background
/// must not hold its starter's output open.
///
/// # Errors
/// When it cannot be started.
pub fn start_waiting(options: &WardenOptions, apart: bool) -> Result<u32, LaunchError> {
    let mut command = by_root(&options.program);
    tell(&mut command, options);
    command.arg("--await").stdout(Stdio::null());
    if apart {
        command.stderr(Stdio::null());
    }
    let child = command.as_std_mut().spawn().map_err(not_started(&options.program))?;
    Ok(child.id())
}

/// Adds the arguments of every start.
fn tell(command: &mut Command, options: &WardenOptions) {
    command.arg("--state").arg(&options.state).arg("--socket").arg(options.socket());
    command.arg("--isolation").arg(options.isolation.to_string());
    command.stdin(Stdio::null());
}

/// The process at the other end, if that is root's.
fn checked(socket: &OwnedFd) -> io::Result<Result<Pid, LaunchError>> {
    let peer = socket_peercred(socket)?;
    if peer.uid.is_root() {
        return Ok(Ok(peer.pid));
    }
    Ok(Err(LaunchError::Impostor { uid: peer.uid.as_raw() }))
}

impl WardenOptions {
    /// Path of the socket at which the worker waits.
    fn socket(&self) -> PathBuf {
        self.state.join("run/warden.sock")
    }
}

/// Runs sudo to its end: the warden has then connected, and detached itself.
async fn through_sudo(command: &mut Command, program: &Path) -> Result<(), LaunchError> {
    command.arg("--detach");
    // sudo asks for a password in the foreground; everything else happens in the background.
    let lent = LentTerminal::ours();
    if let Some(lent) = &lent {
        let terminal = lent.terminal().as_raw_fd();
        // SAFETY: the descriptor is open until `lent` is dropped, in the child as well.
        let take = move || terminal::take(unsafe { BorrowedFd::borrow_raw(terminal) });
        // SAFETY: `take` is async-signal-safe, as it says.
        unsafe { command.pre_exec(take) };
    }
    let mut sudo = command.spawn().map_err(not_started(program))?;
    match tokio::time::timeout(LAUNCH_TIMEOUT, sudo.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(status) => Err(ended(program, status)),
        Err(_) => Err(ended(program, Err(io::ErrorKind::TimedOut.into()))),
    }
}

/// Removes what a killed warden has left of its sandboxes. No worker may run on `state`.
///
/// # Errors
/// When the warden cannot be started for it, or root is not granted.
pub async fn clear_leftovers(program: &Path, state: &Path) -> Result<(), LaunchError> {
    if !warden::recover::is_anything_left(state) {
        return Ok(());
    }
    let mut command = as_root(program)?;
    let mut child =
        command.arg("--state").arg(state).arg("--clear").spawn().map_err(not_started(program))?;
    match child.wait().await {
        Ok(status) if status.success() => Ok(()),
        other => Err(ended(program, other)),
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The command for root itself. A warden that finds `SUDO_UID` serves that user alone.
fn by_root(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_remove("SUDO_UID");
    command
}

/// The command as root, through sudo where the caller is not root.
fn as_root(program: &Path) -> Result<Command, LaunchError> {
    if is_root() {
        return Ok(by_root(program));
    }
    // Otherwise sudo would have to report that the program is missing.
    std::fs::metadata(program).map_err(not_started(program))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|dir| dir.join("sudo").is_file()) {
        return Err(LaunchError::NoSudo);
    }
    tracing::info!("starting the warden through sudo: namespaces, mounts and cgroups need root");
    let mut sudo = Command::new("sudo");
    let prompt = "wool needs root once, for the sandboxes' warden. Password of %p: ";
    sudo.args(["--prompt", prompt, "--"]).arg(program);
    Ok(sudo)
}

fn not_started(program: &Path) -> impl FnOnce(io::Error) -> LaunchError {
    let program = program.display().to_string();
    move |source| LaunchError::Start { program, source }
}

fn ended(program: &Path, status: io::Result<ExitStatus>) -> LaunchError {
    let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
    if is_root() {
        return LaunchError::Ended { status };
    }
    LaunchError::Refused { program: program.display().to_string(), status }
}

fn listen_at(path: &Path) -> io::Result<AsyncFd<OwnedFd>> {
    let _ = std::fs::remove_file(path);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, 1)?;
    watch(socket)
}

async fn accept(listener: &AsyncFd<OwnedFd>) -> io::Result<OwnedFd> {
    let accept = |fd: &OwnedFd| Ok(accept_with(fd.as_fd(), SocketFlags::CLOEXEC)?);
    tokio::time::timeout(LAUNCH_TIMEOUT, listener.async_io(tokio::io::Interest::READABLE, accept))
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
