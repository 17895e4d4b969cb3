//! The state directory: where it is, which version it has, whose it is.
//!
//! ```text
//!   STATE/version          the layout's version: version 1 is upgraded, newer is refused
//!   STATE/lock             held (flock) by the one worker; its pid stands inside
//!   STATE/functions.sqlite functions and the records of their versions
//!   STATE/bundles/         the files of bundles, one archive for each digest
//!   STATE/handlers/        how this machine runs versions: made again from the above when it is gone
//!   STATE/access.sqlite    tokens, by their hashes
//!   STATE/secrets.sqlite   functions' secrets, sealed; STATE/secret.key opens them, unless the key is elsewhere
//!   STATE/audit.sqlite     what was changed, and by whom
//!   STATE/layers/ uv/      read-only directories and the installer
//!   STATE/snapshots/       reference machines of micro-VMs, and the key by which they are known; 0600
//!   STATE/logs/<name>/     output of functions; logs/worker.log of a worker in the background
//!   STATE/run/             worker.json, wool.sock, half-received uploads: nothing that outlives the worker
//! ```
//! It is closed to everybody but its owner. Where a group may use the socket (`admin_group`), others pass through it and list
//! nothing; what is in it is closed by itself.

mod databases;
mod layout;
mod upgrade;

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub(crate) use layout::LAST;
pub use layout::VERSION;

/// A state directory of a version that this build understands.
#[derive(Clone, Debug)]
pub struct State {
    root: PathBuf,
}

/// Why a state directory cannot be used.
#[derive(Debug, Error)]
pub enum StateError {
    /// It cannot be made or written.
    #[error("cannot use {path}: choose another place with --state DIR or WOOL_STATE")]
    Unusable {
        /// The path that was tried.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A newer release wrote it.
    #[error(
        "{path} was written by a newer release (state version {found}, this one knows {VERSION}): install that release, or choose another place with --state DIR"
    )]
    Newer {
        /// Which directory.
        path: PathBuf,
        /// The version of the directory's layout.
        found: u32,
    },
    /// It does not say which release wrote it.
    #[error(
        "{path} is damaged: it holds {text:?} and not the version of the directory's layout, which no release writes: restore it from a backup, or write {VERSION} into it if this release wrote the rest"
    )]
    Damaged {
        /// The file `version`.
        path: PathBuf,
        /// What it holds, or the beginning of it.
        text: String,
    },
    /// It is closed to this user.
    #[error("{path} is closed to you{}: run this as whoever it belongs to, or as root with sudo", whose(*.uid))]
    Closed {
        /// Which directory or file.
        path: PathBuf,
        /// Whose it is, as far as that can be seen.
        uid: Option<u32>,
    },
    /// It holds files that are not ours.
    #[error(
        "{0} is not empty and no state directory of lambswool: choose another place with --state DIR"
    )]
    Foreign(PathBuf),
    /// It is another user's, and root is asked to work in it.
    #[error(
        "{path} belongs to user {uid}: root does not work in it, where that user may have laid out links; run this as that user, start a worker for it with `wool up --user NAME`, or choose another place with --state DIR"
    )]
    Theirs {
        /// Which directory.
        path: PathBuf,
        /// The owner's number.
        uid: u32,
    },
    /// The database of functions is lost; a worker without it would remove what belongs to them.
    #[error(
        "{path} is gone or empty, and these are there: {left}; restore it from a backup, or remove these to give up all functions"
    )]
    NoFunctions {
        /// The file that is missing.
        path: PathBuf,
        /// The directories that hold something of functions.
        left: String,
    },
    /// The database of tokens is lost; without any token, calls on loopback take none.
    #[error(
        "{0} is gone or empty: restore it from a backup, or make new tokens with `wool token create NAME --scope …`; without any, every user of the machine may call every function"
    )]
    NoTokens(PathBuf),
    /// Another worker uses it.
    #[error(
        "a worker (pid {pid}) already runs on {path}: use it, stop it with `wool down --state {path}`, or choose another place with --state DIR"
    )]
    Busy {
        /// Which directory.
        path: PathBuf,
        /// Whose it is; `?` when it does not say.
        pid: String,
    },
}

/// How to reach the worker; the contents of `run/worker.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The worker's process.
    pub pid: u32,
    /// Where it listens for HTTP.
    pub url: String,
}

/// The one worker's hold on a state directory; dropping it lets go.
#[derive(Debug)]
pub struct Hold {
    state: State,
    lock: File,
}

/// The one right to start a worker in the background; dropping it lets go.
#[derive(Debug)]
pub struct Starting {
    /// `STATE/run/starting`, locked.
    _lock: File,
}

