//! The registry's store: one SQLite file with a write-ahead log.
//!
//! Opened as every [`database`]: a deploy that was acknowledged is on the disk, and nobody else may read or lock it.

use std::path::Path;
use std::sync::Arc;

use engine::HandlerId;
use rusqlite::{Connection, Row, params};

use super::millis::{from_millis, to_millis};
use super::{Function, Past, Store, StoreError, Version};
use crate::database::{self, DatabaseError};
use function::WholeName;

/// Step `n` takes schema `n` to `n + 1`.
const MIGRATIONS: [&str; 3] = [
    "CREATE TABLE versions (
         id       TEXT PRIMARY KEY,
         name     TEXT NOT NULL,
         created  INTEGER NOT NULL,
         handler  TEXT NOT NULL,
         manifest TEXT NOT NULL,
         lock     TEXT NOT NULL
     ) STRICT;
     CREATE INDEX versions_of ON versions (name, created);
     CREATE TABLE functions (
         name    TEXT PRIMARY KEY,
         current TEXT NOT NULL REFERENCES versions (id)
     ) STRICT;",
    "ALTER TABLE functions ADD COLUMN updated INTEGER NOT NULL DEFAULT 0;
     ALTER TABLE functions ADD COLUMN hidden INTEGER NOT NULL DEFAULT 0;
     UPDATE functions SET updated = (SELECT created FROM versions WHERE id = current);",
    "ALTER TABLE versions ADD COLUMN tenant TEXT NOT NULL DEFAULT 'default';
     DROP INDEX versions_of;
     CREATE INDEX versions_of ON versions (tenant, name, created);
     ALTER TABLE functions RENAME TO functions_of_one_tenant;
     CREATE TABLE functions (
         tenant  TEXT NOT NULL,
         name    TEXT NOT NULL,
         current TEXT NOT NULL REFERENCES versions (id),
         updated INTEGER NOT NULL,
         hidden  INTEGER NOT NULL,
         PRIMARY KEY (tenant, name)
     ) STRICT;
     INSERT INTO functions SELECT 'default', name, current, updated, hidden FROM functions_of_one_tenant;
     DROP TABLE functions_of_one_tenant;",
];

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
    fn put(&mut self, function: &Function) -> Result<(), StoreError> {
        let failed = |source| StoreError::Database("cannot be written", source);
        let Version { handler, created, manifest, lock } = &*function.current;
        let unwritable = |source| StoreError::Row { id: handler.id.to_string(), source };
        let text = serde_json::to_string(handler).map_err(unwritable)?;
        let manifest = serde_json::to_string(manifest).map_err(unwritable)?;
        let transaction = self.connection.transaction().map_err(failed)?;
        transaction
            .execute(
                "INSERT INTO versions (id, name, created, handler, manifest, lock, tenant)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (id) DO NOTHING",
                params![
                    handler.id.0,
                    handler.name,
                    to_millis(*created),
                    text,
                    manifest,
                    lock,
                    handler.tenant
                ],
            )
            .map_err(failed)?;
        transaction
            .execute(
                "INSERT INTO functions (tenant, name, current, updated, hidden) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (tenant, name) DO UPDATE SET current = ?3, updated = ?4, hidden = ?5",
                params![
                    handler.tenant,
                    handler.name,
                    handler.id.0,
                    to_millis(function.updated),
                    function.hidden
                ],
            )
            .map_err(failed)?;
        // The newest, whichever is current among them.
        transaction
            .execute(
                "DELETE FROM versions WHERE tenant = ?1 AND name = ?2 AND id <> ?3 AND id NOT IN (
                     SELECT id FROM versions WHERE tenant = ?1 AND name = ?2
                     ORDER BY created DESC, rowid DESC LIMIT ?4)",
                params![handler.tenant, handler.name, handler.id.0, VERSIONS],
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

    fn load(&self) -> Result<Vec<Function>, StoreError> {
        let failed = |source| StoreError::Database("cannot be read", source);
        let mut statement = self
            .connection
            .prepare(
                "SELECT v.id, v.created, v.handler, v.manifest, v.lock, f.updated, f.hidden
                 FROM functions f JOIN versions v ON v.id = f.current",
            )
            .map_err(failed)?;
        let rows = statement.query_map([], Stored::read).map_err(failed)?;
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
            Ok(Past { id: HandlerId(Arc::from(id)), created: from_millis(row.get(1)?) })
        };
        statement
            .query_map([name.tenant(), name.name()], past)
            .map_err(failed)?
            .collect::<Result<_, _>>()
            .map_err(failed)
    }
}

/// A row of both tables, its JSON not yet read.
struct Stored {
    id: String,
    created: i64,
    handler: String,
    manifest: String,
    lock: String,
    updated: i64,
    hidden: bool,
}

impl Stored {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            created: row.get(1)?,
            handler: row.get(2)?,
            manifest: row.get(3)?,
            lock: row.get(4)?,
            updated: row.get(5)?,
            hidden: row.get(6)?,
        })
    }

    fn function(self) -> Result<Function, StoreError> {
        let unreadable = |source| StoreError::Row { id: self.id.clone(), source };
        let version = Version {
            handler: Arc::new(serde_json::from_str(&self.handler).map_err(unreadable)?),
            created: from_millis(self.created),
            manifest: serde_json::from_str(&self.manifest).map_err(unreadable)?,
            lock: self.lock,
        };
        Ok(Function {
            current: Arc::new(version),
            hidden: self.hidden,
            updated: from_millis(self.updated),
        })
    }
}
