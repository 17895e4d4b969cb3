//! Names of tokens and tenants.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::name::{FunctionName, MAX_NAME};

/// The tenant of a function that was given to no other.
pub const DEFAULT_TENANT: &str = "default";

/// A name of a token or a tenant: by the same rule as a function's, so that it stands anywhere without quoting.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Label(String);

/// Why a text is no [`Label`].
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "{0:?} is no name of a token or a tenant: use 1 to 64 letters, digits, `-` and `_`, beginning with a letter or a digit"
)]
pub struct LabelError(String);

impl Label {
    /// The tenant of callers that were given no other.
    #[must_use]
    pub fn default_tenant() -> Self {
        Self(DEFAULT_TENANT.to_owned())
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Label {
    type Err = LabelError;

    fn from_str(text: &str) -> Result<Self, LabelError> {
        match text.parse::<FunctionName>() {
            Ok(name) => Ok(Self(name.to_string())),
            Err(_) => Err(LabelError(text.chars().take(2 * MAX_NAME).collect())),
        }
    }
}

impl TryFrom<String> for Label {
    type Error = LabelError;

    fn try_from(text: String) -> Result<Self, LabelError> {
        text.parse()
    }
}

impl From<Label> for String {
    fn from(label: Label) -> Self {
        label.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
