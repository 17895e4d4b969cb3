//! Stored secrets: sealed values, which a store cannot read.

use std::fmt::Debug;
use std::time::SystemTime;

use crate::{StoreError, WholeName};

/// The length of a sealed value's nonce.
pub const NONCE_BYTES: usize = 24;

/// An encrypted and authenticated value. The key is not in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The nonce that the value was sealed with.
    pub nonce: [u8; NONCE_BYTES],
    /// The ciphertext and its tag.
    pub text: Vec<u8>,
}

/// A secret as a store holds it. Its owner and key together are its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRow {
    /// The function whose environment it becomes part of. It need not be deployed.
    pub owner: WholeName,
    /// The name of the variable.
    pub key: String,
    /// The encrypted value.
    pub sealed: Sealed,
    /// When it was last put.
    pub updated: SystemTime,
}

/// The secrets of all functions. [The crate's page](crate) says what every method promises.
pub trait Secrets: Debug + Send {
    /// Where the store is, for messages to its operator: a path or an address.
    fn location(&self) -> String;

    /// Returns the store's witness: a known value, by which a wrong key is found at the start.
    /// The first witness that is offered becomes the store's, and none replaces it.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    fn witness(&mut self, offered: &Sealed) -> Result<Sealed, StoreError>;

    /// All secrets, by tenant, function and key.
    ///
    /// # Errors
    /// When the store cannot be read. A single unreadable row fails the list with
    /// [`StoreError::Row`].
    fn list(&self) -> Result<Vec<SecretRow>, StoreError>;

    /// Adds a secret, or replaces the one of the same owner and key.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn put(&mut self, secret: &SecretRow) -> Result<(), StoreError>;

    /// Removes a secret. Returns whether there was one.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn remove(&mut self, owner: &WholeName, key: &str) -> Result<bool, StoreError>;

    /// Removes all secrets of a function, if it has any.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn forget(&mut self, owner: &WholeName) -> Result<(), StoreError>;
}