/// A worker that was killed while it started a program leaves a child that has its lock until it executes that program: so
/// long this is waited for.
const ORPHANS: Duration = Duration::from_secs(5);

impl State {
    /// Opens the directory; makes it when it is not there.
    ///
    /// # Errors
    /// When it cannot be made, is someone else's, or a newer release wrote it.
    pub fn open(root: &Path) -> Result<Self, StateError> {
        let root = std::path::absolute(root).map_err(unusable(root))?;
        make_dir(&root).map_err(unusable(&root))?;
        let uid = fs::metadata(&root).map_err(unusable(&root))?.uid();
        if uid != 0 && rustix::process::geteuid().is_root() {
            return Err(StateError::Theirs { path: root, uid });
        }
        match layout::version(&root)? {
            Some(found) if found > VERSION => return Err(StateError::Newer { path: root, found }),
            Some(_) => {}
            None if layout::ours(&root).map_err(unusable(&root))?.is_none() => {
                return Err(StateError::Foreign(root));
            }
            None => {}
        }
        let state = Self { root };
        state.complete()?;
        Ok(state)
    }

    /// Closes the directory to others, whatever an earlier release or an operator left open. Where `passable`, they may go
    /// to what is open to them inside, and see nothing else: the socket of a group.
    ///
    /// # Errors
    /// When it belongs to another user.
    pub fn close(&self, passable: bool) -> Result<(), StateError> {
        let mode = if passable { 0o711 } else { 0o700 };
        fs::set_permissions(&self.root, Permissions::from_mode(mode)).map_err(unusable(&self.root))
    }

    /// Makes what a directory of this version holds at least.
    fn complete(&self) -> Result<(), StateError> {
        let version = self.root.join("version");
        if !version.exists() {
            // One at a time: what stands beside the file while it is written has one name for all.
            let directory = File::open(&self.root).map_err(unusable(&self.root))?;
            directory.lock().map_err(unusable(&self.root))?;
            if !version.exists() {
                write_whole(&version, format!("{VERSION}\n").as_bytes(), 0o644)
                    .map_err(unusable(&version))?;
            }
        }
        let mut private = DirBuilder::new();
        private.recursive(true).mode(0o700);
        ["logs", "run"].into_iter().try_for_each(|name| {
            let path = self.root.join(name);
            private.create(&path).map_err(unusable(&path))
        })
    }

    /// The directory if a worker or `wool base build` ever used it, also what an interrupted removal has left of it; makes
    /// nothing.
    ///
    /// # Errors
    /// When it cannot be seen, for example because it is closed to this user.
    pub fn existing(root: &Path) -> Result<Option<Self>, StateError> {
        let root = std::path::absolute(root).map_err(unusable(root))?;
        let seen = |path: &Path, error: io::Error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
            _ => Err(closed_or_unusable(path)(error)),
        };
        let there = match fs::metadata(root.join("version")) {
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => match layout::ours(&root) {
                Ok(count) => count.is_some_and(|count| count > 0),
                Err(error) => return seen(&root, error),
            },
            Err(error) => return seen(&root, error),
        };
        Ok(there.then_some(Self { root }))
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// How to reach the worker that runs here, if one does.
    #[must_use]
    pub fn address(&self) -> Option<Address> {
        let text = fs::read(self.root.join("run/worker.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Takes the directory for this process.
    ///
    /// # Errors
    /// When another worker holds it.
    pub fn hold(&self) -> Result<Hold, StateError> {
        let (path, begun) = (self.root.join("lock"), Instant::now());
        let mut lock = loop {
            let mut lock = self.lock(&path)?;
            match lock.try_lock() {
                // Who removed the directory may have taken the file away after it was opened.
                Ok(()) if is_at(&lock, &path) => break lock,
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let mut pid = String::new();
                    let known = lock.read_to_string(&mut pid).is_ok() && !pid.trim().is_empty();
                    let pid = if known { pid.trim().to_owned() } else { "?".to_owned() };
                    // No worker yet: the lock is being taken, let go, or looked at.
                    let nobody = !known || !Path::new("/proc").join(&pid).exists();
                    if nobody && begun.elapsed() < ORPHANS {
                        thread::sleep(Duration::from_millis(10));
                        continue;
                    }
                    return Err(StateError::Busy { path: self.root.clone(), pid });
                }
                Err(TryLockError::Error(error)) => return Err(unusable(&path)(error)),
            }
        };
        let written = lock
            .set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| writeln!(lock, "{}", std::process::id()));
        written.map_err(unusable(&path))?;
        // Since it was opened a removal may have come to its end.
        self.complete()?;
        // Whatever an earlier worker or an operator left open. Not before: `run/` may be open to a running worker's group.
        for path in [self.logs(), self.run()] {
            fs::set_permissions(&path, Permissions::from_mode(0o700)).map_err(unusable(&path))?;
        }
        // What a killed worker left behind: its socket and address would send clients nowhere.
        for name in ["wool.sock", "worker.json"] {
            drop(fs::remove_file(self.run().join(name)));
        }
        Ok(Hold { state: self.clone(), lock })
    }

    /// Whether a process holds the directory now: a worker that runs or starts, or a command that removes it.
    ///
    /// # Errors
    /// When that cannot be seen.
    pub fn is_held(&self) -> Result<bool, StateError> {
        let path = self.root.join("lock");
        match self.lock(&path)?.try_lock() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(unusable(&path)(error)),
        }
    }

