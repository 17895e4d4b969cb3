//! Names that functions are deployed under.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::label::{DEFAULT_TENANT, Label};

/// Longest name, in bytes.
pub const MAX_NAME: usize = 64;

/// A function's name: it stands in URLs, in file names and in metric labels without any quoting.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionName(String);

/// Why a text is no [`FunctionName`].
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "{0:?} is no function name: use 1 to 64 letters, digits, `-` and `_`, beginning with a letter or a digit"
)]
pub struct NameError(String);

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
            Err(NameError(text.chars().take(2 * MAX_NAME).collect()))
        }
    }
}

impl fmt::Display for FunctionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A function's whole name: its own, and whose it is. Two tenants may each have a function of one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WholeName {
    tenant: String,
    name: String,
}

impl WholeName {
    /// A tenant's function.
    #[must_use]
    pub fn new(tenant: &Label, name: &FunctionName) -> Self {
        Self { tenant: tenant.to_string(), name: name.to_string() }
    }

    /// A name that was checked before it was stored.
    #[must_use]
    pub fn stored(tenant: String, name: String) -> Self {
        Self { tenant, name }
    }

    /// Whose it is.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// Its own name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its directory among others of its kind.
    #[must_use]
    pub fn directory(&self) -> Cow<'_, str> {
        directory(&self.tenant, &self.name)
    }
}

/// A function's directory among others of its kind: no name begins with `@`.
#[must_use]
pub fn directory<'a>(tenant: &str, name: &'a str) -> Cow<'a, str> {
    if tenant == DEFAULT_TENANT {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(format!("@{tenant}/{name}"))
    }
}

impl fmt::Display for WholeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tenant != DEFAULT_TENANT {
            write!(f, "{}/", self.tenant)?;
        }
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_functions_have_one_directory() {
        let whole = |tenant: &str, name: &str| {
            WholeName::new(&tenant.parse().unwrap(), &name.parse().unwrap())
        };
        assert_eq!(whole("default", "f").directory(), "f");
        assert_eq!(whole("acme", "f").directory(), "@acme/f");
        assert_eq!(whole("acme", "f").to_string(), "acme/f");
    }

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
