//! Sealed secrets as rows.

use std::path::{Path, PathBuf};

use rusqlite::types::FromSql;
use rusqlite::{Connection, Row, params};
use store::millis::{from_millis, to_millis};
use store::{Sealed, SecretRow, Secrets, StoreError, WholeName};

use crate::database::{self, strange, unreadable, unwritable};

const MIGRATIONS: [&str; 1] = ["CREATE TABLE secrets (
         tenant   TEXT NOT NULL,
         function TEXT NOT NULL,
         key      TEXT NOT NULL,
         nonce    BLOB NOT NULL,
         sealed   BLOB NOT NULL,
         updated  INTEGER NOT NULL,
         PRIMARY KEY (tenant, function, key)
     ) STRICT, WITHOUT ROWID;
     CREATE TABLE witness (
         nonce  BLOB NOT NULL,
         sealed BLOB NOT NULL
     ) STRICT;"];

const STORE: &str = "the secrets";

/// Secrets in a SQLite file. What is replaced or removed is overwritten in the file.
#[derive(Debug)]
pub struct SqliteSecrets {
    disk: Connection,
    path: PathBuf,
}

impl SqliteSecrets {
    /// Opens the file. Makes it, or brings an older one up to date.
    ///
    /// # Errors
    /// When the file cannot be opened, or a newer release wrote it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self { disk: database::open(STORE, path, &MIGRATIONS)?, path: path.to_owned() })
    }
}

impl Secrets for SqliteSecrets {
    fn location(&self) -> String {
        self.path.display().to_string()
    }

    fn witness(&mut self, offered: &Sealed) -> Result<Sealed, StoreError> {
        let sql = "INSERT INTO witness (nonce, sealed)
                   SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM witness)";
        let fields = params![offered.nonce.as_slice(), offered.text];
        self.disk.execute(sql, fields).map_err(unwritable(STORE))?;
        let sealed = |row: &Row<'_>| Ok(Sealed { nonce: row.get(0)?, text: row.get(1)? });
        self.disk
            .query_row("SELECT nonce, sealed FROM witness ORDER BY rowid", [], sealed)
            .map_err(unreadable(STORE))
    }

    fn list(&self) -> Result<Vec<SecretRow>, StoreError> {
        let failed = unreadable(STORE);
        let sql = "SELECT tenant, function, key, nonce, sealed, updated
                   FROM secrets ORDER BY tenant, function, key";
        let mut statement = self.disk.prepare(sql).map_err(failed)?;
        let rows = statement.query_map([], |row| Ok(read(row))).map_err(failed)?;
        rows.map(|row| row.map_err(failed)?).collect()
    }

    fn put(&mut self, secret: &SecretRow) -> Result<(), StoreError> {
        let fields = params![
            secret.owner.tenant(),
            secret.owner.name(),
            secret.key,
            secret.sealed.nonce.as_slice(),
            secret.sealed.text,
            to_millis(secret.updated),
        ];
        let sql = "INSERT INTO secrets (tenant, function, key, nonce, sealed, updated)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                   ON CONFLICT DO UPDATE SET nonce = ?4, sealed = ?5, updated = ?6";
        self.disk.execute(sql, fields).map_err(unwritable(STORE))?;
        Ok(())
    }

    fn remove(&mut self, owner: &WholeName, key: &str) -> Result<bool, StoreError> {
        let sql = "DELETE FROM secrets WHERE tenant = ?1 AND function = ?2 AND key = ?3";
        let removed = self.disk.execute(sql, [owner.tenant(), owner.name(), key]);
        Ok(removed.map_err(unwritable(STORE))? > 0)
    }

    fn forget(&mut self, owner: &WholeName) -> Result<(), StoreError> {
        let sql = "DELETE FROM secrets WHERE tenant = ?1 AND function = ?2";
        let removed = self.disk.execute(sql, [owner.tenant(), owner.name()]);
        removed.map_err(unwritable(STORE))?;
        Ok(())
    }
}

