//! The stores of one machine: a SQLite file for each kind.
//!
//! ```text
//!   STATE/access.sqlite    SqliteTokens
//!   STATE/secrets.sqlite   SqliteSecrets
//! ```
//!
//! Each is one connection to one file, which only the worker's user can read. [`store`] says what
//! they promise; SQLite's write-ahead log with `synchronous=FULL` keeps it. The files of earlier
//! releases are migrated when they are opened, and those of newer releases are refused.

#![forbid(unsafe_code)]

mod database;
mod secrets;
mod tokens;

pub use secrets::SqliteSecrets;
pub use tokens::SqliteTokens;
