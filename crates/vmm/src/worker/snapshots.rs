//! Snapshots of reference machines, kept in the state directory.
//!
//! ```text
//!   STATE/snapshots/key        32 random bytes, by which the worker recognises its own snapshots
//!   STATE/snapshots/ID         hash │ length, header │ the monitor's bytes         mode 0600
//!   STATE/snapshots/ID.N.new   a snapshot that is being written
//!
//!   begin ─► push … ─► finish: hash, rename, the least recently used go   (dropped before: removed)
//!   find ──► StoredSnapshot: opened, hash right, header as wanted, not too old
//!        └─► removed, with a line in the log
//! ```
//!
//! ID is a hash of what the machine is made from ([`Origin`]). The hash in front is BLAKE3 of
//! everything behind it, keyed: the key never leaves this process, so a file of another writer is
//! treated like one that the disk has damaged. The monitor that restores a snapshot checks its
//! bytes once more, against its own host and build.
//!
//! A snapshot is a cache: a bad one costs time and nothing else.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use blake3::Hasher;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};
use sandbox::{Imports, ZygoteSpec};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Bytes of the hash.
const HASH: u64 = 32;
const KEY: &str = "key";
/// Suffix of a snapshot that is being written.
const NEW: &str = ".new";

/// The snapshots of a state directory. All operations wait for the disk, so they belong on a thread
/// of their own.
#[derive(Debug)]
pub(super) struct Snapshots {
    directory: PathBuf,
    key: [u8; 32],
    /// Limit of all snapshots together, in bytes.
    most_bytes: u64,
    most_age: Duration,
    written: AtomicU64,
}

/// What a reference machine is made from: equal origins lead to interchangeable machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Origin {
    /// Base, guest, packages, network class, tenant and limits.
    spec: ZygoteSpec,
    /// Imported modules, sorted by name.
    modules: Vec<String>,
}

/// The worker's knowledge of a saved machine.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    origin: Origin,
    /// When its interpreter started, in nanoseconds since the host was started.
    born: u64,
    imports: Imports,
}

/// A snapshot that can be restored.
#[derive(Debug)]
pub(super) struct StoredSnapshot {
    /// Open for reading, at the monitor's bytes.
    pub(super) file: File,
    pub(super) imports: Imports,
    /// Time since its interpreter started.
    pub(super) age: Duration,
}

/// Why a snapshot is removed.
#[derive(Debug, Error)]
enum Rejection {
    #[error("it is damaged, or this worker did not write it")]
    Damaged,
    #[error("it is too old")]
    Old,
    #[error("it is of another machine")]
    Other,
    #[error("it cannot be read: {0}")]
    Read(#[from] io::Error),
}

impl Origin {
    pub(super) fn new(spec: &ZygoteSpec, modules: &[String]) -> Self {
        // The order of imports carries no meaning.
        let mut modules = modules.to_vec();
        modules.sort_unstable();
        modules.dedup();
        let spec = ZygoteSpec { imports: Vec::new(), ..spec.clone() };
        Self { spec, modules }
    }

    fn id(&self) -> String {
        // Plain data always serialises.
        let text = serde_json::to_vec(self).unwrap_or_default();
        blake3::hash(&text).to_hex().as_str()[..32].to_owned()
    }
}

impl Snapshots {
    /// Opens the snapshots of a state directory, limited by `most_bytes` and `most_age`.
    /// Half-written files of a killed worker are removed.
    ///
    /// # Errors
    /// When the directory cannot be made or read.
    pub(super) fn open(state: &Path, most_bytes: u64, most_age: Duration) -> io::Result<Self> {
        let directory = state.join("snapshots");
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let key = key(&directory.join(KEY))?;
        let snapshots = Self { directory, key, most_bytes, most_age, written: AtomicU64::new(0) };
        for (path, _) in snapshots.files(|name| name.ends_with(NEW))? {
            remove(&path);
        }
        snapshots.make_room()?;
        Ok(snapshots)
    }

