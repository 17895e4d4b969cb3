//! Functions as rows: records as JSON.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use function::{AliasName, BundleDigest, QualifierError, VersionId, WholeName};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};
use store::millis::{from_millis, to_millis};
use store::{
    AliasRow, AttachmentRow, FunctionRow, Functions, MAX_VERSIONS, PastVersion, PublishedVersion,
    StoreError, Version,
};

use crate::database::{self, strange, unreadable, unwritable};

const MIGRATIONS: [&str; 5] = [
    "CREATE TABLE versions (
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
     ) STRICT;",
    // `numbers` outlives its functions: no number is given twice.
    "CREATE TABLE published (
         tenant      TEXT NOT NULL,
         name        TEXT NOT NULL,
         number      INTEGER NOT NULL,
         version     TEXT NOT NULL REFERENCES versions (id),
         published   INTEGER NOT NULL,
         description TEXT NOT NULL,
         PRIMARY KEY (tenant, name, number)
     ) STRICT;
     CREATE TABLE numbers (
         tenant TEXT NOT NULL,
         name   TEXT NOT NULL,
         last   INTEGER NOT NULL,
         PRIMARY KEY (tenant, name)
     ) STRICT;
     CREATE TABLE aliases (
         tenant      TEXT NOT NULL,
         name        TEXT NOT NULL,
         alias       TEXT NOT NULL,
         number      INTEGER NOT NULL,
         canary      INTEGER,
         share       REAL,
         updated     INTEGER NOT NULL,
         description TEXT NOT NULL,
         PRIMARY KEY (tenant, name, alias)
     ) STRICT;",
    // What `wool run` makes is kept in memory alone.
    "DELETE FROM functions WHERE hidden;
     DELETE FROM versions WHERE (tenant, name) NOT IN (SELECT tenant, name FROM functions);
     ALTER TABLE functions DROP COLUMN hidden;",
    "CREATE TABLE attachments (
         tenant TEXT NOT NULL,
         name   TEXT NOT NULL,
         kind   TEXT NOT NULL,
         key    TEXT NOT NULL,
         text   TEXT NOT NULL,
         PRIMARY KEY (tenant, name, kind, key)
     ) STRICT;",
    // `layer_numbers` outlives its layers: no number is given twice. `layers` reads and writes both.
    "CREATE TABLE layers (
         tenant    TEXT NOT NULL,
         name      TEXT NOT NULL,
         number    INTEGER NOT NULL,
         published INTEGER NOT NULL,
         bundle    TEXT NOT NULL,
         bytes     INTEGER NOT NULL,
         modules   TEXT NOT NULL,
         uses_set  INTEGER NOT NULL,
         text      TEXT NOT NULL,
         policy    TEXT,
         PRIMARY KEY (tenant, name, number)
     ) STRICT;
     CREATE TABLE layer_numbers (
         tenant TEXT NOT NULL,
         name   TEXT NOT NULL,
         last   INTEGER NOT NULL,
         PRIMARY KEY (tenant, name)
     ) STRICT;",
];

pub(crate) const STORE: &str = "the functions";

