//! Small files that describe what lies beside them: whole or absent, and stamped with when it was used last.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::FileError;

/// Reads a description; none when it is absent, or of another format. We wrote it, so it is as long as we made it.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Writes a description as JSON. See [`write_bytes`].
pub(crate) fn write(path: &Path, value: &impl Serialize) -> Result<(), FileError> {
    let text = serde_json::to_vec_pretty(value)
        .map_err(io::Error::other)
        .map_err(FileError::at("describe", path))?;
    write_bytes(path, &text)
}

/// Writes a file so that whoever reads it, also after a crash, sees all of it or what was there before.
pub(crate) fn write_bytes(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let own = format!(".new-{}-{:?}", std::process::id(), std::thread::current().id());
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(own);
    let unfinished = path.with_file_name(name);
    let write = || -> io::Result<()> {
        fs::write(&unfinished, bytes)?;
        File::open(&unfinished)?.sync_all()?;
        fs::rename(&unfinished, path)
    };
    write().map_err(FileError::at("write", path))
}

/// Notes that what a file or directory stands for is used now. Best effort: it only orders what is collected.
pub(crate) fn touch(path: &Path) {
    drop(File::open(path).and_then(|file| file.set_modified(SystemTime::now())));
}

/// When that was noted last.
pub(crate) fn touched(path: &Path) -> SystemTime {
    fs::metadata(path).and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}
