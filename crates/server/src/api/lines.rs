//! How many lines a reply goes back.

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer};

/// Unless said.
pub(super) const USUAL: u32 = 100;

/// What may be asked for. The description says it, too.
const MOST: u32 = 100_000;

/// Reads how many were asked for.
///
/// # Errors
/// When it is no number, or too many: who got fewer than he asked for would not know.
pub(super) fn lines<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    match Option::<u32>::deserialize(from)? {
        Some(more) if more > MOST => Err(D::Error::custom(format!("at most {MOST} lines"))),
        asked => Ok(asked),
    }
}