/// Functions in a SQLite file.
#[derive(Debug)]
pub struct SqliteFunctions {
    pub(crate) disk: Connection,
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
        let sql = "SELECT current FROM functions WHERE tenant = ?1 AND name = ?2";
        let before = transaction.query_row(sql, [tenant, name], |row| row.get::<_, String>(0));
        let before = before.optional().map_err(failed)?;
        let sql = "INSERT INTO functions (tenant, name, current, updated)
                   VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT (tenant, name) DO UPDATE SET current = ?3, updated = ?4";
        let row = params![tenant, name, id.0, to_millis(function.updated)];
        transaction.execute(sql, row).map_err(failed)?;
        let sql =
            "DELETE FROM versions WHERE tenant = ?1 AND name = ?2 AND id <> ?3 AND id IS NOT ?5
                   AND id NOT IN (SELECT version FROM published WHERE tenant = ?1 AND name = ?2)
                   AND id NOT IN (
                       SELECT id FROM versions WHERE tenant = ?1 AND name = ?2
                       ORDER BY created DESC, rowid DESC LIMIT ?4)";
        transaction
            .execute(sql, params![tenant, name, id.0, MAX_VERSIONS, before])
            .map_err(failed)?;
        transaction.commit().map_err(failed)
    }

    fn remove(&mut self, name: &WholeName) -> Result<bool, StoreError> {
        let failed = unwritable(STORE);
        let transaction = self.disk.transaction().map_err(failed)?;
        let whole = [name.tenant(), name.name()];
        let sql = "DELETE FROM functions WHERE tenant = ?1 AND name = ?2";
        let removed = transaction.execute(sql, whole).map_err(failed)?;
        for sql in [
            "DELETE FROM attachments WHERE tenant = ?1 AND name = ?2",
            "DELETE FROM aliases WHERE tenant = ?1 AND name = ?2",
            "DELETE FROM published WHERE tenant = ?1 AND name = ?2",
            "DELETE FROM versions WHERE tenant = ?1 AND name = ?2",
        ] {
            transaction.execute(sql, whole).map_err(failed)?;
        }
        transaction.commit().map_err(failed)?;
        Ok(removed > 0)
    }

    fn list(&self) -> Result<Vec<FunctionRow>, StoreError> {
        let failed = unreadable(STORE);
        let sql = "SELECT v.id, v.created, v.record, v.warnings, f.updated
                   FROM functions f JOIN versions v ON v.id = f.current ORDER BY f.tenant, f.name";
        let mut statement = self.disk.prepare(sql).map_err(failed)?;
        let rows = statement.query_map([], |row| Ok(read_function(row))).map_err(failed)?;
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

    fn version(&self, name: &WholeName, id: &VersionId) -> Result<Option<Version>, StoreError> {
        let failed = unreadable(STORE);
        let sql = "SELECT id, created, record, warnings FROM versions
                   WHERE tenant = ?1 AND name = ?2 AND id = ?3";
        let whole = [name.tenant(), name.name(), &*id.0];
        let found = self.disk.query_row(sql, whole, |row| Ok(read_version(row)));
        found.optional().map_err(failed)?.transpose()
    }

    fn bundles(&self) -> Result<BTreeSet<BundleDigest>, StoreError> {
        let failed = unreadable(STORE);
        let sql = "SELECT id, created, record, warnings FROM versions";
        let mut statement = self.disk.prepare(sql).map_err(failed)?;
        let rows = statement.query_map([], |row| Ok(read_version(row))).map_err(failed)?;
        let mut bundles = self.layer_bundles()?;
        for row in rows {
            bundles.extend(row.map_err(failed)??.record.bundles().cloned());
        }
        Ok(bundles)
    }

    fn publish(
        &mut self,
        name: &WholeName,
        published: SystemTime,
        description: &str,
    ) -> Result<Option<PublishedVersion>, StoreError> {
        let failed = unwritable(STORE);
        let whole = [name.tenant(), name.name()];
        let transaction = self.disk.transaction().map_err(failed)?;
        let sql = "SELECT current FROM functions WHERE tenant = ?1 AND name = ?2";
        let current = transaction.query_row(sql, whole, |row| row.get::<_, String>(0));
        let Some(current) = current.optional().map_err(failed)? else { return Ok(None) };
        let sql = "SELECT number, version FROM published WHERE tenant = ?1 AND name = ?2
                   ORDER BY number DESC LIMIT 1";
        let newest = transaction.query_row(sql, whole, |row| Ok((row.get(0)?, row.get(1)?)));
        let newest: Option<(u32, String)> = newest.optional().map_err(failed)?;
        let number = match newest {
            Some((number, version)) if version == current => number,
            _ => {
                let sql = "INSERT INTO numbers (tenant, name, last) VALUES (?1, ?2, 1)
                           ON CONFLICT (tenant, name) DO UPDATE SET last = last + 1
                           RETURNING last";
                let number = transaction.query_row(sql, whole, |row| row.get(0)).map_err(failed)?;
                let sql = "INSERT INTO published
                               (tenant, name, number, version, published, description)
                           VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
                let published = to_millis(published);
                let row =
                    params![name.tenant(), name.name(), number, current, published, description];
                transaction.execute(sql, row).map_err(failed)?;
                number
            }
        };
        let sql = format!("{PUBLISHED} WHERE p.tenant = ?1 AND p.name = ?2 AND p.number = ?3");
        let row = params![name.tenant(), name.name(), number];
        let one = transaction.query_row(&sql, row, |row| Ok(read_published(row)));
        let one = one.map_err(failed)??;
        transaction.commit().map_err(failed)?;
        Ok(Some(one))
    }

    fn unpublish(&mut self, name: &WholeName, number: u32) -> Result<bool, StoreError> {
        let sql = "DELETE FROM published WHERE tenant = ?1 AND name = ?2 AND number = ?3";
        let row = params![name.tenant(), name.name(), number];
        Ok(self.disk.execute(sql, row).map_err(unwritable(STORE))? > 0)
    }

    fn published(&self) -> Result<Vec<PublishedVersion>, StoreError> {
        let failed = unreadable(STORE);
        let sql = format!("{PUBLISHED} ORDER BY p.tenant, p.name, p.number");
        let mut statement = self.disk.prepare(&sql).map_err(failed)?;
        let rows = statement.query_map([], |row| Ok(read_published(row))).map_err(failed)?;
        rows.map(|row| row.map_err(failed)?).collect()
    }

    fn put_alias(&mut self, name: &WholeName, alias: &AliasRow) -> Result<(), StoreError> {
        let AliasRow { name: own, number, canary, updated, description } = alias;
        let sql = "INSERT OR REPLACE INTO aliases
                       (tenant, name, alias, number, canary, share, updated, description)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        let (canary, share) = canary.unzip();
        let (tenant, name, own) = (name.tenant(), name.name(), own.as_str());
        let updated = to_millis(*updated);
        let number = number.unwrap_or(CURRENT);
        let row = params![tenant, name, own, number, canary, share, updated, description];
        self.disk.execute(sql, row).map_err(unwritable(STORE))?;
        Ok(())
    }

    fn remove_alias(&mut self, name: &WholeName, alias: &AliasName) -> Result<bool, StoreError> {
        let sql = "DELETE FROM aliases WHERE tenant = ?1 AND name = ?2 AND alias = ?3";
        let row = [name.tenant(), name.name(), alias.as_str()];
        Ok(self.disk.execute(sql, row).map_err(unwritable(STORE))? > 0)
    }

    fn aliases(&self) -> Result<Vec<(WholeName, AliasRow)>, StoreError> {
        let failed = unreadable(STORE);
        let sql = "SELECT tenant, name, alias, number, canary, share, updated, description
                   FROM aliases ORDER BY tenant, name, alias";
        let mut statement = self.disk.prepare(sql).map_err(failed)?;
        let rows = statement.query_map([], |row| Ok(read_alias(row))).map_err(failed)?;
        rows.map(|row| row.map_err(failed)?).collect()
    }

    fn attach(&mut self, name: &WholeName, attachment: &AttachmentRow) -> Result<(), StoreError> {
        let AttachmentRow { kind, key, text } = attachment;
        let sql = "INSERT OR REPLACE INTO attachments (tenant, name, kind, key, text)
                   VALUES (?1, ?2, ?3, ?4, ?5)";
        let row = params![name.tenant(), name.name(), kind, key, text];
        self.disk.execute(sql, row).map_err(unwritable(STORE))?;
        Ok(())
    }

    fn detach(&mut self, name: &WholeName, kind: &str, key: &str) -> Result<bool, StoreError> {
        let sql = "DELETE FROM attachments
                   WHERE tenant = ?1 AND name = ?2 AND kind = ?3 AND key = ?4";
        let row = [name.tenant(), name.name(), kind, key];
        Ok(self.disk.execute(sql, row).map_err(unwritable(STORE))? > 0)
    }

    fn attachments(&self) -> Result<Vec<(WholeName, AttachmentRow)>, StoreError> {
        let failed = unreadable(STORE);
        let sql = "SELECT tenant, name, kind, key, text
                   FROM attachments ORDER BY tenant, name, kind, key";
        let mut statement = self.disk.prepare(sql).map_err(failed)?;
        let rows = statement.query_map([], |row| {
            let name = WholeName::stored(row.get(0)?, row.get(1)?);
            let (kind, key, text) = (row.get(2)?, row.get(3)?, row.get(4)?);
            Ok((name, AttachmentRow { kind, key, text }))
        });
        rows.map_err(failed)?.map(|row| row.map_err(failed)).collect()
    }
}

