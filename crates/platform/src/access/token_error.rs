//! Why tokens could not be made, read or removed.

use function::Label;
use store::{Cause, StoreError};
use thiserror::Error;

/// What could not be done with tokens.
#[derive(Debug, Error)]
pub enum TokenError {
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
    /// A row holds what no release has written.
    #[error("{row} cannot be read: remove it with `wool token rm` and make another")]
    Row {
        /// The row, such as "the token ci".
        row: String,
        /// What is wrong with the row.
        #[source]
        source: Cause,
    },
    /// The name is taken.
    #[error(
        "there is a token {0} already: choose another name, or remove that one with `wool token rm {0}`"
    )]
    Exists(Label),
    /// It would be good for nothing.
    #[error("a token needs a scope: --scope deploy, invoke, read or admin")]
    NoScope,
    /// An administrator of some.
    #[error(
        "the scope admin is over all functions of all tenants: leave out --functions and --tenant, or the scope admin"
    )]
    AdminOfSome,
    /// No time at all.
    #[error("a token cannot expire when it is made, or in more than a thousand years")]
    Lifetime,
    /// The kernel gave no random bytes.
    #[error("the kernel gave no random bytes")]
    Random(#[source] std::io::Error),
    /// The work ended without a result.
    #[error("the database of tokens broke off")]
    BrokeOff,
}

impl From<StoreError> for TokenError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Row { row, source } => Self::Row { row, source },
            other => Self::Store(other),
        }
    }
}
