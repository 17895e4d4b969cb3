//! Secrets of functions: values that only a function's own environment ever holds in the clear.
//!
//! ```text
//!   wool secret set ─► Vault::set ─► sealed: XChaCha20-Poly1305, a nonce of its own, bound to (tenant, function, key)
//!                                      ├─► store::Secrets
//!                                      └─► memory, sealed as well
//!   an instance loads ─► Vault::read ─► opened ─► Load ─► the handler's environment          overwritten afterwards
//! ```
//!
//! A row that was copied to another function, tenant or name does not open there. The key is in a file of its own
//! (`key`): a copy of the database alone tells names and lengths.
//!
//! A door has a [`SecretEditor`], which takes a permit; the [`Vault`] is for the parts that run functions.

mod editor;
mod key;
mod seal;
mod vault;

pub use editor::SecretEditor;
pub use key::{KeyError, SecretKey};
pub use vault::KEY_BYTES;
pub use vault::{Held, SecretError, Vault};
