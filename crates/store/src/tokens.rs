//! Stored tokens.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::SystemTime;

use crate::StoreError;

/// The length of a token's hash.
pub const HASH_BYTES: usize = 32;

/// A token as a store holds it. The token's secret is not part of it, only the hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    /// The public part of the token's text. Unique.
    pub id: String,
    /// The name that its user chose. Unique among the tokens of all tenants.
    pub name: String,
    /// The tenant whose functions the token is for.
    pub tenant: String,
    /// SHA-256 of the token's text.
    pub hash: [u8; HASH_BYTES],
    /// What the token allows: words of ASCII letters, such as `deploy`.
    pub scopes: BTreeSet<String>,
    /// Patterns of the functions that the token is for, in the order of the request. None: all.
    pub functions: Vec<String>,
    /// When it was made.
    pub created: SystemTime,
    /// When it ends. None: it lasts until it is removed.
    pub expires: Option<SystemTime>,
}

/// The tokens of a worker. [The crate's page](crate) says what every method promises.
pub trait Tokens: Debug + Send {
    /// All tokens, expired ones included, by name.
    ///
    /// # Errors
    /// When the store cannot be read. A single unreadable row fails the list with
    /// [`StoreError::Row`]: the worker must not start with fewer tokens than it acknowledged.
    fn list(&self) -> Result<Vec<TokenRow>, StoreError>;

    /// Adds a token. Returns false, and changes nothing, if its name or its id is taken.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn insert(&mut self, token: &TokenRow) -> Result<bool, StoreError>;

    /// Removes the token of this name, readable or not. Returns whether there was one. The name may
    /// be used again.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn remove(&mut self, name: &str) -> Result<bool, StoreError>;

    /// Whether a token was ever inserted. Stays true when the last token is removed: a worker that
    /// asked for tokens once asks for them always.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn ever_inserted(&self) -> Result<bool, StoreError>;
}
