//! Flags that calls of several kinds know, as they stand in a guest's registers: those of open files, and one of `*at` calls.

/// Which bits say whether a file is read, written or both: O_ACCMODE. None of them: it is read.
pub(crate) const ACCESS_MODE: u64 = register(libc::O_ACCMODE);
pub(crate) const WRITE_ONLY: u64 = register(libc::O_WRONLY);
pub(crate) const APPEND: u64 = register(libc::O_APPEND);
pub(crate) const NONBLOCK: u64 = register(libc::O_NONBLOCK);
pub(crate) const CLOSE_ON_EXEC: u64 = register(libc::O_CLOEXEC);
/// A place of the tree, of which nothing is read or written: O_PATH.
pub(crate) const PATH: u64 = register(libc::O_PATH);
/// AT_EMPTY_PATH: the directory itself is meant.
pub(crate) const EMPTY_PATH: u64 = register(libc::AT_EMPTY_PATH);

/// MAP_FIXED: map exactly there, in the place of what is mapped.
pub(crate) const MAP_FIXED: u64 = register(libc::MAP_FIXED);

const fn register(flag: i32) -> u64 {
    flag.cast_unsigned() as u64
}