/// Columns that [`read_published`] reads.
const PUBLISHED: &str =
    "SELECT v.id, v.created, v.record, v.warnings, p.number, p.published, p.description
                         FROM published p JOIN versions v ON v.id = p.version";

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

/// A version from the first four columns: `id, created, record, warnings`.
fn read_version(row: &Row<'_>) -> Result<Version, StoreError> {
    let failed = unreadable(STORE);
    let id: String = row.get(0).map_err(failed)?;
    let text = |column| row.get::<_, String>(column).map_err(failed);
    let odd =
        |column, cause: serde_json::Error| strange(format!("the version {id}"), column, cause);
    Ok(Version {
        record: serde_json::from_str(&text(2)?).map_err(|cause| odd("record", cause))?,
        created: from_millis(row.get(1).map_err(failed)?),
        warnings: serde_json::from_str(&text(3)?).map_err(|cause| odd("warnings", cause))?,
        id: VersionId(Arc::from(&*id)),
    })
}

fn read_function(row: &Row<'_>) -> Result<FunctionRow, StoreError> {
    let failed = unreadable(STORE);
    Ok(FunctionRow {
        current: Arc::new(read_version(row)?),
        updated: from_millis(row.get(4).map_err(failed)?),
    })
}

fn read_published(row: &Row<'_>) -> Result<PublishedVersion, StoreError> {
    let failed = unreadable(STORE);
    Ok(PublishedVersion {
        version: Arc::new(read_version(row)?),
        number: row.get(4).map_err(failed)?,
        published: from_millis(row.get(5).map_err(failed)?),
        description: row.get(6).map_err(failed)?,
    })
}

