//! Random bytes.

use std::io;

/// Random bytes of the kernel's.
pub(super) fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let length = bytes.len();
    match rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty())? {
        filled if filled == length => Ok(()),
        // Up to 256 bytes are never cut short (getrandom(2)).
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
