//! What is stored, as traits: plain rows go in, and the same rows come out.
//!
//! ```text
//!   platform       rules: who may do what, what fits, what is sealed and how
//!      │ plain rows
//!      ▼
//!   Tokens         tokens, by their hashes      ◄── store-sqlite       a file for each
//!   Secrets        sealed values and a witness  ◄── memory             for tests
//!   Functions      the records of versions
//!   Bundles        their files, by content
//!   Actions        the audit log
//!      ▲
//!      └── conformance                          one suite, which runs on both
//! ```
//!
//! # What every store promises
//!
//! - **Durable when it returns.** A change that a method returned `Ok` for survives a kill of the
//!   process and a loss of power; of [`Actions`], a kill alone. A store that is opened again holds it.
//! - **Whole or not at all.** After an error nothing has changed.
//! - **Exact.** Text comes back byte for byte: names that differ in case are two names.
//! - **Milliseconds.** Times are whole milliseconds since 1970 ([`millis`]). Finer parts are cut
//!   off.
//! - **Ordered.** Lists are sorted by the bytes of their names, whatever the order of the writes.
//! - **One writer.** Writing takes `&mut self`, and a read sees each write before it. The worker
//!   opens one store of each kind and holds its state directory, so that no other process writes.
//! - **Blocking.** A method waits for the disk. Call it where blocking is allowed.
//!
//! A store checks no rule: it takes a token without a scope. The rules are in `platform`.

#![forbid(unsafe_code)]

mod actions;
mod bundles;
#[cfg(any(test, feature = "fake"))]
pub mod conformance;
mod error;
mod functions;
mod layers;
#[cfg(any(test, feature = "fake"))]
pub mod memory;
pub mod millis;
mod secrets;
mod tokens;

// The owner of a secret: every implementation needs this word.
pub use function::WholeName;

pub use actions::{ActionRow, Actions};
pub use bundles::{Bundles, Pack};
pub use error::{Cause, StoreError};
pub use functions::{
    AliasRow, AttachmentRow, FunctionRow, Functions, MAX_VERSIONS, PastVersion, PublishedVersion,
    Version,
};
pub use layers::{LayerRow, LayerVersion, Layers};
pub use secrets::{NONCE_BYTES, Sealed, SecretRow, Secrets};
pub use tokens::{HASH_BYTES, TokenRow, Tokens};
