//! Sealing and opening: authenticated encryption, bound to what a value is for.
//!
//! XChaCha20-Poly1305's nonces are long enough to be drawn at random, however many values there are.

use std::io;

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use store::{NONCE_BYTES, Sealed};
use zeroize::Zeroizing;

use super::key::SecretKey;
use crate::random::fill;

/// Seals and opens with one key, which it overwrites when it is dropped.
pub(super) struct Sealer(XChaCha20Poly1305);

impl Sealer {
    pub(super) fn new(key: &SecretKey) -> Self {
        Self(XChaCha20Poly1305::new((&*key.0).into()))
    }

    /// Seals a value for a purpose.
    pub(super) fn seal(&self, value: &[u8], purpose: &[u8]) -> io::Result<Sealed> {
        let mut nonce = [0; NONCE_BYTES];
        fill(&mut nonce)?;
        let payload = Payload { msg: value, aad: purpose };
        let sealed = self.0.encrypt(&XNonce::from(nonce), payload);
        let text = sealed.map_err(|_| io::Error::other("the value is too long to be sealed"))?;
        Ok(Sealed { nonce, text })
    }

    /// Opens a value; none: it was changed, is for another purpose, or was sealed with another key.
    pub(super) fn open(&self, sealed: &Sealed, purpose: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let payload = Payload { msg: &sealed.text, aad: purpose };
        self.0.decrypt(&XNonce::from(sealed.nonce), payload).ok().map(Zeroizing::new)
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer(…)")
    }
}

/// What a value is for, as bytes that no other parts make: each with its length in front.
pub(super) fn purpose(parts: &[&str]) -> Vec<u8> {
    let mut all = b"lambswool secret 1".to_vec();
    for part in parts {
        all.extend_from_slice(&(part.len() as u64).to_le_bytes());
        all.extend_from_slice(part.as_bytes());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealer() -> Sealer {
        let mut key = Zeroizing::new([0; 32]);
        fill(&mut *key).unwrap();
        Sealer::new(&SecretKey(key))
    }

    #[test]
    fn a_sealed_value_opens_for_its_purpose_and_its_key_and_unchanged() {
        let (ours, purpose) = (sealer(), purpose(&["default", "f", "KEY"]));
        let sealed = ours.seal(b"value", &purpose).unwrap();
        assert_eq!(ours.open(&sealed, &purpose).unwrap().as_slice(), b"value");
        assert!(ours.open(&sealed, &super::purpose(&["default", "g", "KEY"])).is_none());
        assert!(sealer().open(&sealed, &purpose).is_none());
        let mut changed = sealed.clone();
        changed.text[0] ^= 1;
        assert!(ours.open(&changed, &purpose).is_none());
        let again = ours.seal(b"value", &purpose).unwrap();
        assert!(again.nonce != sealed.nonce && again.text != sealed.text);
    }

    #[test]
    fn parts_never_run_into_each_other() {
        assert_ne!(purpose(&["a", "bc"]), purpose(&["ab", "c"]));
        assert_ne!(purpose(&["a", ""]), purpose(&["a"]));
    }
}
