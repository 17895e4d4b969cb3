//! Random bytes from the kernel, getrandom(2).

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

/// A random number from 0 to 1, which 1 is not among. 0 where the kernel gives none.
#[must_use]
pub fn draw() -> f64 {
    let mut random = [0; 4];
    match fill(&mut random) {
        Ok(()) => f64::from(u32::from_ne_bytes(random)) / (f64::from(u32::MAX) + 1.0),
        Err(_) => 0.0,
    }
}
