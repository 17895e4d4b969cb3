//! A directory to write to, in memory where there is such a place: thousands of files a second come and go in it.

use std::path::Path;

use tempfile::TempDir;

/// An empty directory, gone when dropped.
pub(crate) fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("there is room for a directory")
}
