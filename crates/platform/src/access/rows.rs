//! Tokens as rows of their database.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::token::TokenHash;
use super::{Scope, Token, TokenError};
use crate::functions::millis::{from_millis, to_millis};

/// AUTOINCREMENT: the database remembers that there was a token once.
pub(super) const MIGRATIONS: [&str; 1] = ["CREATE TABLE tokens (
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

pub(super) fn insert(disk: &Connection, token: &Token, hash: &TokenHash) -> Result<(), TokenError> {
    let scopes: Vec<&str> = token.scopes.iter().map(|scope| scope.as_str()).collect();
    let functions = serde_json::to_string(&token.functions).unwrap_or_default();
    let row = params![
        token.id,
        token.name.as_str(),
        token.tenant.as_str(),
        hash.0.as_slice(),
        scopes.join(","),
        functions,
        to_millis(token.created),
        token.expires.map(to_millis),
    ];
    let sql = "INSERT INTO tokens (id, name, tenant, hash, scopes, functions, created, expires)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    disk.execute(sql, row).map_err(|source| TokenError::Sql("cannot be written", source))?;
    Ok(())
}

/// All tokens, with their hashes, and whether there was ever one.
pub(super) fn load(disk: &Connection) -> Result<(Vec<(TokenHash, Token)>, bool), TokenError> {
    let mut statement = disk
        .prepare("SELECT id, name, tenant, hash, scopes, functions, created, expires FROM tokens")
        .map_err(unreadable)?;
    let rows = statement.query_map([], |row| Ok(read(row))).map_err(unreadable)?;
    let tokens: Result<_, _> = rows.map(|row| row.map_err(unreadable)?).collect();
    let made = disk
        .query_row("SELECT seq FROM sqlite_sequence WHERE name = 'tokens'", [], |row| {
            row.get::<_, i64>(0)
        })
        .optional();
    Ok((tokens?, made.map_err(unreadable)?.is_some_and(|last| last > 0)))
}

fn read(row: &Row<'_>) -> Result<(TokenHash, Token), TokenError> {
    let name: String = row.get(1).map_err(unreadable)?;
    let strange = || TokenError::Row(name.clone());
    let text = |column: usize| row.get::<_, String>(column).map_err(unreadable);
    let hash = row.get::<_, Vec<u8>>(3).map_err(unreadable)?;
    let scopes: Result<BTreeSet<Scope>, _> = text(4)?.split(',').map(str::parse).collect();
    let token = Token {
        id: text(0)?,
        name: name.parse().map_err(|_| strange())?,
        tenant: text(2)?.parse().map_err(|_| strange())?,
        scopes: scopes.map_err(|_| strange())?,
        functions: serde_json::from_str(&text(5)?).map_err(|_| strange())?,
        created: from_millis(row.get(6).map_err(unreadable)?),
        expires: row.get::<_, Option<i64>>(7).map_err(unreadable)?.map(from_millis),
    };
    Ok((TokenHash(hash.try_into().map_err(|_| strange())?), token))
}

pub(super) fn unreadable(source: rusqlite::Error) -> TokenError {
    TokenError::Sql("cannot be read", source)
}
