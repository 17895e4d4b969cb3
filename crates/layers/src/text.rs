//! Reading strangers' text files: whole, and so only up to a length.
//!
//! A bundle of two megabytes may unpack to half a gigabyte.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Longest text that is read, in bytes.
pub const MAX_BYTES: u64 = 4 << 20;

/// The characters of a file, without the byte order mark that some editors put in front of them.
///
/// # Errors
/// With what the file is instead: it completes the sentence "the file is …".
pub fn decoded(bytes: Vec<u8>) -> Result<String, &'static str> {
    let is_utf16 = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)),
        Err(_) if is_utf16 => Err("UTF-16 text, as `>` of PowerShell writes it"),
        Err(_) => Err("not UTF-8 text"),
    }
}

/// Reads a file; none when it is longer than [`MAX_BYTES`].
///
/// # Errors
/// When it cannot be read.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    read_up_to(MAX_BYTES, path)
}

/// Reads a file; none when it has more than `most` bytes.
///
/// # Errors
/// When it cannot be read.
pub fn read_up_to(most: u64, path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}
