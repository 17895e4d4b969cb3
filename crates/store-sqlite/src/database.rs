//! A SQLite file that only the worker's user can read.
//!
//! `synchronous=FULL` with a write-ahead log: when a commit returns, its changes are on the disk.
//! `user_version` is the schema's version. Each migration raises it by one. A file with a higher
//! version is refused.

use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use store::{Cause, StoreError};
use thiserror::Error;

/// A step of opening a file, which failed.
#[derive(Debug, Error)]
#[error("{path} {step}")]
struct OpenError {
    path: PathBuf,
    step: &'static str,
    #[source]
    source: rusqlite::Error,
}

/// Opens the file of a store. Makes it with mode 0600, or brings an older file and its mode up to
/// date. Migration `n` takes schema `n` to `n + 1`. `store` is a phrase for errors: "the tokens".
///
/// # Errors
/// When the file cannot be opened, or a newer release wrote it.
pub(crate) fn open(
    store: &'static str,
    path: &Path,
    migrations: &[&str],
) -> Result<Connection, StoreError> {
    // Before SQLite makes the file with the mode that the umask leaves: its log copies the mode.
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let unmade = |source| StoreError::File { store, path: path.to_owned(), source };
    options.open(path).and_then(|_| close(path)).map_err(unmade)?;
    let failed = |step| move |source| unusable(store, path, step, source);
    let mut disk = Connection::open(path).map_err(failed("cannot be opened"))?;
    disk.busy_timeout(Duration::from_secs(5)).map_err(failed("cannot be opened"))?;
    disk.pragma_update(None, "journal_mode", "WAL").map_err(failed("cannot be opened"))?;
    disk.pragma_update(None, "synchronous", "FULL").map_err(failed("cannot be opened"))?;
    // Rows that are removed are overwritten, too.
    disk.pragma_update(None, "secure_delete", true).map_err(failed("cannot be opened"))?;
    let found: u32 = disk
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(failed("cannot be read"))?;
    let known = u32::try_from(migrations.len()).unwrap_or(u32::MAX);
    if found > known {
        return Err(StoreError::Newer { store, path: path.to_owned(), found, known });
    }
    for (step, sql) in (0u32..).zip(migrations).skip(found as usize) {
        // The migration and its number in one transaction: a crash must not run it twice.
        let migrated = disk.transaction().and_then(|transaction| {
            transaction.execute_batch(sql)?;
            transaction.pragma_update(None, "user_version", step + 1)?;
            transaction.commit()
        });
        migrated.map_err(failed("cannot be migrated"))?;
    }
    Ok(disk)
}

fn unusable(
    store: &'static str,
    path: &Path,
    step: &'static str,
    source: rusqlite::Error,
) -> StoreError {
    let source = Box::new(OpenError { path: path.to_owned(), step, source });
    StoreError::Database { store, step: "cannot be used", source }
}

/// A read that failed.
pub(crate) fn unreadable(store: &'static str) -> impl Fn(rusqlite::Error) -> StoreError + Copy {
    move |source| StoreError::Database { store, step: "cannot be read", source: source.into() }
}

/// A write that failed.
pub(crate) fn unwritable(store: &'static str) -> impl Fn(rusqlite::Error) -> StoreError + Copy {
    move |source| StoreError::Database { store, step: "cannot be written", source: source.into() }
}

/// A row whose value of this column is not what any release has written.
pub(crate) fn strange(row: String, column: &str, cause: impl Into<Cause>) -> StoreError {
    StoreError::Row { row, source: format!("its {column}: {}", cause.into()).into() }
}

/// Takes the rights of other users from an older file and from the files that SQLite left beside
/// it. A process that may only read them can hold locks that writers wait for.
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
        std::mem::forget(open("the sheep", &path, &steps).unwrap());
        let files = || fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        assert_eq!(files().count(), 3);
        files().for_each(|file| fs::set_permissions(file, Permissions::from_mode(0o644)).unwrap());
        drop(open("the sheep", &path, &steps).unwrap());
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
        drop(open("the sheep", &path, &steps[..1]).unwrap());
        let disk = open("the sheep", &path, &steps).unwrap();
        disk.execute("INSERT INTO a (x, y) VALUES (1, 2)", []).unwrap();
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let mode = entry.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        drop(disk);
        let refused = open("the sheep", &path, &steps[..1]).unwrap_err();
        assert!(matches!(refused, StoreError::Newer { found: 2, known: 1, .. }), "{refused}");
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named_with_its_store() {
        let dir = tempfile::tempdir().unwrap();
        let told = |path: &Path| {
            let error = open("the sheep", path, &[]).unwrap_err();
            let cause = std::error::Error::source(&error).unwrap();
            format!("{error}: {cause}").replace(&dir.path().display().to_string(), "DIR")
        };
        let missing = told(&dir.path().join("missing/a.sqlite"));
        assert!(
            missing
                .starts_with("the sheep cannot be used: cannot make DIR/missing/a.sqlite: No such"),
            "{missing}"
        );
        let text = dir.path().join("text");
        fs::write(
            &text,
            "no database, but longer than the header of one would have to be: ".repeat(9),
        )
        .unwrap();
        assert_eq!(told(&text), "the sheep cannot be used: DIR/text cannot be opened");
    }
}
