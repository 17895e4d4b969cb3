//! A SQLite file that is for nobody's eyes but the worker's.
//!
//! `synchronous=FULL` with a write-ahead log: what was acknowledged is on the disk. `user_version` is the schema's version:
//! each migration takes it one further, and a newer one is refused.

use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use thiserror::Error;

/// What could not be done with a database.
#[derive(Debug, Error)]
pub enum DatabaseError {
    /// The file cannot be made.
    #[error("cannot make {path}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// SQLite refused.
    #[error("{path} {step}")]
    Sql {
        /// Which file.
        path: PathBuf,
        /// What could not be done.
        step: &'static str,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// A newer release wrote it.
    #[error(
        "{path} was written by a newer release (schema {found}, this one knows {known}): install that release, or choose another state directory with --state DIR"
    )]
    Newer {
        /// Which file.
        path: PathBuf,
        /// Its schema.
        found: u32,
        /// Ours.
        known: u32,
    },
}

/// Opens the file; makes it, with mode 0600, or brings an older one and its mode up to date. Step `n` takes schema `n` to `n + 1`.
///
/// # Errors
/// When it cannot be opened, or a newer release wrote it.
pub(crate) fn open(path: &Path, migrations: &[&str]) -> Result<Connection, DatabaseError> {
    // Before SQLite makes it with the mode that the umask leaves; its log takes over the mode of the file.
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let unmade = |source| DatabaseError::File { path: path.to_owned(), source };
    options.open(path).and_then(|_| close(path)).map_err(unmade)?;
    let failed = |step| move |source| DatabaseError::Sql { path: path.to_owned(), step, source };
    let mut disk = Connection::open(path).map_err(failed("cannot be opened"))?;
    disk.busy_timeout(Duration::from_secs(5)).map_err(failed("cannot be opened"))?;
    disk.pragma_update(None, "journal_mode", "WAL").map_err(failed("cannot be opened"))?;
    disk.pragma_update(None, "synchronous", "FULL").map_err(failed("cannot be opened"))?;
    // What is removed is overwritten, too.
    disk.pragma_update(None, "secure_delete", true).map_err(failed("cannot be opened"))?;
    let found: u32 = disk
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(failed("cannot be read"))?;
    let known = u32::try_from(migrations.len()).unwrap_or(u32::MAX);
    if found > known {
        return Err(DatabaseError::Newer { path: path.to_owned(), found, known });
    }
    for (step, sql) in (0u32..).zip(migrations).skip(found as usize) {
        // The step and its number together or not at all: a crash in between must not run it twice.
        let transaction = disk.transaction().map_err(failed("cannot be migrated"))?;
        transaction.execute_batch(sql).map_err(failed("cannot be migrated"))?;
        transaction
            .pragma_update(None, "user_version", step + 1)
            .map_err(failed("cannot be migrated"))?;
        transaction.commit().map_err(failed("cannot be migrated"))?;
    }
    Ok(disk)
}

/// Closes an older file, and what SQLite has left beside it, to everybody else. Who may only read it can hold locks that
/// writers wait for.
fn close(path: &Path) -> io::Result<()> {
    for behind in ["", "-wal", "-shm", "-journal"] {
        let mut file = path.as_os_str().to_owned();
        file.push(behind);
        match fs::set_permissions(&file, Permissions::from_mode(0o600)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_release_left_open_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sqlite");
        let steps = ["CREATE TABLE a (x INTEGER);"];
        // Left as by a crash: its log and its locks stay.
        std::mem::forget(open(&path, &steps).unwrap());
        let files = || fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        assert_eq!(files().count(), 3);
        files().for_each(|file| fs::set_permissions(file, Permissions::from_mode(0o644)).unwrap());
        drop(open(&path, &steps).unwrap());
        for file in files() {
            let mode = fs::metadata(&file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", file.display());
        }
    }

    #[test]
    fn a_newer_one_is_refused_and_an_older_one_goes_on_from_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sqlite");
        let steps = ["CREATE TABLE a (x INTEGER);", "ALTER TABLE a ADD COLUMN y INTEGER;"];
        drop(open(&path, &steps[..1]).unwrap());
        let disk = open(&path, &steps).unwrap();
        disk.execute("INSERT INTO a (x, y) VALUES (1, 2)", []).unwrap();
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let mode = entry.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        drop(disk);
        let refused = open(&path, &steps[..1]).unwrap_err();
        assert!(matches!(refused, DatabaseError::Newer { found: 2, known: 1, .. }), "{refused}");
    }
}
