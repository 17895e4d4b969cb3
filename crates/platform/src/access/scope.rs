//! Scopes: what a token is good for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

/// One kind of thing that a caller may do.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Deploying and removing functions, and setting their secrets.
    Deploy,
    /// Calling functions.
    Invoke,
    /// Seeing functions, their logs, and how the worker is.
    Read,
    /// Everything, for every tenant: tokens, packages and the audit log, too.
    Admin,
}

/// A text is no scope.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0:?} is no scope: use deploy, invoke, read or admin")]
pub struct ScopeError(String);

impl Scope {
    /// Every variant, in the order of declaration.
    pub const ALL: [Self; 4] = [Self::Deploy, Self::Invoke, Self::Read, Self::Admin];

    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deploy => "deploy",
            Self::Invoke => "invoke",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }
}

impl FromStr for Scope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        let same = |scope: &Self| scope.as_str() == text;
        Self::ALL.into_iter().find(same).ok_or_else(|| ScopeError(text.to_owned()))
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
