//! The audit log as rows.

use std::collections::HashMap;
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
    /// The number of rows of each group and outcome.
    rows: HashMap<(String, bool), usize>,
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
        let rows = count(&disk).map_err(unreadable(STORE))?;
        Ok(Self { disk, rows })
    }
}

fn count(disk: &Connection) -> rusqlite::Result<HashMap<(String, bool), usize>> {
    let sql = "SELECT \"group\", done, count(*) FROM actions GROUP BY \"group\", done";
    let mut statement = disk.prepare(sql)?;
    let rows = statement.query_map([], |row| {
        let rows: i64 = row.get(2)?;
        Ok(((row.get(0)?, row.get(1)?), usize::try_from(rows).unwrap_or(0)))
    });
    rows?.collect()
}

impl Actions for SqliteActions {
    fn append(&mut self, action: &ActionRow, keep: usize) -> Result<(), StoreError> {
        let failed = unwritable(STORE);
        let ActionRow { group, done, line } = action;
        let rows = self.rows.entry((group.clone(), *done)).or_default();
        let surplus = (*rows + 1).saturating_sub(keep);
        let transaction = self.disk.transaction().map_err(failed)?;
        let sql = "INSERT INTO actions (\"group\", done, line) VALUES (?1, ?2, ?3)";
        transaction.execute(sql, params![group, done, line]).map_err(failed)?;
        if surplus > 0 {
            let sql = "DELETE FROM actions WHERE number IN (
                           SELECT number FROM actions WHERE \"group\" = ?1 AND done = ?2
                           ORDER BY number LIMIT ?3)";
            transaction.execute(sql, params![group, done, integer(surplus)]).map_err(failed)?;
        }
        transaction.commit().map_err(failed)?;
        *rows = *rows + 1 - surplus;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        self.disk.query_row(checkpoint, [], |_| Ok(())).map_err(unwritable(STORE))
    }

    fn last(&self, most: usize) -> Result<Vec<String>, StoreError> {
        let failed = unreadable(STORE);
        let sql = "SELECT line FROM actions ORDER BY number DESC LIMIT ?1";
        let mut statement = self.disk.prepare(sql).map_err(failed)?;
        let rows = statement.query_map([integer(most)], |row| row.get(0)).map_err(failed)?;
        let mut lines = rows.collect::<Result<Vec<String>, _>>().map_err(failed)?;
        lines.reverse();
        Ok(lines)
    }
}

fn integer(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}
