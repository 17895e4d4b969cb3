//! A directory that does not exist until it is complete.
//!
//! ```text
//!   begin ──► .lock-NAME held, .tmp-NAME empty ──► filled ──► seal: modes, sync, rename ──► TARGET
//!                     │ dropped, or the process dies: .tmp-NAME is swept by the next `begin` or `Store::open`
//! ```
//!
//! The lock is a flock, so it dies with its holder. The holder unlinks the file while it still
//! holds the lock, and a process that waited for it checks that the name still leads to the file
//! that it locked.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::FileError;

const TEMPORARY: &str = ".tmp-";
const LOCK: &str = ".lock-";

/// Above this many files one `syncfs` is cheaper than an fsync each.
const SYNC_EACH: usize = 128;

/// A directory in the making. Dropping it removes it.
#[derive(Debug)]
pub struct Staging {
    directory: PathBuf,
    _lock: NameLock,
}

impl Staging {
    /// Waits until no other process or thread makes `name` in `parent`, then starts with an empty
    /// directory.
    ///
    /// # Errors
    /// When the lock or the directory cannot be made.
    pub fn begin(parent: &Path, name: &str) -> Result<Self, FileError> {
        let lock = lock(parent, name)?;
        let directory = parent.join(format!("{TEMPORARY}{name}"));
        // Left by a maker that died: its lock is ours now.
        remove(&directory).map_err(FileError::at("remove", &directory))?;
        fs::create_dir(&directory).map_err(FileError::at("create", &directory))?;
        Ok(Self { directory, _lock: lock })
    }

    /// Where to put the content.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// Sets the modes, waits for the disk and gives the directory its name. When the name exists
    /// already (equal names mean equal content) this one is dropped.
    ///
    /// # Errors
    /// When a mode cannot be set, the disk fails, or the directory cannot be renamed.
    pub fn seal(self, target: &Path) -> Result<(), FileError> {
        self.settle()?;
        self.rename(target)
    }

    /// Gives a directory of hard links its name. Modes are set and contents on the disk where the
    /// links lead.
    pub(crate) fn seal_links(self, target: &Path) -> Result<(), FileError> {
        self.rename(target)
    }

    /// Sets the modes (0755, or 0644 for files that are not executable) and waits for the disk.
    ///
    /// # Errors
    /// When a mode cannot be set, or the disk fails.
    pub fn settle(&self) -> Result<(), FileError> {
        let files = normalise(&self.directory)
            .map_err(FileError::at("set the modes in", &self.directory))?;
        sync(&self.directory, &files).map_err(FileError::at("sync", &self.directory))
    }

    fn rename(self, target: &Path) -> Result<(), FileError> {
        match fs::rename(&self.directory, target) {
            Err(error) if target.is_dir() && error.kind() != io::ErrorKind::PermissionDenied => {
                Ok(())
            }
            Err(error) => Err(FileError::at("rename into place", target)(error)),
            Ok(()) => sync_names(target),
        }
    }

    /// Takes the place of `target`, so that at every moment one of both is there, and moves what
    /// was there to `aside`.
    ///
    /// # Errors
    /// When the two cannot be exchanged.
    pub fn exchange(self, target: &Path, aside: &Path) -> Result<(), FileError> {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        renameat_with(CWD, &self.directory, CWD, target, RenameFlags::EXCHANGE)
            .map_err(|error| FileError::at("exchange", target)(error.into()))?;
        fs::rename(&self.directory, aside).map_err(FileError::at("put aside", target))?;
        sync_names(target)
    }
}

/// Waits until the names beside `target` are on the disk.
fn sync_names(target: &Path) -> Result<(), FileError> {
    let parent = target.parent().unwrap_or(target);
    sys::files::sync_names(parent).map_err(FileError::at("sync", parent))
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Gone already after `seal`. Otherwise what cannot be removed now is swept later.
        let _ = remove(&self.directory);
    }
}

/// Removes what dead makers left in `parent`; leaves alone what a live one still makes.
pub(crate) fn sweep(parent: &Path) -> Result<(), FileError> {
    let entries = fs::read_dir(parent).map_err(FileError::at("list", parent))?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let Some(name) = name.strip_prefix(TEMPORARY).or_else(|| name.strip_prefix(LOCK)) else {
            continue;
        };
        let Ok(Some(lock)) = NameLock::take(parent, name) else {
            continue;
        };
        let directory = parent.join(format!("{TEMPORARY}{name}"));
        remove(&directory).map_err(FileError::at("remove", &directory))?;
        drop(lock);
    }
    Ok(())
}

/// Removes a directory with all that is in it, if it is there.
///
/// # Errors
/// When it cannot be removed.
pub fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Waits for the right to make `name` in `parent`. It ends when the lock is dropped.
///
/// # Errors
/// When the lock's file cannot be made.
pub fn lock(parent: &Path, name: &str) -> Result<NameLock, FileError> {
    NameLock::wait(parent, name).map_err(FileError::at("lock a directory in", parent))
}

