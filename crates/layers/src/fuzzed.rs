//! Readers of strangers' bytes that nothing outside this crate calls, for the workspace's fuzzer to
//! call. No interface: they come and go with what they read.

use std::path::Path;

use crate::elf::{ElfError, Object};

/// Reads what an ELF file needs.
///
/// # Errors
/// When it is none.
pub fn library(path: &Path) -> Result<(), ElfError> {
    Object::read(path).map(drop)
}
