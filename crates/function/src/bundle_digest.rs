//! What a bundle's files are kept and found by.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The hash of a bundle's paths, modes and contents: 64 hexadecimal digits. Equal files have an
/// equal digest, however they were packed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BundleDigest(String);

/// A text that is no [`BundleDigest`].
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0:?} is no digest of a bundle: it must have 64 hexadecimal digits")]
pub struct DigestError(String);

impl BundleDigest {
    /// The digest as text; it is a plain file name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<blake3::Hash> for BundleDigest {
    fn from(hash: blake3::Hash) -> Self {
        Self(hash.to_hex().to_string())
    }
}

impl TryFrom<String> for BundleDigest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match text.len() == 64 && text.bytes().all(digit) {
            true => Ok(Self(text)),
            false => Err(DigestError(text.chars().take(80).collect())),
        }
    }
}

impl From<BundleDigest> for String {
    fn from(digest: BundleDigest) -> Self {
        digest.0
    }
}

impl fmt::Display for BundleDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_a_plain_file_name_or_refused() {
        for bad in ["", "..", "../../etc/passwd", &"a".repeat(63), &"A".repeat(64)] {
            assert!(BundleDigest::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
        BundleDigest::try_from("0f".repeat(32)).unwrap();
    }
}
