//! Names of sandboxes and of invocations.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Names one sandbox for as long as the worker lives; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SandboxId(pub u64);

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sandbox-{}", self.0)
    }
}

/// Names one invocation: 128 random bits in the form of a UUID, like Lambda's `aws_request_id`,
/// unless its caller chose another id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct InvocationId(String);

impl InvocationId {
    /// Formats 16 random bytes as a version 4 UUID (RFC 9562 §5.4). The caller supplies the
    /// randomness.
    #[must_use]
    pub fn from_random(mut bytes: [u8; 16]) -> Self {
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let mut text = String::with_capacity(36);
        for (i, byte) in bytes.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
            text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
        }
        Self(text)
    }

    /// The id as text: 36 characters, or the caller's own.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for InvocationId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = (1..=64).contains(&text.len())
            && text.starts_with(|first: char| first.is_ascii_alphanumeric())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(
                "an invocation's id has 1 to 64 letters, digits or hyphens, and begins with no hyphen",
            )
        }
    }
}

impl fmt::Display for InvocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invocation_id_is_a_version_4_uuid() {
        let id = InvocationId::from_random([0xff; 16]);
        assert_eq!(id.as_str(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(id.as_str().parse::<InvocationId>().unwrap(), id);
    }

    #[test]
    fn an_invocation_id_that_could_break_a_log_line_is_refused() {
        assert!("a\nb".parse::<InvocationId>().is_err());
        assert!("".parse::<InvocationId>().is_err());
        assert!("-".parse::<InvocationId>().is_err(), "the logs' word for no invocation");
    }
}
