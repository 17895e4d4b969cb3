//! The texts of a bundle that say what it is: read whole, and so only up to a length. A bundle may unpack to half a gigabyte,
//! from an upload of two megabytes.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Longest text that is read, in bytes.
pub(crate) const MAX_BYTES: u64 = 4 << 20;

/// The characters of a file, without the mark that some editors put in front of them; else what the file is instead.
pub(crate) fn decoded(bytes: Vec<u8>) -> Result<String, &'static str> {
    let is_utf16 = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)),
        Err(_) if is_utf16 => Err("UTF-16 text, as `>` of PowerShell writes it"),
        Err(_) => Err("not UTF-8 text"),
    }
}

/// Whether a Python source says what it is encoded in: in a comment, which is one of its first two lines (PEP 263).
pub(crate) fn names_its_encoding(source: &[u8]) -> bool {
    let mut lines = source.split(|byte| *byte == b'\n').take(2);
    let first = lines.next().unwrap_or_default();
    let is_comment = |line: &[u8]| line.trim_ascii_start().starts_with(b"#");
    let names = |line: &[u8]| {
        let line = String::from_utf8_lossy(line);
        let after = line.split_once("coding").map(|(_, after)| after.to_owned());
        after.is_some_and(|after| {
            let value = after.strip_prefix([':', '=']).unwrap_or_default().trim_start();
            value.starts_with(|c: char| c.is_ascii_alphanumeric())
        })
    };
    let blank = first.trim_ascii().is_empty();
    let second = (blank || is_comment(first)).then(|| lines.next()).flatten();
    [Some(first), second].into_iter().flatten().any(|line| is_comment(line) && names(line))
}

/// Reads a file; none when it is longer than [`MAX_BYTES`].
pub(crate) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    read_up_to(MAX_BYTES, path)
}

/// Reads a file; none when it has more bytes than these.
pub(crate) fn read_up_to(most: u64, path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_may_name_its_encoding_in_its_first_two_lines() {
        for source in [
            "# -*- coding: latin-1 -*-",
            "#!x\n# vim: set fileencoding=cp1252 :",
            "\n  #coding:utf8",
        ] {
            assert!(names_its_encoding(source.as_bytes()), "{source}");
        }
        for source in [
            "x = 1\n# coding: latin-1",
            "# coding",
            "\n\n# coding: x",
            "coding: x",
            "# coding is = fun",
        ] {
            assert!(!names_its_encoding(source.as_bytes()), "{source}");
        }
    }
}
