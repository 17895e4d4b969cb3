//! Names that functions are deployed under.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Longest name, in bytes.
pub const MAX_NAME: usize = 64;

/// A function's name: it stands in URLs, in file names and in metric labels without any quoting.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionName(String);

/// Why a text is no [`FunctionName`], or no [`LayerName`](crate::LayerName).
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{text:?} is no {what}")]
pub struct NameError {
    text: String,
    what: &'static str,
}

impl NameError {
    /// Of a text that is no layer's name.
    pub(crate) fn of_layer(text: &str) -> Self {
        let what = "layer name: use 1 to 140 letters, digits, `-` and `_`";
        Self { text: text.chars().take(2 * MAX_NAME).collect(), what }
    }
}

impl FunctionName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FunctionName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        let fits = (1..=MAX_NAME).contains(&text.len())
            && text.bytes().all(plain)
            && text.as_bytes()[0].is_ascii_alphanumeric();
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            let what = "function name: use 1 to 64 letters, digits, `-` and `_`, beginning with a letter or a digit";
            Err(NameError { text: text.chars().take(2 * MAX_NAME).collect(), what })
        }
    }
}

impl fmt::Display for FunctionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_needs_quoting_anywhere_is_refused() {
        let long = "a".repeat(65);
        for bad in ["", "-a", "_a", "a/b", "..", "a b", "ä", "a%2f", "a\n", long.as_str()] {
            assert!(bad.parse::<FunctionName>().is_err(), "{bad:?}");
        }
        let longest = "a".repeat(64);
        for good in ["a", "0", "hello-world_2", longest.as_str()] {
            assert_eq!(good.parse::<FunctionName>().unwrap().as_str(), good);
        }
    }

    #[test]
    fn the_refusal_of_a_huge_name_is_short() {
        let refused = "x".repeat(1 << 20).parse::<FunctionName>().unwrap_err();
        assert!(refused.to_string().len() < 300);
    }
}
