//! One token: what it says, and how it is checked.
//!
//! ```text
//!   wool_4f1c09a2b7d3_9e…   prefix, id (12 hex digits, shown in lists), secret (64 hex digits, 256 random bits)
//! ```
//!
//! The prefix is there for scanners of leaked credentials: `wool_[0-9a-f]{12}_[0-9a-f]{64}`.

use std::collections::BTreeSet;
use std::fmt;
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use function::Label;

use super::{Patterns, Scope};

const PREFIX: &str = "wool_";
const ID_BYTES: usize = 6;
const SECRET_BYTES: usize = 32;

/// A token: its name, and what it allows. Its secret is not in here: only its owner has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// The part of its text that is no secret.
    pub id: String,
    /// What it is called.
    pub name: Label,
    /// Whose functions it is for.
    pub tenant: Label,
    /// What it is good for.
    pub scopes: BTreeSet<Scope>,
    /// For which functions.
    pub functions: Patterns,
    /// When it was made, to the millisecond.
    pub created: SystemTime,
    /// From when on it is good for nothing.
    pub expires: Option<SystemTime>,
}

/// Why a text that came as a token opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is none of ours, or was removed.
    Unknown,
    /// Its time is over.
    Expired,
}

impl Token {
    /// Whether its time is over.
    #[must_use]
    pub fn expired(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// A whole token, as its owner sends it. It is shown once, and overwritten when it is dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// A new one.
    ///
    /// # Errors
    /// When the kernel gives no random bytes.
    pub fn draw() -> std::io::Result<Self> {
        let mut random = Zeroizing::new([0; ID_BYTES + SECRET_BYTES]);
        crate::random::fill(&mut *random)?;
        let (id, secret) = random.split_at(ID_BYTES);
        // Room for all of it: growing would leave a copy behind.
        let mut text = Zeroizing::new(String::with_capacity(96));
        text.push_str(PREFIX);
        push_hex(&mut text, id);
        text.push('_');
        push_hex(&mut text, secret);
        Ok(Self(text))
    }

    /// Reads the secret from a header or a file; none: the text has not the form of a token.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (id, secret) = text.trim().strip_prefix(PREFIX)?.split_once('_')?;
        let hex = |part: &str, bytes: usize| {
            part.len() == 2 * bytes && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        let fits = hex(id, ID_BYTES) && hex(secret, SECRET_BYTES);
        fits.then(|| Self(Zeroizing::new(text.trim().to_owned())))
    }

    /// The part that is no secret.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0[PREFIX.len()..PREFIX.len() + 2 * ID_BYTES]
    }

    /// The whole text. Only for who made it, and for the header in which it is sent.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What is kept of it.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash(Sha256::digest(self.0.as_bytes()).into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({PREFIX}{}_…)", self.id())
    }
}

/// SHA-256 of a whole token: what the disk holds.
///
/// A slow, salted hash is for passwords, which people choose and others guess. A token holds 256 random bits: there is
/// nothing to guess, and every call would pay for the slowness.
#[derive(Clone, Copy, Debug)]
pub struct TokenHash(pub(super) [u8; 32]);

impl TokenHash {
    /// Whether it is the same, in a time that says nothing about how far they agree.
    #[must_use]
    pub fn equals(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_token_has_the_form_that_scanners_look_for_and_is_read_again() {
        let secret = Secret::draw().unwrap();
        let text = secret.reveal();
        assert_eq!(text.len(), 5 + 12 + 1 + 64);
        assert!(text.starts_with("wool_"));
        let again = Secret::read(&format!("{text}\n")).unwrap();
        assert!(again.hash().equals(&secret.hash()));
        assert_eq!(again.id(), secret.id());
        assert!(!secret.hash().equals(&Secret::draw().unwrap().hash()));
    }

    #[test]
    fn what_has_another_form_is_no_token() {
        let good = Secret::draw().unwrap().reveal().to_owned();
        let short = &good[..good.len() - 1];
        for bad in ["", "wool_", short, &good.to_uppercase(), &good[5..], &format!("{good}0")] {
            assert!(Secret::read(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_token_does_not_print_its_secret() {
        let secret = Secret::draw().unwrap();
        assert!(!format!("{secret:?}").contains(&secret.reveal()[18..]));
    }
}
