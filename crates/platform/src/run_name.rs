//! Names of the functions that `wool run` makes: each is the hash of what it names.
//!
//! A second run of a file finds its function there. No other function can stand under such a name: a worker takes only
//! the files that it is the hash of. The hash has 192 bits: two files of one name cannot be found.

use std::io::{self, Read};

const PREFIX: &str = "run-";

/// What stands for all of them where an operator lists names.
pub const PATTERN: &str = "run-*";

const DIGITS: usize = 48;

/// The name of a bundle: its bytes, how they are packed, the module's name, and what its deploy says instead of it, as the
/// deploy's query has it.
pub fn name(
    instead: &str,
    module: &str,
    content_type: &str,
    bytes: impl Read,
) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    for part in [instead, module, content_type] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.update_reader(bytes)?;
    Ok(format!("{PREFIX}{}", &hasher.finalize().to_hex()[..DIGITS]))
}

/// Whether a name is of that kind.
pub fn is_one(name: &str) -> bool {
    let hex = |digits: &str| {
        digits.len() == DIGITS && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    name.strip_prefix(PREFIX).is_some_and(hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_differs_gives_another_name_that_is_a_name() {
        let [as_it_says, machine] = ["", "isolation=microvm"];
        let name = |instead, module, kind, bytes: &[u8]| {
            let name = name(instead, module, kind, bytes).unwrap();
            assert!(is_one(&name) && name.parse::<function::FunctionName>().is_ok(), "{name}");
            name
        };
        let one = name(as_it_says, "hello", "text/x-python", b"x = 1");
        assert_eq!(one, name(as_it_says, "hello", "text/x-python", b"x = 1"));
        let others = [
            name(machine, "hello", "text/x-python", b"x = 1"),
            name("isolation=microvm&reset=always", "hello", "text/x-python", b"x = 1"),
            name(as_it_says, "hell", "otext/x-python", b"x = 1"),
            name(as_it_says, "hello", "application/zip", b"x = 1"),
            name(as_it_says, "hello", "text/x-python", b"x = 2"),
        ];
        assert!(!others.contains(&one));
        for other in ["run-", "run-x", &one[4..], &one.to_uppercase(), &format!("{one}0")] {
            assert!(!is_one(other), "{other}");
        }
    }
}