    /// The right to start a worker in the background, which one at a time has: until its worker answers. None while another
    /// has it.
    ///
    /// # Errors
    /// When it cannot be asked for.
    pub fn begin_start(&self) -> Result<Option<Starting>, StateError> {
        // A file of its own: the warden locks directories.
        let path = self.run().join("starting");
        let lock = self.lock(&path)?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Starting { _lock: lock })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(unusable(&path)(error)),
        }
    }

    fn lock(&self, path: &Path) -> Result<File, StateError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.open(path).map_err(closed_or_unusable(path))
    }
}

macro_rules! places {
    ($($(#[$what:meta])* $name:ident $path:literal)*) => {
        impl State {
            $($(#[$what])* #[must_use] pub fn $name(&self) -> PathBuf { self.root.join($path) })*
        }
    };
}

places! {
    /// The database of functions.
    functions "functions.sqlite"
    /// The files of bundles.
    bundles "bundles"
    /// How this machine runs versions.
    handlers "handlers"
    /// The database of tokens.
    access "access.sqlite"
    /// The database of secrets.
    secrets "secrets.sqlite"
    /// The key of secrets, when it is nowhere else.
    secret_key "secret.key"
    /// The database of control actions.
    audit "audit.sqlite"
    /// Output of functions.
    logs "logs"
    /// What a worker in the background writes.
    worker_log "logs/worker.log"
    /// Where half-received uploads and other things of a running worker are.
    run "run"
    /// The worker's Unix socket.
    socket "run/wool.sock"
}

impl Hold {
    /// Tells clients how to reach this worker. Once it answers, not before.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn announce(&self, address: &Address) -> io::Result<()> {
        write_whole(&self.state.run().join("worker.json"), &serde_json::to_vec(address)?, 0o644)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // The directory was removed; what stands there now is the next one's.
        if !is_at(&self.lock, &self.state.root.join("lock")) {
            return;
        }
        for name in ["worker.json", "wool.sock"] {
            drop(fs::remove_file(self.state.run().join(name)));
        }
        drop(self.lock.set_len(0));
    }
}

/// Where the state is unless said otherwise: `/var/lib/lambswool` for root, `$XDG_STATE_HOME/lambswool` for a user.
#[must_use]
pub fn default_root() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/lambswool");
    }
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
    base.unwrap_or_else(std::env::temp_dir).join("lambswool")
}

/// Makes a state directory, closed to others, unless it is there. The directories above it get the usual modes.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn unusable(path: &Path) -> impl FnOnce(io::Error) -> StateError {
    let path = path.to_owned();
    move |source| StateError::Unusable { path, source }
}

/// The same, where the directory of another user may be the reason.
fn closed_or_unusable(path: &Path) -> impl FnOnce(io::Error) -> StateError {
    let path = path.to_owned();
    move |error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            // The nearest that can be seen: what is above the one that is closed belongs to others.
            let uid = path.ancestors().find_map(|path| fs::metadata(path).ok()).map(|it| it.uid());
            StateError::Closed { path, uid }
        }
        _ => unusable(&path)(error),
    }
}

/// ` (it belongs to ada)`, as far as it is known.
fn whose(uid: Option<u32>) -> String {
    let named = |uid| nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)).ok().flatten();
    uid.map_or_else(String::new, |uid| match named(uid) {
        Some(user) => format!(" (it belongs to {})", user.name),
        None => format!(" (it belongs to user {uid})"),
    })
}

/// Whether an open file is the one that stands at a path.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

/// Writes a file whole, and waits until its name is on the disk.
fn write_whole(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    sys::files::write_whole(path, &path.with_extension("new"), bytes, mode)?;
    sys::files::sync_names(path.parent().unwrap_or(Path::new("/")))
}

#[cfg(test)]
mod tests;
