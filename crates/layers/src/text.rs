//! The texts of a bundle that say what it is: read whole, and so only up to a length. A bundle may unpack to half a gigabyte,
//! from an upload of two megabytes.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Longest text that is read, in bytes.
pub(crate) const MAX_BYTES: u64 = 4 << 20;

/// Reads a file; none when it is longer than [`MAX_BYTES`].
pub(crate) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= MAX_BYTES).then_some(bytes))
}