fn read(row: &Row<'_>) -> Result<SecretRow, StoreError> {
    let failed = unreadable(STORE);
    let tenant = row.get("tenant").map_err(failed)?;
    let owner = WholeName::stored(tenant, row.get("function").map_err(failed)?);
    let key: String = row.get("key").map_err(failed)?;
    let named = format!("the secret {key} of {owner}");
    let sealed =
        Sealed { nonce: column(row, &named, "nonce")?, text: column(row, &named, "sealed")? };
    let updated = from_millis(column(row, &named, "updated")?);
    Ok(SecretRow { owner, key, sealed, updated })
}

fn column<T: FromSql>(row: &Row<'_>, named: &str, column: &str) -> Result<T, StoreError> {
    row.get(column).map_err(|cause| strange(named.to_owned(), column, cause))
}

#[cfg(test)]
mod tests {
    use store::NONCE_BYTES;

    use super::*;

    fn row(tenant: &str, function: &str, text: &[u8]) -> SecretRow {
        let owner = WholeName::stored(tenant.to_owned(), function.to_owned());
        let sealed = Sealed { nonce: [7; NONCE_BYTES], text: text.to_vec() };
        let updated = from_millis(1_700_000_000_001);
        SecretRow { owner, key: "KEY".to_owned(), sealed, updated }
    }

    #[test]
    fn a_secret_that_cannot_be_read_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets.sqlite");
        let mut secrets = SqliteSecrets::open(&path).unwrap();
        secrets.put(&row("acme", "f", b"value")).unwrap();
        secrets.put(&row("default", "f", b"value")).unwrap();
        secrets.disk.execute("UPDATE secrets SET nonce = x'00' WHERE tenant = 'acme'", []).unwrap();
        let error = SqliteSecrets::open(&path).unwrap().list().unwrap_err();
        assert_eq!(error.to_string(), "the secret KEY of acme/f cannot be read");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.starts_with("its nonce: "), "{cause}");
    }

    #[test]
    fn a_value_that_was_replaced_or_removed_is_nowhere_on_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets.sqlite");
        let mut secrets = SqliteSecrets::open(&path).unwrap();
        let (first, second) = (b"the first sealed value", b"the second sealed value");
        secrets.put(&row("default", "f", first)).unwrap();
        secrets.put(&row("default", "f", second)).unwrap();
        secrets.put(&row("default", "g", first)).unwrap();
        secrets.forget(&row("default", "g", first).owner).unwrap();
        // Closing merges the log into the file, and removes the log.
        drop(secrets);
        let bytes = std::fs::read(&path).unwrap();
        let holds = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
        assert!(holds(second) && !holds(first));
    }

    /// As releases before this crate have written it.
    #[test]
    fn a_file_of_an_earlier_release_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets.sqlite");
        let disk = Connection::open(&path).unwrap();
        disk.execute_batch(
            "CREATE TABLE secrets (tenant TEXT NOT NULL, function TEXT NOT NULL, key TEXT NOT NULL,
                 nonce BLOB NOT NULL, sealed BLOB NOT NULL, updated INTEGER NOT NULL,
                 PRIMARY KEY (tenant, function, key)) STRICT, WITHOUT ROWID;
             CREATE TABLE witness (nonce BLOB NOT NULL, sealed BLOB NOT NULL) STRICT;
             INSERT INTO secrets VALUES ('acme', 'f', 'KEY',
                 x'070707070707070707070707070707070707070707070707', x'01ff', 1700000000001);
             INSERT INTO witness VALUES (x'080808080808080808080808080808080808080808080808', x'02');
             PRAGMA user_version = 1;",
        )
        .unwrap();
        drop(disk);
        let mut secrets = SqliteSecrets::open(&path).unwrap();
        assert_eq!(secrets.list().unwrap(), [row("acme", "f", &[1, 255])]);
        let offered = Sealed { nonce: [9; NONCE_BYTES], text: vec![9] };
        let kept = Sealed { nonce: [8; NONCE_BYTES], text: vec![2] };
        assert_eq!(secrets.witness(&offered).unwrap(), kept);
    }
}
