//! Arguments and results of system calls, as registers hold them.

use rustix::io::Errno;

/// What a system call returns: a number, or an error that RAX holds negated.
pub(crate) type Answer = Result<u64, Errno>;

/// A descriptor, of which 32 bits count.
pub(crate) const fn fd(register: u64) -> u64 {
    register & 0xffff_ffff
}

/// An answer as RAX holds it.
pub(crate) fn register(answer: Answer) -> u64 {
    match answer {
        Ok(value) => value,
        Err(errno) => i64::from(-errno.raw_os_error()).cast_unsigned(),
    }
}

/// An `int` argument.
pub(crate) fn signed(register: u64) -> i32 {
    let bytes = register.to_le_bytes();
    i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Permission bits of a file.
pub(crate) fn mode(register: u64) -> u32 {
    signed(register).cast_unsigned() & 0o7777
}
