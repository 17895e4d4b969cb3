//! Starting the warden: the one moment at which anybody's privilege is asked for.
//!
//! ```text
//!   root    wool up ─► wool-warden
//!   root, for an account  wool-warden --await, then wool up as that account
//!   a user  wool up ─► sudo ─► wool-warden --detach ─► itself, in a session of its own
//!             │          │ ◄──── "it serves" ─────────────┘
//!             │ ◄─ ends ─┘
//!             └── lends sudo its terminal meanwhile
//! ```
//! Either way the warden connects to a socket in the state directory, and ends when the worker closes that connection.

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

/// As long as a person may need for a password.
const PATIENCE: Duration = Duration::from_secs(300);

/// What the warden is started with.
#[derive(Clone, Debug)]
pub struct WardenOptions {
    /// The `wool-warden` program.
    pub program: PathBuf,
    /// The state directory, absolute.
    pub state: PathBuf,
    /// How sandboxes are walled off.
    pub isolation: Isolation,
    /// The process of a warden that root has started already: see [`start_waiting`].
    pub waiting: Option<i32>,
}

/// Why the warden did not come up.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// The program is not there.
    #[error("{program} cannot be started; it belongs beside `wool`")]
    Start {
        /// Which program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// Its socket could not be made.
    #[error("make the warden's socket in {dir}")]
    Socket {
        /// Where.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// This user is not root and cannot become so.
    #[error("the warden needs root, and there is no sudo: install it, or run this as root")]
    NoSudo,
    /// It ended before it said anything.
    #[error("the warden ended at once ({status}); its own words are above")]
    Ended {
        /// How.
        status: String,
    },
    /// The same, where sudo may have had the last word.
    #[error(
        "the warden did not start through sudo ({status}), whose words are above: have sudo allow this user {program}, or run this as root"
    )]
    Refused {
        /// Which program.
        program: String,
        /// How sudo ended.
        status: String,
    },
    /// A directory of its could not be made.
    #[error("make {dir}")]
    Directory {
        /// Which.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody who is not root reached its socket.
    #[error("a process of user {uid} reached the warden's socket in its place")]
    Impostor {
        /// Who.
        uid: u32,
    },
}

/// The warden, as who has started it sees it.
#[derive(Debug)]
pub enum WardenProcess {
    /// A child of ours.
    Child(Child),
    /// Started through sudo, which has ended: it would end the warden with the terminal.
    Detached(AsyncFd<OwnedFd>),
}

impl WardenProcess {
    /// Waits for its end, and says how it ended where that can be known.
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

/// Starts the warden and returns the connected socket: directly when the caller is root, else through `sudo`, which
/// asks for the password on the terminal if it must. The warden's own words go to standard error.
///
/// # Errors
/// See [`LaunchError`].
pub async fn launch(options: &WardenOptions) -> Result<(OwnedFd, WardenProcess), LaunchError> {
    // By the worker, so that they are the user's and not root's. The first is the wardens' lock as well.
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
        let socket = tokio::select! {
            accepted = accept(&listener) => accepted.map_err(broken)?,
            _ = warden.readable() => return Err(LaunchError::Ended { status: "unknown".to_owned() }),
        };
        let _ = std::fs::remove_file(&path);
        checked(&socket).map_err(broken)??;
        return Ok((socket, WardenProcess::Detached(warden)));
    }
    let mut command = as_root(&options.program)?;
    tell(&mut command, options);
    // Ctrl-C is for the worker, which then drains: the warden goes when the worker's socket closes. It makes a session for
    // itself, which a group's leader cannot.
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

/// Starts a warden that waits for its worker, which this process becomes, for at most a minute. As root. Returns its process.
/// `apart`: for a worker in the background, whose starter's output it must not keep open; what it says is then lost.
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

/// What every warden is told.
fn tell(command: &mut Command, options: &WardenOptions) {
    command.arg("--state").arg(&options.state).arg("--socket").arg(options.socket());
    command.arg("--isolation").arg(options.isolation.to_string());
    command.stdin(Stdio::null());
}

/// The process at the other end, when it is root's.
fn checked(socket: &OwnedFd) -> io::Result<Result<Pid, LaunchError>> {
    let peer = socket_peercred(socket)?;
    if peer.uid.is_root() {
        return Ok(Ok(peer.pid));
    }
    Ok(Err(LaunchError::Impostor { uid: peer.uid.as_raw() }))
}

impl WardenOptions {
    /// Where the worker waits for it.
    fn socket(&self) -> PathBuf {
        self.state.join("run/warden.sock")
    }
}

/// Runs sudo to its end: the warden has then connected, and detached itself.
async fn through_sudo(command: &mut Command, program: &Path) -> Result<(), LaunchError> {
    command.arg("--detach");
    // A password is asked for in front, and everything else happens behind.
    let lent = LentTerminal::ours();
    if let Some(lent) = &lent {
        let terminal = lent.terminal().as_raw_fd();
        // SAFETY: the descriptor is open until `lent` is dropped, in the child as well.
        let take = move || terminal::take(unsafe { BorrowedFd::borrow_raw(terminal) });
        // SAFETY: `take` is made for this place.
        unsafe { command.pre_exec(take) };
    }
    let mut sudo = command.spawn().map_err(not_started(program))?;
    match tokio::time::timeout(PATIENCE, sudo.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(status) => Err(ended(program, status)),
        Err(_) => Err(ended(program, Err(io::ErrorKind::TimedOut.into()))),
    }
}

/// Removes what a warden that was killed has left of its sandboxes, if anything. No worker may run on `state`.
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

/// The program, for root itself. A warden that finds `SUDO_UID` serves that user alone.
fn by_root(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_remove("SUDO_UID");
    command
}

/// The program, through sudo where the caller is not root.
fn as_root(program: &Path) -> Result<Command, LaunchError> {
    if is_root() {
        return Ok(by_root(program));
    }
    // Else sudo would have to say that it is not there.
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
    tokio::time::timeout(PATIENCE, listener.async_io(tokio::io::Interest::READABLE, accept))
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
