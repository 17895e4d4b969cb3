//! Random bytes.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `bytes`, 256 at most, with random bytes of the kernel's.
///
/// # Errors
/// When the kernel gives none, or fewer.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let length = bytes.len();
    match getrandom(&mut *bytes, GetRandomFlags::empty())? {
        filled if filled == length => Ok(()),
        // Up to 256 bytes are never cut short (getrandom(2)).
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
