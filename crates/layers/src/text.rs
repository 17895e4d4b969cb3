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
