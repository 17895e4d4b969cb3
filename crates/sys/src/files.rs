//! Files that are there whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Writes a file of that mode, less the umask. A reader, also after a crash, sees all of it or what
/// was there before. It is written at `unfinished` first: a path in the same directory that no other
/// writer uses at the same time. What an earlier writer left there is removed; a link there is not
/// followed.
///
/// # Errors
/// Of open(2), write(2), fsync(2) or rename(2); then the file is as it was.
pub fn write_whole(path: &Path, unfinished: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    match fs::remove_file(unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(unfinished, path)
}

/// Waits until the names in a directory are on the disk.
///
/// # Errors
/// Of open(2) or fsync(2).
pub fn sync_names(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_a_link_in_its_way_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let [path, new, other] = ["key", "key.new", "other"].map(|name| dir.path().join(name));
        fs::write(&other, "stays").unwrap();
        symlink(&other, &new).unwrap();
        for text in ["first", "2nd"] {
            write_whole(&path, &new, text.as_bytes(), 0o600).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&other).unwrap(), "stays");
        assert!(!new.exists());
        fs::create_dir(&new).unwrap();
        assert!(write_whole(&path, &new, b"third", 0o600).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "2nd");
    }
}
