//! The suite of every store, on SQLite files.

use store::conformance::Backend;
use store::{Actions, Bundles, Functions, Secrets, Tokens};
use store_sqlite::{FileBundles, SqliteActions, SqliteFunctions, SqliteSecrets, SqliteTokens};
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

    fn functions(&self) -> Box<dyn Functions> {
        Box::new(SqliteFunctions::open(&self.0.path().join("functions.sqlite")).unwrap())
    }

    fn bundles(&self) -> Box<dyn Bundles> {
        Box::new(FileBundles::open(&self.0.path().join("bundles")).unwrap())
    }

    fn actions(&self) -> Box<dyn Actions> {
        Box::new(SqliteActions::open(&self.0.path().join("audit.sqlite")).unwrap())
    }
}

store::conformance!(Directory);
