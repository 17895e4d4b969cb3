//! Bytecode that a wheel brings. It is compiled anew here, and a bundle has none, so it is no part of a wheel.

use std::fs;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use layers::FileError;

use super::error::InstallError;
use super::{imports, inventory, scripts};

/// Removes it from the wheel in `root`, and its rows from the `RECORD` of `info`.
pub(super) fn remove(root: &Path, info: &Path) -> Result<(), InstallError> {
    let files = inventory::files(root)?;
    let bytecode = files.iter().filter(|path| path.to_str().is_some_and(is_bytecode));
    let mut found = false;
    for path in bytecode.map(|path| root.join(path)) {
        fs::remove_file(&path).map_err(FileError::at("remove", &path))?;
        found = true;
    }
    if found {
        unlist(info).map_err(FileError::at("rewrite RECORD in", info))?;
    }
    Ok(())
}

fn unlist(info: &Path) -> io::Result<()> {
    let record = imports::record(info)?;
    scripts::replace(&info.join("RECORD"), |file| {
        let mut file = BufWriter::new(file);
        let kept = |line: &&str| !is_bytecode(line.split(',').next().unwrap_or_default());
        record.lines().filter(kept).try_for_each(|line| writeln!(file, "{line}"))?;
        file.flush()
    })
}

/// Whether a file is bytecode beside its source.
pub(super) fn is_bytecode(path: &str) -> bool {
    path.strip_suffix(".pyc").and_then(|stem| stem.rsplit('/').nth(1)) == Some("__pycache__")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytecode_that_a_wheel_brings_is_no_part_of_it() {
        let root = tempfile::tempdir().unwrap();
        let record = "a/__init__.py,sha256=x,1\na/__pycache__/__init__.cpython-311.pyc,sha256=x,1\na/old.pyc,sha256=x,1\n";
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let shipped = "a/__pycache__/__init__.cpython-311.pyc";
        for path in ["a/__init__.py", shipped, "a/old.pyc"] {
            write(path, "x");
        }
        write("a-1.dist-info/RECORD", record);
        let info = root.path().join("a-1.dist-info");
        remove(root.path(), &info).unwrap();
        assert!(!root.path().join(shipped).exists());
        assert!(root.path().join("a/old.pyc").exists(), "there may be no source of it");
        let kept = fs::read_to_string(info.join("RECORD")).unwrap();
        assert_eq!(kept, "a/__init__.py,sha256=x,1\na/old.pyc,sha256=x,1\n");
    }
}
