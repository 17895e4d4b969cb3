//! Why a store failed.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// The error of whatever a store is made of.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why a store could not be opened, read or written. `store` is a phrase such as "the tokens".
#[derive(Debug, Error)]
pub enum StoreError {
    /// The file cannot be made, or cannot be closed to other users.
    #[error("{store} cannot be used: cannot make {path}")]
    File {
        /// The store, as a phrase of the message.
        store: &'static str,
        /// The file that holds the store.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A newer release wrote the store.
    #[error(
        "{store} cannot be used: {path} was written by a newer release (schema {found}, this one knows {known}): install that release, or choose another state directory with --state DIR"
    )]
    Newer {
        /// The store, as a phrase of the message.
        store: &'static str,
        /// The file that holds the store.
        path: PathBuf,
        /// The file's schema.
        found: u32,
        /// The newest schema that this release knows.
        known: u32,
    },
    /// The database failed.
    #[error("{store} {step}")]
    Database {
        /// The store, as a phrase of the message.
        store: &'static str,
        /// What failed, such as "cannot be written".
        step: &'static str,
        /// The database's error.
        #[source]
        source: Cause,
    },
    /// A row holds what no release has written.
    #[error("{row} cannot be read")]
    Row {
        /// The row as its user knows it, such as "the token ci".
        row: String,
        /// What is wrong with the row.
        #[source]
        source: Cause,
    },
}
