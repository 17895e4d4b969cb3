//! Programs that are installed beside the warden's.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::OnceLock;

static US: OnceLock<PathBuf> = OnceLock::new();

/// Notes the path of this program. Must be called before the process has a mount namespace of its
/// own: when the namespace is gone in which a program was started, the kernel knows only a part of
/// its path.
///
/// # Errors
/// As `readlink(2)` of `/proc/self/exe`.
pub fn note_own_path() -> io::Result<()> {
    let us = std::env::current_exe()?;
    US.get_or_init(|| us);
    Ok(())
}

/// The path of the program with that name.
///
/// # Errors
/// When there is none.
pub(crate) fn find(program: &str) -> io::Result<CString> {
    let us = US.get().ok_or_else(|| io::Error::other("the path of this program was not noted"))?;
    let path = us.with_file_name(program);
    std::fs::metadata(&path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    CString::new(path.into_os_string().into_vec()).map_err(io::Error::other)
}
