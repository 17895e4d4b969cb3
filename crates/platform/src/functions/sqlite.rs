//! The registry's store: one SQLite file with a write-ahead log.
//!
//! Opened as every [`database`]: a deploy that was acknowledged is on the disk, and nobody else may read or lock it.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rusqlite::{Connection, Row, params};

use super::millis::{from_millis, to_millis};
use super::{Past, Store, StoreError, Stored, Version};
use crate::database::{self, DatabaseError};
use function::{VersionId, WholeName};

/// Step `n` takes schema `n` to `n + 1`.
const MIGRATIONS: [&str; 1] = ["CREATE TABLE versions (
         id       TEXT PRIMARY KEY,
         tenant   TEXT NOT NULL,
         name     TEXT NOT NULL,
         created  INTEGER NOT NULL,
         record   TEXT NOT NULL,
         warnings TEXT NOT NULL
     ) STRICT;
     CREATE INDEX versions_of ON versions (tenant, name, created);
     CREATE TABLE functions (
         tenant  TEXT NOT NULL,
         name    TEXT NOT NULL,
         current TEXT NOT NULL REFERENCES versions (id),
         updated INTEGER NOT NULL,
         hidden  INTEGER NOT NULL,
         PRIMARY KEY (tenant, name)
     ) STRICT;"];

/// Versions of a function that are kept: whoever deploys in a loop would fill the disk.
const VERSIONS: u32 = 100;

/// A registry in a SQLite file.
#[derive(Debug)]
pub struct Sqlite {
    connection: Connection,
}

impl Sqlite {
    /// Opens the file; makes it, or brings an older one up to date.
    ///
    /// # Errors
    /// When it cannot be opened, or a newer release wrote it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let connection = database::open(path, &MIGRATIONS)?;
        let failed = |source| StoreError::Database("cannot be opened", source);
        connection.pragma_update(None, "foreign_keys", true).map_err(failed)?;
        Ok(Self { connection })
    }
}

impl From<DatabaseError> for StoreError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::File { source, .. } => Self::File(source),
            DatabaseError::Sql { step, source, .. } => Self::Database(step, source),
            DatabaseError::Newer { found, known, .. } => Self::Newer { found, known },
        }
    }
}

impl Store for Sqlite {
    fn put(&mut self, function: &Stored) -> Result<(), StoreError> {
        let failed = |source| StoreError::Database("cannot be written", source);
        let Version { id, record, created, warnings } = &*function.current;
        let unwritable = |source| StoreError::Row { id: id.to_string(), source };
        let text = serde_json::to_string(record).map_err(unwritable)?;
        let warnings = serde_json::to_string(warnings).map_err(unwritable)?;
        let (tenant, name) = (&record.tenant, &record.name);
        let transaction = self.connection.transaction().map_err(failed)?;
        transaction
            .execute(
                "INSERT INTO versions (id, tenant, name, created, record, warnings)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (id) DO UPDATE SET warnings = ?6",
                params![id.0, tenant, name, to_millis(*created), text, warnings],
            )
            .map_err(failed)?;
        transaction
            .execute(
                "INSERT INTO functions (tenant, name, current, updated, hidden) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (tenant, name) DO UPDATE SET current = ?3, updated = ?4, hidden = ?5",
                params![tenant, name, id.0, to_millis(function.updated), function.hidden],
            )
            .map_err(failed)?;
        // The newest, whichever is current among them.
        transaction
            .execute(
                "DELETE FROM versions WHERE tenant = ?1 AND name = ?2 AND id <> ?3 AND id NOT IN (
                     SELECT id FROM versions WHERE tenant = ?1 AND name = ?2
                     ORDER BY created DESC, rowid DESC LIMIT ?4)",
                params![tenant, name, id.0, VERSIONS],
            )
            .map_err(failed)?;
        transaction.commit().map_err(failed)
    }

    fn remove(&mut self, name: &WholeName) -> Result<bool, StoreError> {
        let failed = |source| StoreError::Database("cannot be written", source);
        let transaction = self.connection.transaction().map_err(failed)?;
        let whose = [name.tenant(), name.name()];
        let removed = transaction
            .execute("DELETE FROM functions WHERE tenant = ?1 AND name = ?2", whose)
            .map_err(failed)?;
        transaction
            .execute("DELETE FROM versions WHERE tenant = ?1 AND name = ?2", whose)
            .map_err(failed)?;
        transaction.commit().map_err(failed)?;
        Ok(removed > 0)
    }

    fn load(&self) -> Result<Vec<Stored>, StoreError> {
        let failed = |source| StoreError::Database("cannot be read", source);
        let mut statement = self
            .connection
            .prepare(
                "SELECT v.id, v.created, v.record, v.warnings, f.updated, f.hidden
                 FROM functions f JOIN versions v ON v.id = f.current",
            )
            .map_err(failed)?;
        let rows = statement.query_map([], Columns::read).map_err(failed)?;
        rows.map(|row| row.map_err(failed)?.function()).collect()
    }

    fn history(&self, name: &WholeName) -> Result<Vec<Past>, StoreError> {
        let failed = |source| StoreError::Database("cannot be read", source);
        let mut statement = self
            .connection
            .prepare(
                "SELECT id, created FROM versions WHERE tenant = ?1 AND name = ?2
                 ORDER BY created DESC, rowid DESC",
            )
            .map_err(failed)?;
        let past = |row: &Row<'_>| {
            let id: String = row.get(0)?;
            Ok(Past { id: VersionId(Arc::from(id)), created: from_millis(row.get(1)?) })
        };
        statement
            .query_map([name.tenant(), name.name()], past)
            .map_err(failed)?
            .collect::<Result<_, _>>()
            .map_err(failed)
    }
}