/// In the place of a number, of an alias that points to the current version: numbers begin with 1.
const CURRENT: u32 = 0;

fn read_alias(row: &Row<'_>) -> Result<(WholeName, AliasRow), StoreError> {
    let failed = unreadable(STORE);
    let text = |column| row.get::<_, String>(column).map_err(failed);
    let name = WholeName::stored(text(0)?, text(1)?);
    let canary: Option<u32> = row.get(4).map_err(failed)?;
    let share: Option<f64> = row.get(5).map_err(failed)?;
    let odd = |cause| strange(format!("an alias of {name}"), "alias", cause);
    let alias = AliasRow {
        name: text(2)?.parse().map_err(|error: QualifierError| odd(error.to_string()))?,
        number: Some(row.get(3).map_err(failed)?).filter(|number| *number != CURRENT),
        canary: canary.zip(share),
        updated: from_millis(row.get(6).map_err(failed)?),
        description: text(7)?,
    };
    Ok((name, alias))
}

#[cfg(test)]
mod tests {
    use function::{FunctionName, Label};

    use super::*;

    #[test]
    fn what_wool_run_made_is_not_taken_over_from_the_first_schema() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("functions.sqlite");
        let disk = Connection::open(&path).unwrap();
        disk.execute_batch(MIGRATIONS[0]).unwrap();
        for (name, hidden) in [("f", false), ("run-1", true)] {
            let sql = "INSERT INTO versions VALUES (?1, 'default', ?1, 1, '{}', '[]')";
            disk.execute(sql, params![name]).unwrap();
            let sql = "INSERT INTO functions VALUES ('default', ?1, ?1, 1, ?2)";
            disk.execute(sql, params![name, hidden]).unwrap();
        }
        disk.pragma_update(None, "user_version", 1).unwrap();
        drop(disk);
        let functions = SqliteFunctions::open(&path).unwrap();
        let versions = |name: &str| {
            let name: FunctionName = name.parse().unwrap();
            functions.history(&WholeName::new(&Label::default_tenant(), &name)).unwrap().len()
        };
        assert_eq!((versions("f"), versions("run-1")), (1, 0));
        let count = |row: &Row<'_>| row.get::<_, u32>(0);
        let left = functions.disk.query_row("SELECT count(*) FROM functions", [], count);
        assert_eq!(left, Ok(1));
    }
}
