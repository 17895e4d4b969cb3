//! Small JSON files that describe the directory beside them.
//!
//! A description is written whole or not at all. Its modification time says when the directory was
//! last used.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::FileError;

/// Reads a description; none when it is absent, or of another format. It is read whole: only this
/// workspace writes them.
#[must_use]
pub fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Writes a description as JSON, in the manner of [`write_bytes`].
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, value: &impl Serialize) -> Result<(), FileError> {
    let text = serde_json::to_vec_pretty(value)
        .map_err(io::Error::other)
        .map_err(FileError::at("describe", path))?;
    write_bytes(path, &text)
}

/// Writes a file so that a reader, also after a crash, sees all of it or what was there before.
///
/// # Errors
/// When it cannot be written, or not made to last.
pub fn write_bytes(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let own = format!(".new-{}-{:?}", std::process::id(), std::thread::current().id());
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(own);
    let unfinished = path.with_file_name(name);
    sys::files::write_whole(path, &unfinished, bytes, 0o666).map_err(FileError::at("write", path))
}

/// Notes that what a file or directory stands for is used now. Best effort: it only orders what is
/// removed first.
pub fn touch(path: &Path) {
    drop(File::open(path).and_then(|file| file.set_modified(SystemTime::now())));
}

/// When [`touch`] last noted a use; the epoch when the path is gone.
#[must_use]
pub fn touched(path: &Path) -> SystemTime {
    fs::metadata(path).and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}
