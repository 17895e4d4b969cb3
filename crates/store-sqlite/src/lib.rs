//! The stores of one machine: a SQLite file for each kind, and files for bundles.
//!
//! ```text
//!   STATE/access.sqlite    SqliteTokens
//!   STATE/secrets.sqlite   SqliteSecrets
//!   STATE/functions.sqlite SqliteFunctions
//!   STATE/audit.sqlite     SqliteActions
//!   STATE/bundles/         FileBundles: an archive is a file, not a row
//! ```
//!
//! Each is one connection to one file, which only the worker's user can read. [`store`] says what
//! they promise; SQLite's write-ahead log with `synchronous=FULL` keeps it. The files of earlier
//! releases are migrated when they are opened, and those of newer releases are refused.

#![forbid(unsafe_code)]

mod actions;
mod bundles;
mod database;
pub mod former;
mod functions;
mod layers;
mod secrets;
mod tokens;

pub use actions::SqliteActions;
pub use bundles::FileBundles;
pub use functions::SqliteFunctions;
pub use secrets::SqliteSecrets;
pub use tokens::SqliteTokens;