/// A row of both tables, its JSON not yet read.
struct Columns {
    id: String,
    created: i64,
    record: String,
    warnings: String,
    updated: i64,
    hidden: bool,
}

impl Columns {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            created: row.get(1)?,
            record: row.get(2)?,
            warnings: row.get(3)?,
            updated: row.get(4)?,
            hidden: row.get(5)?,
        })
    }

    fn function(self) -> Result<Stored, StoreError> {
        let unreadable = |source| StoreError::Row { id: self.id.clone(), source };
        let version = Version {
            id: VersionId(Arc::from(&*self.id)),
            record: serde_json::from_str(&self.record).map_err(unreadable)?,
            created: from_millis(self.created),
            warnings: serde_json::from_str(&self.warnings).map_err(unreadable)?,
        };
        Ok(Stored {
            current: Arc::new(version),
            hidden: self.hidden,
            updated: from_millis(self.updated),
        })
    }
}

/// A function as the release before portable records kept it.
pub(super) struct OldFunction {
    pub(super) tenant: String,
    pub(super) hidden: bool,
    pub(super) updated: SystemTime,
    /// The oldest first, but for the current one, which is the last.
    pub(super) versions: Vec<OldVersion>,
}

/// A version as that release kept it: JSON that only it knows.
pub(super) struct OldVersion {
    pub(super) id: String,
    pub(super) created: SystemTime,
    pub(super) handler: String,
    pub(super) manifest: String,
    pub(super) lock: String,
}

/// The last schema of that release.
const OLD_SCHEMA: u32 = 3;

/// Reads all functions of that release's database.
///
/// # Errors
/// When it cannot be read, or is of another release.
pub(super) fn read_old(path: &Path) -> Result<Vec<OldFunction>, StoreError> {
    let failed = |source| StoreError::Database("cannot be read", source);
    let disk = Connection::open(path).map_err(failed)?;
    let found: u32 =
        disk.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
    if found != OLD_SCHEMA {
        return Err(StoreError::Other { found });
    }
    let sql = "SELECT tenant, name, current, updated, hidden FROM functions ORDER BY tenant, name";
    let mut functions = disk.prepare(sql).map_err(failed)?;
    let sql = "SELECT id, created, handler, manifest, lock FROM versions
               WHERE tenant = ?1 AND name = ?2 ORDER BY id = ?3, created, rowid";
    let mut versions = disk.prepare(sql).map_err(failed)?;
    let mut all = Vec::new();
    let mut rows = functions.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let text = |column| row.get::<_, String>(column).map_err(failed);
        let (tenant, name, current) = (text(0)?, text(1)?, text(2)?);
        let of_function = versions.query_map([&tenant, &name, &current], |row| {
            Ok(OldVersion {
                id: row.get(0)?,
                created: from_millis(row.get(1)?),
                handler: row.get(2)?,
                manifest: row.get(3)?,
                lock: row.get(4)?,
            })
        });
        let versions = of_function.map_err(failed)?.collect::<Result<_, _>>().map_err(failed)?;
        let updated = from_millis(row.get(3).map_err(failed)?);
        let hidden = row.get(4).map_err(failed)?;
        all.push(OldFunction { tenant, hidden, updated, versions });
    }
    Ok(all)
}
