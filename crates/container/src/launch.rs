//! Starting the warden: the one moment at which anybody's privilege is asked for.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
    sockopt::socket_peercred,
};
use thiserror::Error;
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};
use warden::isolation::Isolation;

use crate::watch::watch;

/// What the warden is started with.
#[derive(Clone, Debug)]
pub struct WardenOptions {
    /// The `wool-warden` program.
    pub program: PathBuf,
    /// The state directory, absolute.
    pub state: PathBuf,
    /// How sandboxes are walled off.
    pub isolation: Isolation,
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
    /// It ended before it said anything.
    #[error("the warden ended at once ({status}); its own words are above")]
    Ended {
        /// How.
        status: String,
    },
    /// Somebody who is not root reached its socket.
    #[error("a process of user {uid} reached the warden's socket in its place")]
    Impostor {
        /// Who.
        uid: u32,
    },
}

/// Starts the warden and returns the connected socket: directly when the caller is root, else through `sudo`, which
/// asks for the password on the terminal if it must. The warden's own words go to standard error.
///
/// # Errors
/// See [`LaunchError`].
pub async fn launch(options: &WardenOptions) -> Result<(OwnedFd, Child), LaunchError> {
    let path = options.state.join("run/warden.sock");
    let listener = listen_at(&path)
        .map_err(|source| LaunchError::Socket { dir: options.state.join("run"), source })?;
    let mut command = as_root(&options.program);
    command.arg("--state").arg(&options.state).arg("--socket").arg(&path);
    command.arg("--isolation").arg(options.isolation.to_string());
    command.stdin(std::process::Stdio::null());
    // Ctrl-C is for the worker, which then drains: the warden goes when the worker's socket closes.
    command.process_group(0);
    let mut child = command.spawn().map_err(|source| LaunchError::Start {
        program: options.program.display().to_string(),
        source,
    })?;
    let socket = tokio::select! {
        socket = accept(&listener) => socket,
        status = child.wait() => {
            let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            return Err(LaunchError::Ended { status });
        }
    };
    let _ = std::fs::remove_file(&path);
    let socket = socket.map_err(|source| LaunchError::Socket { dir: path.clone(), source })?;
    let peer = socket_peercred(&socket)
        .map_err(|source| LaunchError::Socket { dir: path, source: source.into() })?;
    if !peer.uid.is_root() {
        return Err(LaunchError::Impostor { uid: peer.uid.as_raw() });
    }
    Ok((socket, child))
}

/// Removes what a warden that was killed has left of its sandboxes, if anything. No worker may run on `state`.
///
/// # Errors
/// When the warden cannot be started for it, or root is not granted.
pub async fn clear_leftovers(program: &Path, state: &Path) -> Result<(), LaunchError> {
    if !warden::recover::is_anything_left(state) {
        return Ok(());
    }
    let status = as_root(program).arg("--state").arg(state).arg("--clear").status().await;
    let named = |source| LaunchError::Start { program: program.display().to_string(), source };
    match status.map_err(named)? {
        status if status.success() => Ok(()),
        status => Err(LaunchError::Ended { status: status.to_string() }),
    }
}

/// The program, through sudo where the caller is not root.
fn as_root(program: &Path) -> Command {
    if rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut sudo = Command::new("sudo");
    let prompt = "wool needs root once, for the sandboxes' warden. Password of %p: ";
    sudo.args(["--prompt", prompt, "--"]).arg(program);
    sudo
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
    // As long as a person may need for a password.
    let limit = Duration::from_secs(300);
    tokio::time::timeout(limit, listener.async_io(tokio::io::Interest::READABLE, accept))
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
