//! An index as its operator names it, in uv's own notation.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::address::{goes_nowhere_else, plain, trimmed, without_credentials};

/// An index as an operator names it: `name=address`, or an address alone; uv's own notation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Index {
    pub(super) name: Option<String>,
    pub(super) url: String,
}

/// Why a text names no index, or no place of files.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum IndexError {
    /// It is none, or no program could be sure which.
    #[error(
        "{0:?} is no address of packages: write for example \"corp=https://packages.example.org/simple\""
    )]
    Address(String),
    /// It holds a secret, and is not repeated.
    #[error(
        "the address of an index holds credentials: name it, as in \"corp=https://…\", and put them into the worker's environment, as UV_INDEX_CORP_USERNAME and UV_INDEX_CORP_PASSWORD"
    )]
    Credentials,
}

impl Index {
    /// What uv reads from its variables. Whatever it is, functions can name it only as it is written there.
    pub(super) fn lenient(text: &str) -> Self {
        let (name, url) = split(text);
        let url = without_credentials(url);
        Self { name: name.map(str::to_owned), url: trimmed(&url).to_owned() }
    }
}

impl FromStr for Index {
    type Err = IndexError;

    fn from_str(text: &str) -> Result<Self, IndexError> {
        let (name, url) = split(text.trim());
        let url = trimmed(checked(url)?).to_owned();
        Ok(Self { name: name.map(str::to_owned), url })
    }
}

impl TryFrom<String> for Index {
    type Error = IndexError;

    fn try_from(text: String) -> Result<Self, IndexError> {
        text.parse()
    }
}

impl From<Index> for String {
    fn from(index: Index) -> Self {
        index.to_string()
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name}={}", self.url),
            None => f.write_str(&self.url),
        }
    }
}

/// A name is of letters, digits, `-`, `_` and `.`; an address may hold `=`, but only behind something else.
fn split(text: &str) -> (Option<&str>, &str) {
    let plain = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    match text.split_once('=') {
        Some((name, url)) if plain(name) => (Some(name), url),
        _ => (None, text),
    }
}

/// An http or https address that every program reads alike.
pub(super) fn checked(url: &str) -> Result<&str, IndexError> {
    let wrong = || IndexError::Address(url.to_owned());
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let authority = rest.ok_or_else(wrong)?.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(IndexError::Credentials);
    }
    let fits = !authority.is_empty() && plain(url) && goes_nowhere_else(url);
    if fits { Ok(url) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_programs_could_read_differently_is_no_address() {
        for bad in [
            "",
            "corp",
            "corp=",
            "file:///wheels",
            "https://",
            "https://a.example\\.b.example/",
            "https://a.example/\u{9}x",
            "https://a.example/x/../y",
            "https://ä.example/",
        ] {
            assert!(matches!(bad.parse::<Index>(), Err(IndexError::Address(_))), "{bad}");
        }
        let secret = "corp=https://me:hunter2@corp.example/simple".parse::<Index>().unwrap_err();
        assert!(!secret.to_string().contains("hunter2"), "{secret}");
        let one: Index = "a=https://a.example/simple?x=y/".parse().unwrap();
        assert_eq!(one.to_string(), "a=https://a.example/simple?x=y");
    }
}
