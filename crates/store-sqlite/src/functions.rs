//! Functions as rows: records as JSON.

use std::path::Path;
use std::sync::Arc;

use function::{VersionId, WholeName};
use rusqlite::{Connection, Row, Transaction, params};
use store::millis::{from_millis, to_millis};
use store::{FunctionRow, Functions, MAX_VERSIONS, PastVersion, StoreError, Version};

use crate::database::{self, strange, unreadable, unwritable};

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

const STORE: &str = "the functions";

/// Functions in a SQLite file.
#[derive(Debug)]
pub struct SqliteFunctions {
    disk: Connection,
}

impl SqliteFunctions {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// When the file cannot be opened, or a newer release wrote it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let disk = database::open(STORE, path, &MIGRATIONS)?;
        disk.pragma_update(None, "foreign_keys", true).map_err(unwritable(STORE))?;
        Ok(Self { disk })
    }
}

impl Functions for SqliteFunctions {
    fn put(&mut self, function: &FunctionRow) -> Result<(), StoreError> {
        let failed = unwritable(STORE);
        let transaction = self.disk.transaction().map_err(failed)?;
        add_version(&transaction, &function.current)?;
        let Version { id, record, .. } = &*function.current;
        let (tenant, name) = (&record.tenant, &record.name);
        let sql = "INSERT INTO functions (tenant, name, current, updated, hidden)
                   VALUES (?1, ?2, ?3, ?4, ?5)
                   ON CONFLICT (tenant, name) DO UPDATE SET current = ?3, updated = ?4, hidden = ?5";
        let row = params![tenant, name, id.0, to_millis(function.updated), function.hidden];
        transaction.execute(sql, row).map_err(failed)?;
        let sql =
            "DELETE FROM versions WHERE tenant = ?1 AND name = ?2 AND id <> ?3 AND id NOT IN (
                       SELECT id FROM versions WHERE tenant = ?1 AND name = ?2
                       ORDER BY created DESC, rowid DESC LIMIT ?4)";
        transaction.execute(sql, params![tenant, name, id.0, MAX_VERSIONS]).map_err(failed)?;
        transaction.commit().map_err(failed)
    }

    fn remove(&mut self, name: &WholeName) -> Result<bool, StoreError> {
        let failed = unwritable(STORE);
        let transaction = self.disk.transaction().map_err(failed)?;
        let whole = [name.tenant(), name.name()];
        let sql = "DELETE FROM functions WHERE tenant = ?1 AND name = ?2";
        let removed = transaction.execute(sql, whole).map_err(failed)?;
        let sql = "DELETE FROM versions WHERE tenant = ?1 AND name = ?2";
        transaction.execute(sql, whole).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        Ok(removed > 0)
    }

    fn list(&self) -> Result<Vec<FunctionRow>, StoreError> {
        let failed = unreadable(STORE);
        let sql = "SELECT v.id, v.created, v.record, v.warnings, f.updated, f.hidden
                   FROM functions f JOIN versions v ON v.id = f.current ORDER BY f.tenant, f.name";
        let mut statement = self.disk.prepare(sql).map_err(failed)?;
        let rows = statement.query_map([], |row| Ok(read(row))).map_err(failed)?;
        rows.map(|row| row.map_err(failed)?).collect()
    }

    fn history(&self, name: &WholeName) -> Result<Vec<PastVersion>, StoreError> {
        let failed = unreadable(STORE);
        let sql = "SELECT id, created FROM versions WHERE tenant = ?1 AND name = ?2
                   ORDER BY created DESC, rowid DESC";
        let mut statement = self.disk.prepare(sql).map_err(failed)?;
        let past = |row: &Row<'_>| {
            let id: String = row.get(0)?;
            Ok(PastVersion { id: VersionId(Arc::from(id)), created: from_millis(row.get(1)?) })
        };
        let rows = statement.query_map([name.tenant(), name.name()], past).map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }
}

fn add_version(transaction: &Transaction<'_>, version: &Version) -> Result<(), StoreError> {
    let Version { id, record, created, warnings } = version;
    let unwritable_row = |source: serde_json::Error| StoreError::Database {
        store: STORE,
        step: "cannot be written",
        source: source.into(),
    };
    let text = serde_json::to_string(record).map_err(unwritable_row)?;
    let warnings = serde_json::to_string(warnings).map_err(unwritable_row)?;
    let sql = "INSERT INTO versions (id, tenant, name, created, record, warnings)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (id) DO UPDATE SET warnings = ?6";
    let row = params![id.0, record.tenant, record.name, to_millis(*created), text, warnings];
    transaction.execute(sql, row).map_err(unwritable(STORE))?;
    Ok(())
}

fn read(row: &Row<'_>) -> Result<FunctionRow, StoreError> {
    let failed = unreadable(STORE);
    let id: String = row.get(0).map_err(failed)?;
    let text = |column| row.get::<_, String>(column).map_err(failed);
    let odd =
        |column, cause: serde_json::Error| strange(format!("the version {id}"), column, cause);
    let version = Version {
        record: serde_json::from_str(&text(2)?).map_err(|cause| odd("record", cause))?,
        created: from_millis(row.get(1).map_err(failed)?),
        warnings: serde_json::from_str(&text(3)?).map_err(|cause| odd("warnings", cause))?,
        id: VersionId(Arc::from(&*id)),
    };
    Ok(FunctionRow {
        current: Arc::new(version),
        updated: from_millis(row.get(4).map_err(failed)?),
        hidden: row.get(5).map_err(failed)?,
    })
}
