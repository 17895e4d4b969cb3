//! Programs that are installed beside this one.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::OnceLock;

static US: OnceLock<PathBuf> = OnceLock::new();

/// Notes where this program is. Before it has a mount namespace of its own: of a program whose first one is gone, the kernel
/// knows only a part of the path.
///
/// # Errors
/// As `readlink(2)` of `/proc/self/exe`.
pub fn note_our_place() -> io::Result<()> {
    let us = std::env::current_exe()?;
    US.get_or_init(|| us);
    Ok(())
}

/// The path of the program of that name.
///
/// # Errors
/// When it is not there.
pub(crate) fn find(program: &str) -> io::Result<CString> {
    let us = US.get().ok_or_else(|| io::Error::other("our own place was not noted"))?;
    let path = us.with_file_name(program);
    std::fs::metadata(&path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    CString::new(path.into_os_string().into_vec()).map_err(io::Error::other)
}