/// The right to make one name in one directory.
#[derive(Debug)]
pub struct NameLock {
    path: PathBuf,
    _file: File,
}

impl NameLock {
    fn wait(parent: &Path, name: &str) -> io::Result<Self> {
        loop {
            let (path, file) = Self::open(parent, name)?;
            file.lock()?;
            if leads_to(&path, &file) {
                return Ok(Self { path, _file: file });
            }
        }
    }

    fn take(parent: &Path, name: &str) -> io::Result<Option<Self>> {
        let (path, file) = Self::open(parent, name)?;
        match file.try_lock() {
            Ok(()) if leads_to(&path, &file) => Ok(Some(Self { path, _file: file })),
            Ok(()) | Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn open(parent: &Path, name: &str) -> io::Result<(PathBuf, File)> {
        let path = parent.join(format!("{LOCK}{name}"));
        let mut options = OpenOptions::new();
        // A user that can open the file can hold its lock.
        let file = options.create(true).truncate(false).write(true).mode(0o600).open(&path)?;
        Ok((path, file))
    }
}

impl Drop for NameLock {
    fn drop(&mut self) {
        // Unlink before unlocking: a process that waits then finds that the name leads elsewhere
        // and starts over.
        let _ = fs::remove_file(&self.path);
    }
}

fn leads_to(path: &Path, file: &File) -> bool {
    match (fs::metadata(path), file.metadata()) {
        (Ok(named), Ok(held)) => (named.dev(), named.ino()) == (held.dev(), held.ino()),
        _ => false,
    }
}

/// Directories 0755, files 0755 or 0644: whatever the umask, the archive or the installer said.
/// Returns the files.
fn normalise(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        set_mode(&directory, &fs::symlink_metadata(&directory)?, 0o755)?;
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            let metadata = fs::symlink_metadata(&path)?;
            if metadata.is_dir() {
                open.push(path);
            } else if metadata.is_file() {
                let mode = if metadata.mode() & 0o111 == 0 { 0o644 } else { 0o755 };
                set_mode(&path, &metadata, mode)?;
                files.push(path);
            }
        }
    }
    Ok(files)
}

fn set_mode(path: &Path, metadata: &fs::Metadata, mode: u32) -> io::Result<()> {
    if metadata.mode() & 0o7777 == mode {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode))
}

fn sync(root: &Path, files: &[PathBuf]) -> io::Result<()> {
    if files.len() > SYNC_EACH {
        return Ok(rustix::fs::syncfs(File::open(root)?)?);
    }
    files.iter().try_for_each(|file| File::open(file)?.sync_all())?;
    File::open(root)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_not_sealed_leaves_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let staging = Staging::begin(parent.path(), "a").unwrap();
        fs::write(staging.path().join("half"), "x").unwrap();
        drop(staging);
        assert_eq!(names(parent.path()), Vec::<String>::new());
    }

    #[test]
    fn a_sealed_directory_has_plain_modes_and_no_lock_beside_it() {
        let parent = tempfile::tempdir().unwrap();
        let staging = Staging::begin(parent.path(), "a").unwrap();
        let file = staging.path().join("tool");
        fs::write(&file, "x").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o4700)).unwrap();
        staging.seal(&parent.path().join("a")).unwrap();
        assert_eq!(names(parent.path()), ["a"]);
        assert_eq!(fs::metadata(parent.path().join("a/tool")).unwrap().mode() & 0o7777, 0o755);
    }

    #[test]
    fn a_lock_is_nobody_elses_to_open() {
        let parent = tempfile::tempdir().unwrap();
        let _staging = Staging::begin(parent.path(), "a").unwrap();
        let mode = fs::metadata(parent.path().join(".lock-a")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_sweep_removes_what_the_dead_left_and_spares_the_living() {
        let parent = tempfile::tempdir().unwrap();
        let living = Staging::begin(parent.path(), "living").unwrap();
        fs::create_dir_all(parent.path().join(".tmp-dead/deep")).unwrap();
        fs::write(parent.path().join(".lock-dead"), "").unwrap();
        sweep(parent.path()).unwrap();
        assert_eq!(names(parent.path()), [".lock-living", ".tmp-living"]);
        drop(living);
    }

    #[test]
    fn makers_of_one_name_take_turns() {
        let parent = tempfile::tempdir().unwrap();
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let staging = Staging::begin(parent.path(), "a").unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    std::thread::sleep(Duration::from_millis(2));
                    assert!(names(parent.path()).contains(&".tmp-a".to_owned()));
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(staging);
                });
            }
        });
        assert_eq!(names(parent.path()), Vec::<String>::new());
    }
}
