//! The state directory: where it is, which version it has, whose it is.
//!
//! ```text
//!   STATE/version          the layout's version: older is migrated, newer is refused
//!   STATE/lock             held (flock) by the one worker; its pid stands inside
//!   STATE/registry.sqlite  functions and versions
//!   STATE/access.sqlite    tokens, by their hashes
//!   STATE/secrets.sqlite   functions' secrets, sealed; STATE/secret.key opens them, unless the key is elsewhere
//!   STATE/audit/           what was changed, and by whom
//!   STATE/layers/ uv/      read-only directories and the installer
//!   STATE/logs/<name>/     output of functions; logs/worker.log of a worker in the background
//!   STATE/run/             worker.json, wool.sock, half-received uploads: nothing that outlives the worker
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Version of the layout that this build writes.
pub const VERSION: u32 = 1;

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
        /// What.
        path: PathBuf,
        /// Why.
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
        /// Its version.
        found: u32,
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
        /// Whose it is.
        uid: u32,
    },
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
    _lock: File,
}

impl State {
    /// Opens the directory; makes it when it is not there.
    ///
    /// # Errors
    /// When it cannot be made, is someone else's, or a newer release wrote it.
    pub fn open(root: &Path) -> Result<Self, StateError> {
        let root = std::path::absolute(root).map_err(unusable(root))?;
        private_dir(&root)?;
        let uid = fs::metadata(&root).map_err(unusable(&root))?.uid();
        if uid != 0 && rustix::process::geteuid().is_root() {
            return Err(StateError::Theirs { path: root, uid });
        }
        let version = root.join("version");
        match fs::read_to_string(&version) {
            Ok(text) => {
                let found = text.trim().parse().unwrap_or(u32::MAX);
                if found > VERSION {
                    return Err(StateError::Newer { path: root, found });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut entries = fs::read_dir(&root).map_err(unusable(&root))?;
                // `layers` may be there before us: `wool base build` works without a worker.
                if entries.any(|entry| {
                    entry.is_ok_and(|e| e.file_name() != "layers" && e.file_name() != "uv")
                }) {
                    return Err(StateError::Foreign(root));
                }
                write_whole(&version, format!("{VERSION}\n").as_bytes(), 0o644)
                    .map_err(unusable(&version))?;
            }
            Err(error) => return Err(unusable(&version)(error)),
        }
        let state = Self { root };
        for name in ["logs", "run"] {
            private_dir(&state.root.join(name))?;
        }
        Ok(state)
    }

    /// The directory if a worker or `wool base build` ever used it; makes nothing.
    #[must_use]
    pub fn existing(root: &Path) -> Option<Self> {
        let root = std::path::absolute(root).ok()?;
        root.join("version").is_file().then_some(Self { root })
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The registry's database.
    #[must_use]
    pub fn registry(&self) -> PathBuf {
        self.root.join("registry.sqlite")
    }

    /// The database of tokens.
    #[must_use]
    pub fn access(&self) -> PathBuf {
        self.root.join("access.sqlite")
    }

    /// The database of secrets.
    #[must_use]
    pub fn secrets(&self) -> PathBuf {
        self.root.join("secrets.sqlite")
    }

    /// The key of secrets, when it is nowhere else.
    #[must_use]
    pub fn secret_key(&self) -> PathBuf {
        self.root.join("secret.key")
    }

    /// The audit log.
    #[must_use]
    pub fn audit(&self) -> PathBuf {
        self.root.join("audit")
    }

    /// Output of functions.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// What a worker in the background writes.
    #[must_use]
    pub fn worker_log(&self) -> PathBuf {
        self.root.join("logs/worker.log")
    }

    /// Where half-received uploads and other things of a running worker are.
    #[must_use]
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// The worker's Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.root.join("run/wool.sock")
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
        let path = self.root.join("lock");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut lock = options.open(&path).map_err(unusable(&path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let known = lock.read_to_string(&mut pid).is_ok() && !pid.trim().is_empty();
                let pid = if known { pid.trim().to_owned() } else { "?".to_owned() };
                return Err(StateError::Busy { path: self.root.clone(), pid });
            }
            Err(TryLockError::Error(error)) => return Err(unusable(&path)(error)),
        }
        let written = lock
            .set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| writeln!(lock, "{}", std::process::id()));
        written.map_err(unusable(&path))?;
        // What a killed worker left behind: its socket and address would send clients nowhere.
        for name in ["wool.sock", "worker.json"] {
            drop(fs::remove_file(self.run().join(name)));
        }
        Ok(Hold { state: self.clone(), _lock: lock })
    }
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
        for name in ["worker.json", "wool.sock"] {
            drop(fs::remove_file(self.state.run().join(name)));
        }
        drop(fs::write(self.state.root.join("lock"), ""));
    }
}

/// Where the state is when nobody says: `/var/lib/lambswool` for root, `$XDG_STATE_HOME/lambswool` for a user.
#[must_use]
pub fn default_root() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/lambswool");
    }
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
    base.unwrap_or_else(std::env::temp_dir).join("lambswool")
}

fn private_dir(path: &Path) -> Result<(), StateError> {
    DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(unusable(path))?;
    if path.ends_with("run") || path.ends_with("logs") {
        fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(unusable(path))?;
    }
    Ok(())
}

fn unusable(path: &Path) -> impl FnOnce(io::Error) -> StateError {
    let path = path.to_owned();
    move |source| StateError::Unusable { path, source }
}

/// Writes a file so that a reader sees all of it or nothing.
fn write_whole(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_a_newer_release_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("version"), "2\n").unwrap();
        let refused = State::open(dir.path()).unwrap_err();
        assert!(matches!(refused, StateError::Newer { found: 2, .. }), "{refused}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_with_other_files_is_never_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.txt"), "").unwrap();
        assert!(matches!(State::open(dir.path()).unwrap_err(), StateError::Foreign(_)));
    }

    #[test]
    fn root_does_not_work_in_a_directory_of_somebody_elses() {
        if !rustix::process::geteuid().is_root() {
            return skips::skip("root", "only root can give a directory away");
        }
        let dir = tempfile::tempdir().unwrap();
        let victim = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(victim.path(), dir.path().join("run")).unwrap();
        std::os::unix::fs::chown(dir.path(), Some(54_321), Some(54_321)).unwrap();
        let refused = State::open(dir.path()).unwrap_err();
        assert!(matches!(refused, StateError::Theirs { uid: 54_321, .. }), "{refused}");
        assert!(refused.to_string().contains("wool up --user"), "{refused}");
        let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["run"]);
    }

    #[test]
    fn a_second_hold_names_the_pid_and_how_to_stop_it() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path()).unwrap();
        let hold = state.hold().unwrap();
        let refused = state.hold().unwrap_err().to_string();
        assert!(refused.contains(&format!("pid {}", std::process::id())), "{refused}");
        assert!(refused.contains("wool down"), "{refused}");
        drop(hold);
        // A child that another test is just starting has a copy of the lock until it is another program.
        let mut tries = std::iter::repeat_with(|| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            state.hold()
        });
        assert!(tries.by_ref().take(1000).any(|held| held.is_ok()), "it is not free again");
    }

    #[test]
    fn an_address_is_there_exactly_while_the_hold_is() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path()).unwrap();
        let hold = state.hold().unwrap();
        assert_eq!(state.address(), None);
        let address = Address { pid: 7, url: "http://127.0.0.1:1".to_owned() };
        hold.announce(&address).unwrap();
        assert_eq!(state.address(), Some(address));
        drop(hold);
        assert_eq!(state.address(), None);
    }
}
