//! Which version of a function is meant: the current one, a published number, or an alias.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Longest name of an alias, in bytes.
pub const MAX_ALIAS: usize = 128;

/// The current version, in a text where a qualifier stands.
pub const LATEST: &str = "$LATEST";

/// A name for a published version, such as `live`. It never looks like a version number.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AliasName(String);

/// Which version of a function is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Qualifier {
    /// The version that was deployed last, or that was rolled back to: `$LATEST`.
    #[default]
    Latest,
    /// A published version, by its number.
    Number(u32),
    /// The version that an alias points to.
    Alias(AliasName),
}

/// A text that names no version.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "{0:?} names no version: give a published version's number, or an alias of 1 to 128 letters, digits, `-` and `_`, not digits alone"
)]
pub struct QualifierError(String);

impl AliasName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AliasName {
    type Err = QualifierError;

    fn from_str(text: &str) -> Result<Self, QualifierError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        let fits = (1..=MAX_ALIAS).contains(&text.len())
            && text.bytes().all(plain)
            && !text.bytes().all(|b| b.is_ascii_digit());
        if fits { Ok(Self(text.to_owned())) } else { Err(refused(text)) }
    }
}

impl FromStr for Qualifier {
    type Err = QualifierError;

    fn from_str(text: &str) -> Result<Self, QualifierError> {
        if text == LATEST {
            return Ok(Self::Latest);
        }
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return text.parse().map(Self::Alias);
        }
        match text.parse() {
            Ok(0) | Err(_) => Err(refused(text)),
            Ok(number) => Ok(Self::Number(number)),
        }
    }
}

fn refused(text: &str) -> QualifierError {
    QualifierError(text.chars().take(2 * MAX_ALIAS).collect())
}

impl TryFrom<String> for AliasName {
    type Error = QualifierError;

    fn try_from(text: String) -> Result<Self, QualifierError> {
        text.parse()
    }
}

impl From<AliasName> for String {
    fn from(alias: AliasName) -> Self {
        alias.0
    }
}

impl fmt::Display for AliasName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Qualifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str(LATEST),
            Self::Number(number) => number.fmt(f),
            Self::Alias(alias) => alias.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_an_alias_and_the_current_version_are_told_apart() {
        let alias = |name: &str| Ok(Qualifier::Alias(name.parse().unwrap()));
        assert_eq!("$LATEST".parse(), Ok(Qualifier::Latest));
        assert_eq!("7".parse(), Ok(Qualifier::Number(7)));
        assert_eq!("007".parse(), Ok(Qualifier::Number(7)));
        assert_eq!("live".parse(), alias("live"));
        assert_eq!("7b".parse(), alias("7b"));
        // AWS: a valid name, of an alias.
        assert_eq!("latest".parse(), alias("latest"));
    }

    #[test]
    fn a_text_that_names_no_version_is_refused_in_few_words() {
        let (long, digits) = ("a".repeat(129), "9".repeat(30));
        for bad in ["", "0", "000", "$latest", "a b", "a/b", "a:b", "ä", "-1.5", &long, &digits] {
            let refused = bad.parse::<Qualifier>().unwrap_err();
            assert!(refused.to_string().len() < 500, "{refused}");
        }
        assert!("12".parse::<AliasName>().is_err());
    }

    #[test]
    fn a_qualifier_is_written_as_it_is_read() {
        for text in ["$LATEST", "12", "live", "a-b_c", "-"] {
            assert_eq!(text.parse::<Qualifier>().unwrap().to_string(), text);
        }
    }
}
