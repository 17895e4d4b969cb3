//! The suite of every store, on SQLite files.

use store::conformance::Backend;
use store::{Secrets, Tokens};
use store_sqlite::{SqliteSecrets, SqliteTokens};
use tempfile::TempDir;

#[derive(Debug)]
struct Directory(TempDir);

impl Default for Directory {
    fn default() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl Backend for Directory {
    fn tokens(&self) -> Box<dyn Tokens> {
        Box::new(SqliteTokens::open(&self.0.path().join("access.sqlite")).unwrap())
    }

    fn secrets(&self) -> Box<dyn Secrets> {
        Box::new(SqliteSecrets::open(&self.0.path().join("secrets.sqlite")).unwrap())
    }
}

store::conformance!(Directory);
