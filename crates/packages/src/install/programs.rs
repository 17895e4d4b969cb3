//! Which files of a wheel may be run.
//!
//! A wheel is named by the contents of its files, and modes are none: an archive may have lost them, and a stranger's may
//! have others. So the content says it: what the kernel can start is executable, and nothing else is.

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use layers::FileError;

use super::inventory;

/// Sets the modes of all files below `root`.
pub(super) fn mark(root: &Path) -> Result<(), FileError> {
    for path in inventory::files(root)? {
        let path = root.join(path);
        set(&path).map_err(FileError::at("set the mode of", &path))?;
    }
    Ok(())
}

fn set(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_file() {
        return Ok(());
    }
    let mut head = Vec::new();
    File::open(path)?.take(4).read_to_end(&mut head)?;
    let mode = if head.starts_with(b"#!") || head.starts_with(b"\x7fELF") { 0o755 } else { 0o644 };
    if metadata.permissions().mode() & 0o7777 == mode {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_can_start_is_executable_whatever_its_mode_was() {
        let root = tempfile::tempdir().unwrap();
        for (name, content, mode, expected) in [
            ("a/script", "#!/bin/sh\n", 0o644, 0o755),
            ("a/x.so", "\x7fELF…", 0o600, 0o755),
            ("a/x.py", "import os\n", 0o777, 0o644),
            ("a/empty", "", 0o755, 0o644),
        ] {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            mark(root.path()).unwrap();
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, expected, "{name}");
        }
    }
}
