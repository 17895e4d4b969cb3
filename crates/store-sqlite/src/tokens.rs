//! Tokens as rows.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use store::millis::{from_millis, to_millis};
use store::{StoreError, TokenRow, Tokens};

use crate::database::{self, strange, unreadable, unwritable};

/// AUTOINCREMENT: SQLite remembers the highest number when its row is gone.
const MIGRATIONS: [&str; 1] = ["CREATE TABLE tokens (
         number    INTEGER PRIMARY KEY AUTOINCREMENT,
         id        TEXT NOT NULL UNIQUE,
         name      TEXT NOT NULL UNIQUE,
         tenant    TEXT NOT NULL,
         hash      BLOB NOT NULL,
         scopes    TEXT NOT NULL,
         functions TEXT NOT NULL,
         created   INTEGER NOT NULL,
         expires   INTEGER
     ) STRICT;"];

const STORE: &str = "the tokens";

/// Tokens in a SQLite file.
#[derive(Debug)]
pub struct SqliteTokens {
    disk: Connection,
}

impl SqliteTokens {
    /// Opens the file. Makes it, or brings an older one up to date.
    ///
    /// # Errors
    /// When the file cannot be opened, or a newer release wrote it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self { disk: database::open(STORE, path, &MIGRATIONS)? })
    }
}

impl Tokens for SqliteTokens {
    fn list(&self) -> Result<Vec<TokenRow>, StoreError> {
        let failed = unreadable(STORE);
        let sql = "SELECT id, name, tenant, hash, scopes, functions, created, expires
                   FROM tokens ORDER BY name";
        let mut statement = self.disk.prepare(sql).map_err(failed)?;
        let rows = statement.query_map([], |row| Ok(read(row))).map_err(failed)?;
        rows.map(|row| row.map_err(failed)?).collect()
    }

    fn insert(&mut self, token: &TokenRow) -> Result<bool, StoreError> {
        let scopes: Vec<&str> = token.scopes.iter().map(String::as_str).collect();
        let functions = serde_json::to_string(&token.functions).map_err(|source| {
            StoreError::Database { store: STORE, step: "cannot be written", source: source.into() }
        })?;
        let row = params![
            token.id,
            token.name,
            token.tenant,
            token.hash.as_slice(),
            scopes.join(","),
            functions,
            to_millis(token.created),
            token.expires.map(to_millis),
        ];
        let sql = "INSERT INTO tokens (id, name, tenant, hash, scopes, functions, created, expires)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING";
        Ok(self.disk.execute(sql, row).map_err(unwritable(STORE))? > 0)
    }

    fn remove(&mut self, name: &str) -> Result<bool, StoreError> {
        let removed = self.disk.execute("DELETE FROM tokens WHERE name = ?1", [name]);
        Ok(removed.map_err(unwritable(STORE))? > 0)
    }

    fn ever_inserted(&self) -> Result<bool, StoreError> {
        let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'tokens'";
        let last: Option<i64> =
            self.disk.query_row(sql, [], |row| row.get(0)).optional().map_err(unreadable(STORE))?;
        Ok(last.is_some_and(|last| last > 0))
    }
}

fn read(row: &Row<'_>) -> Result<TokenRow, StoreError> {
    let name: String = row.get("name").map_err(unreadable(STORE))?;
    let scopes: String = column(row, &name, "scopes")?;
    let scopes: BTreeSet<String> =
        scopes.split(',').filter(|scope| !scope.is_empty()).map(str::to_owned).collect();
    let functions: String = column(row, &name, "functions")?;
    let functions = serde_json::from_str(&functions)
        .map_err(|cause| strange(token(&name), "functions", cause))?;
    Ok(TokenRow {
        id: column(row, &name, "id")?,
        tenant: column(row, &name, "tenant")?,
        hash: column(row, &name, "hash")?,
        scopes,
        functions,
        created: from_millis(column(row, &name, "created")?),
        expires: column::<Option<i64>>(row, &name, "expires")?.map(from_millis),
        name,
    })
}

fn column<T: FromSql>(row: &Row<'_>, name: &str, column: &str) -> Result<T, StoreError> {
    row.get(column).map_err(|cause| strange(token(name), column, cause))
}

/// The row as its user knows it.
fn token(name: &str) -> String {
    format!("the token {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> TokenRow {
        TokenRow {
            id: format!("id of {name}"),
            name: name.to_owned(),
            tenant: "default".to_owned(),
            hash: [7; 32],
            scopes: ["deploy".to_owned(), "read".to_owned()].into(),
            functions: vec!["report-*".to_owned()],
            created: from_millis(1_700_000_000_001),
            expires: None,
        }
    }

    #[test]
    fn a_token_that_cannot_be_read_is_named_and_can_be_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.sqlite");
        for (change, column) in [
            ("hash = x'00'", "hash"),
            ("functions = 'report-*'", "functions"),
            ("functions = '{}'", "functions"),
            ("tenant = CAST(x'ff' AS TEXT)", "tenant"),
        ] {
            let mut tokens = SqliteTokens::open(&path).unwrap();
            assert!(tokens.insert(&row("ci")).unwrap() && tokens.insert(&row("ok")).unwrap());
            let sql = format!("UPDATE tokens SET {change} WHERE name = 'ci'");
            assert_eq!(tokens.disk.execute(&sql, []).unwrap(), 1);
            let error = SqliteTokens::open(&path).unwrap().list().unwrap_err();
            assert_eq!(error.to_string(), "the token ci cannot be read");
            let cause = std::error::Error::source(&error).unwrap().to_string();
            assert!(cause.starts_with(&format!("its {column}: ")), "{cause}");
            assert!(tokens.remove("ci").unwrap() && tokens.remove("ok").unwrap());
        }
    }

    /// As releases before this crate have written it.
    #[test]
    fn a_file_of_an_earlier_release_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.sqlite");
        let disk = Connection::open(&path).unwrap();
        disk.execute_batch(
            "CREATE TABLE tokens (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
                 name TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, hash BLOB NOT NULL,
                 scopes TEXT NOT NULL, functions TEXT NOT NULL, created INTEGER NOT NULL,
                 expires INTEGER) STRICT;
             INSERT INTO tokens VALUES (3, 'id of ci', 'ci', 'default',
                 x'0707070707070707070707070707070707070707070707070707070707070707',
                 'deploy,read', '[\"report-*\"]', 1700000000001, NULL);
             PRAGMA user_version = 1;",
        )
        .unwrap();
        drop(disk);
        let mut tokens = SqliteTokens::open(&path).unwrap();
        assert_eq!(tokens.list().unwrap(), [row("ci")]);
        assert!(tokens.ever_inserted().unwrap() && tokens.insert(&row("next")).unwrap());
    }
}