    /// Removes all snapshots of a state directory, for a worker that keeps none.
    pub(super) fn remove_all(state: &Path) {
        match fs::remove_dir_all(state.join("snapshots")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "snapshots of micro-VMs could not be removed");
            }
            _ => {}
        }
    }

    /// The snapshot of a machine, if there is a good one. Reads all of it.
    pub(super) fn find(&self, origin: &Origin) -> Option<StoredSnapshot> {
        let path = self.path(origin);
        let unfit = match self.check(&path, origin) {
            Ok(found) => return Some(found),
            Err(Rejection::Read(error)) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(unfit) => unfit,
        };
        match unfit {
            Rejection::Old => tracing::info!("a snapshot of a reference machine is too old"),
            reason => tracing::warn!(%reason, "a snapshot of a reference machine is refused"),
        }
        self.forget(origin);
        None
    }

    fn check(&self, path: &Path, origin: &Origin) -> Result<StoredSnapshot, Rejection> {
        // Opening a pipe would wait for its other end.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(Rejection::Damaged);
        }
        let mut hash = [0; 32];
        file.read_exact(&mut hash)?;
        let mut hasher = Hasher::new_keyed(&self.key);
        hasher.update_reader(&file)?;
        // In constant time.
        if hasher.finalize() != blake3::Hash::from_bytes(hash) {
            return Err(Rejection::Damaged);
        }
        file.seek(SeekFrom::Start(HASH))?;
        let mut length = [0; 8];
        file.read_exact(&mut length)?;
        let length = u64::from_le_bytes(length);
        let mut header = Vec::new();
        (&file).take(length).read_to_end(&mut header)?;
        let header: Header = serde_json::from_slice(&header).map_err(|_| Rejection::Other)?;
        if header.origin != *origin {
            return Err(Rejection::Other);
        }
        // A machine from before the host's start has a later birth.
        let age = since_start().checked_sub(header.born).map(Duration::from_nanos);
        let age = age.filter(|age| *age < self.most_age).ok_or(Rejection::Old)?;
        // Marks its last use.
        file.set_modified(SystemTime::now())?;
        Ok(StoredSnapshot { file, imports: header.imports, age })
    }

    /// Begins to write the snapshot of a machine whose interpreter started `age` ago.
    ///
    /// # Errors
    /// When the directory cannot be written to.
    pub(super) fn begin(
        self: &Arc<Self>,
        origin: Origin,
        age: Duration,
        imports: Imports,
    ) -> io::Result<SnapshotWriter> {
        let path = self.path(&origin);
        let born = since_start().saturating_sub(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
        let header = serde_json::to_vec(&Header { origin, born, imports })?;
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let new = path.with_extension(format!("{number}{NEW}"));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let hasher = Hasher::new_keyed(&self.key);
        let mut writing =
            SnapshotWriter { snapshots: Arc::clone(self), file, path, new, hasher, length: HASH };
        writing.file.seek(SeekFrom::Start(HASH))?;
        writing.push(&(header.len() as u64).to_le_bytes())?;
        writing.push(&header)?;
        Ok(writing)
    }

    /// Removes the snapshot of a machine.
    pub(super) fn forget(&self, origin: &Origin) {
        remove(&self.path(origin));
    }

    /// Removes all snapshots; those that are being written come to nothing.
    pub(super) fn forget_all(&self) {
        match self.files(|name| name != KEY) {
            Ok(files) => files.iter().for_each(|(path, _)| remove(path)),
            Err(error) => {
                tracing::warn!(%error, "snapshots of micro-VMs could not be removed");
            }
        }
    }

    fn path(&self, origin: &Origin) -> PathBuf {
        self.directory.join(origin.id())
    }

    /// Removes the least recently used snapshots beyond the limit.
    fn make_room(&self) -> io::Result<()> {
        let mut all = Vec::new();
        for (path, data) in self.files(|name| name != KEY && !name.ends_with(NEW))? {
            all.push((data.modified()?, data.len(), path));
        }
        // The latest first.
        all.sort_unstable_by(|one, other| other.cmp(one));
        let mut bytes = 0_u64;
        for (_, length, path) in all {
            bytes = bytes.saturating_add(length);
            if bytes > self.most_bytes {
                remove(&path);
            }
        }
        Ok(())
    }

    fn files(&self, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<(PathBuf, fs::Metadata)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if wanted(&entry.file_name().to_string_lossy()) {
                found.push((entry.path(), entry.metadata()?));
            }
        }
        Ok(found)
    }
}

/// A snapshot that is being written. Dropping it before it is finished removes it.
#[derive(Debug)]
pub(super) struct SnapshotWriter {
    snapshots: Arc<Snapshots>,
    file: File,
    path: PathBuf,
    new: PathBuf,
    hasher: Hasher,
    length: u64,
}

impl SnapshotWriter {
    /// Appends bytes.
    ///
    /// # Errors
    /// When it exceeds the limit of all snapshots, or the disk is full.
    pub(super) fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.length = self.length.saturating_add(bytes.len() as u64);
        if self.length > self.snapshots.most_bytes {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.hasher.update(bytes);
        self.file.write_all(bytes)
    }

    /// Completes it, and returns its length in bytes.
    ///
    /// # Errors
    /// When the disk is full.
    pub(super) fn finish(self) -> io::Result<u64> {
        self.file.write_all_at(self.hasher.finalize().as_bytes(), 0)?;
        if fs::symlink_metadata(&self.path).is_ok_and(|it| it.is_dir()) {
            // Something stands in the file's place, where no file can be put.
            remove(&self.path);
        }
        fs::rename(&self.new, &self.path)?;
        self.snapshots.make_room()?;
        Ok(self.length)
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        // Already renamed if it was finished.
        remove(&self.new);
    }
}

/// Removes a file or a directory.
fn remove(path: &Path) {
    let removed = match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => fs::remove_dir_all(path),
        removed => removed,
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, path = %path.display(), "a snapshot could not be removed");
        }
        _ => {}
    }
}

/// Nanoseconds since the host was started, sleep included.
fn since_start() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let (seconds, rest) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// The key of a file. An incomplete one is replaced, and snapshots written with it are refused.
fn key(path: &Path) -> io::Result<[u8; 32]> {
    match fs::read(path) {
        Ok(bytes) => {
            if let Ok(key) = bytes.try_into() {
                return Ok(key);
            }
            fs::remove_file(path)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut key = [0; 32];
    // So few bytes come at once.
    getrandom(&mut key, GetRandomFlags::empty())?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(&key)?;
    Ok(key)
}

#[cfg(test)]
mod tests;
