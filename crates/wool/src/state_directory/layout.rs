//! What stands in a state directory: the names that are ours, and the version of their layout.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;

use super::{StateError, unusable};

/// Version of the layout that this build writes.
pub const VERSION: u32 = 2;

/// The files that go last when a directory is removed, in this order: while `version` is there it is known as ours, and
/// while `lock` is there no other worker takes it.
pub(crate) const LAST: [&str; 2] = ["version", "lock"];

/// The other names that a release makes in the directory. One that is not here makes the directory foreign
/// ([`StateError::Foreign`]) once its `version` is gone.
const NAMES: [&str; 19] = [
    "functions.sqlite",
    "bundles",
    "handlers",
    "access.sqlite",
    "secrets.sqlite",
    "secret.key",
    "audit.sqlite",
    "layers",
    "uv",
    "logs",
    "run",
    "tls",
    "microvm-lacking",
    "snapshots",
    "zygotes.json",
    // Beside it while it is written.
    "zygotes.new",
    // Beside `version` while it is written.
    "version.new",
    // What version 1 had in place of `functions.sqlite` and `audit.sqlite`.
    OLD_REGISTRY,
    OLD_AUDIT,
];

/// The database of functions of version 1.
pub(super) const OLD_REGISTRY: &str = "registry.sqlite";

/// The directory of audit logs of version 1.
pub(super) const OLD_AUDIT: &str = "audit";

/// What SQLite puts behind the name of a database.
pub(super) const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// The version of a directory's layout; none when it says none.
///
/// # Errors
/// When the file cannot be read, or holds what no release has written.
pub(super) fn version(root: &Path) -> Result<Option<u32>, StateError> {
    let path = root.join("version");
    let text = match fs::read(&path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(&path)(error)),
    };
    match text.trim().parse() {
        Ok(version) if version > 0 => Ok(Some(version)),
        _ => Err(StateError::Damaged { path, text: text.chars().take(20).collect() }),
    }
}

/// The number of names in a directory, if all of them are ours: the rest of an interrupted removal, or files that an
/// operator has laid out for a first start. None when another name is among them.
pub(super) fn ours(root: &Path) -> io::Result<Option<usize>> {
    let mut count = 0;
    for entry in fs::read_dir(root)? {
        if !is_ours(&entry?.file_name()) {
            return Ok(None);
        }
        count += 1;
    }
    Ok(Some(count))
}

fn is_ours(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let is = |known: &&str| {
        let behind = name.strip_prefix(*known);
        behind == Some("") || behind.is_some_and(|behind| BESIDE.contains(&behind))
    };
    LAST.iter().chain(&NAMES).any(is)
}
