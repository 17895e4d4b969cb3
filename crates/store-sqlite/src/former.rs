//! The registry of state directories of version 1, to be taken over once.

use std::path::Path;
use std::time::SystemTime;

use rusqlite::{Connection, OpenFlags, Row};
use store::StoreError;
use store::millis::from_millis;

use crate::database::unreadable;

const STORE: &str = "the former registry";

/// The schema of its last release.
const SCHEMA: u32 = 3;

/// A function as it was kept.
#[derive(Debug)]
pub struct OldFunction {
    /// The tenant that deployed it.
    pub tenant: String,
    /// When a version was last made current.
    pub updated: SystemTime,
    /// The oldest first, but for the current one, which is the last.
    pub versions: Vec<OldVersion>,
}

/// A version as it was kept: JSON that only its release knows.
#[derive(Debug)]
pub struct OldVersion {
    /// The id that it had until now.
    pub id: String,
    /// When it was first deployed.
    pub created: SystemTime,
    /// How its machine ran it.
    pub handler: String,
    /// Its settings and warnings.
    pub manifest: String,
    /// A requirements file with hashes; empty without packages.
    pub lock: String,
}

/// Reads all functions of a registry, but for those that `wool run` made.
///
/// # Errors
/// When it cannot be read, or another release wrote it.
pub fn read(path: &Path) -> Result<Vec<OldFunction>, StoreError> {
    let failed = unreadable(STORE);
    // It may have a log of a worker that was killed: SQLite writes to read that.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let disk = Connection::open_with_flags(path, flags).map_err(failed)?;
    let found: u32 =
        disk.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
    if found != SCHEMA {
        let source = format!("its schema is {found}, and only {SCHEMA} can be taken over");
        return Err(StoreError::Row { row: STORE.to_owned(), source: source.into() });
    }
    let sql = "SELECT tenant, name, current, updated FROM functions WHERE NOT hidden
               ORDER BY tenant, name";
    let mut functions = disk.prepare(sql).map_err(failed)?;
    let rows = functions.query_map([], |row| of_function(&disk, row)).map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

fn of_function(disk: &Connection, row: &Row<'_>) -> rusqlite::Result<OldFunction> {
    let (tenant, name, current): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let sql = "SELECT id, created, handler, manifest, lock FROM versions
               WHERE tenant = ?1 AND name = ?2 ORDER BY id = ?3, created, rowid";
    let mut versions = disk.prepare_cached(sql)?;
    let versions = versions.query_map([&tenant, &name, &current], |row| {
        Ok(OldVersion {
            id: row.get(0)?,
            created: from_millis(row.get(1)?),
            handler: row.get(2)?,
            manifest: row.get(3)?,
            lock: row.get(4)?,
        })
    });
    let versions = versions?.collect::<rusqlite::Result<_>>()?;
    Ok(OldFunction { tenant, updated: from_millis(row.get(3)?), versions })
}
