//! Flags that several calls share, as they stand in a guest's registers: of open files, of
//! mappings, and of `*at` calls.

/// O_ACCMODE: the bits that tell reading, writing or both. None of them means reading.
pub(crate) const ACCESS_MODE: u64 = register(libc::O_ACCMODE);
pub(crate) const WRITE_ONLY: u64 = register(libc::O_WRONLY);
pub(crate) const APPEND: u64 = register(libc::O_APPEND);
pub(crate) const NONBLOCK: u64 = register(libc::O_NONBLOCK);
pub(crate) const CLOSE_ON_EXEC: u64 = register(libc::O_CLOEXEC);
/// O_PATH: a place of the tree, which is neither read nor written.
pub(crate) const PATH: u64 = register(libc::O_PATH);
/// AT_EMPTY_PATH: an empty path means the descriptor itself.
pub(crate) const EMPTY_PATH: u64 = register(libc::AT_EMPTY_PATH);

/// MAP_FIXED: map at this address, in place of what is mapped there.
pub(crate) const MAP_FIXED: u64 = register(libc::MAP_FIXED);

const fn register(flag: i32) -> u64 {
    flag.cast_unsigned() as u64
}
