//! The audit log as rows.

use std::path::Path;

use rusqlite::{Connection, params};
use store::{ActionRow, Actions, StoreError};

use crate::database::{self, unreadable, unwritable};

const MIGRATIONS: [&str; 1] = ["CREATE TABLE actions (
         number INTEGER PRIMARY KEY AUTOINCREMENT,
         \"group\" TEXT NOT NULL,
         done   INTEGER NOT NULL,
         line   TEXT NOT NULL
     ) STRICT;
     CREATE INDEX actions_of ON actions (\"group\", done, number);"];

const STORE: &str = "the audit log";

/// The audit log in a SQLite file.
#[derive(Debug)]
pub struct SqliteActions {
    disk: Connection,
}

impl SqliteActions {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// When the file cannot be opened, or a newer release wrote it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let disk = database::open(STORE, path, &MIGRATIONS)?;
        // A line need not wait for the disk: the promise is for a kill of the process alone.
        disk.pragma_update(None, "synchronous", "NORMAL").map_err(unwritable(STORE))?;
        Ok(Self { disk })
    }
}

impl Actions for SqliteActions {
    fn append(&mut self, action: &ActionRow, keep: usize) -> Result<(), StoreError> {
        let failed = unwritable(STORE);
        let ActionRow { group, done, line } = action;
        let transaction = self.disk.transaction().map_err(failed)?;
        let sql = "INSERT INTO actions (\"group\", done, line) VALUES (?1, ?2, ?3)";
        transaction.execute(sql, params![group, done, line]).map_err(failed)?;
        let sql = "DELETE FROM actions WHERE \"group\" = ?1 AND done = ?2 AND number <= (
                       SELECT number FROM actions WHERE \"group\" = ?1 AND done = ?2
                       ORDER BY number DESC LIMIT 1 OFFSET ?3)";
        transaction.execute(sql, params![group, done, count(keep)]).map_err(failed)?;
        transaction.commit().map_err(failed)
    }

    fn last(&self, most: usize) -> Result<Vec<String>, StoreError> {
        let failed = unreadable(STORE);
        let sql = "SELECT line FROM actions ORDER BY number DESC LIMIT ?1";
        let mut statement = self.disk.prepare(sql).map_err(failed)?;
        let rows = statement.query_map([count(most)], |row| row.get(0)).map_err(failed)?;
        let mut lines = rows.collect::<Result<Vec<String>, _>>().map_err(failed)?;
        lines.reverse();
        Ok(lines)
    }
}

fn count(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}
