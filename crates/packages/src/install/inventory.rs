//! What a directory holds, file by file: what a wheel is named by, linked by and checked against.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use layers::{Extent, FileError};

/// One file of an inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Relative to the directory.
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) hash: blake3::Hash,
}

/// All files, sorted by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inventory(pub(crate) Vec<Entry>);

impl Inventory {
    /// Reads every file.
    pub(crate) fn take(root: &Path) -> Result<Self, FileError> {
        let mut entries = Vec::new();
        for path in files(root)? {
            let whole = root.join(&path);
            let (bytes, hash) = digest(&whole).map_err(FileError::at("read", &whole))?;
            entries.push(Entry { path, bytes, hash });
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self(entries))
    }

    pub(crate) fn extent(&self) -> Extent {
        let bytes = self.0.iter().map(|entry| entry.bytes).sum();
        Extent { files: self.0.len() as u64, bytes }
    }

    /// One line a file. Paths with line breaks are none that a wheel may have (its own list has a line a file, too).
    pub(crate) fn text(&self) -> String {
        let line = |e: &Entry| format!("{} {} {}\n", e.hash.to_hex(), e.bytes, e.path.display());
        self.0.iter().map(line).collect()
    }

    /// What [`Inventory::text`] wrote.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let entry = |line: &str| {
            let (hash, rest) = line.split_once(' ')?;
            let (bytes, path) = rest.split_once(' ')?;
            let hash = blake3::Hash::from_hex(hash).ok()?;
            Some(Entry { path: PathBuf::from(path), bytes: bytes.parse().ok()?, hash })
        };
        text.split_terminator('\n').map(entry).collect::<Option<Vec<_>>>().map(Self)
    }

    /// The first difference between this and what a directory holds now, in words; none when there is none.
    pub(crate) fn differs(&self, root: &Path) -> Result<Option<String>, FileError> {
        let now = Self::take(root)?;
        if now == *self {
            return Ok(None);
        }
        let lost = self.0.iter().find(|entry| !now.0.contains(entry));
        let entry = lost.or_else(|| now.0.iter().find(|entry| !self.0.contains(entry)));
        Ok(entry.map(|entry| match (lost, root.join(&entry.path).exists()) {
            (Some(_), true) => format!("{} was changed", entry.path.display()),
            (Some(_), false) => format!("{} is missing", entry.path.display()),
            (None, _) => format!("{} was added", entry.path.display()),
        }))
    }
}

/// How many bytes a file has, and their hash. It may be as large as a package, so it is not read whole.
pub(super) fn digest(path: &Path) -> io::Result<(u64, blake3::Hash)> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok((hasher.count(), hasher.finalize()))
}

/// Everything below a directory that is no directory, relative to it.
pub(super) fn files(root: &Path) -> Result<Vec<PathBuf>, FileError> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(relative) = open.pop() {
        let directory = root.join(&relative);
        for entry in fs::read_dir(&directory).map_err(FileError::at("list", &directory))? {
            let entry = entry.map_err(FileError::at("list", &directory))?;
            let kind = entry.file_type().map_err(FileError::at("look at", &directory))?;
            let path = relative.join(entry.file_name());
            if kind.is_dir() { open.push(path) } else { found.push(path) }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_difference_is_found_and_named() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("a")).unwrap();
        fs::write(root.path().join("a/x y.py"), "one").unwrap();
        fs::write(root.path().join("z"), "").unwrap();
        let inventory = Inventory::take(root.path()).unwrap();
        assert_eq!(Inventory::parse(&inventory.text()).unwrap(), inventory);
        let looks = |now: &Inventory| Extent::of(root.path()).unwrap() == now.extent();
        assert!(looks(&inventory));
        assert_eq!(inventory.differs(root.path()).unwrap(), None);
        fs::write(root.path().join("a/x y.py"), "two").unwrap();
        assert!(looks(&inventory), "the same size: a look cannot tell");
        assert_eq!(inventory.differs(root.path()).unwrap().unwrap(), "a/x y.py was changed");
        fs::remove_file(root.path().join("a/x y.py")).unwrap();
        assert_eq!(inventory.differs(root.path()).unwrap().unwrap(), "a/x y.py is missing");
        fs::write(root.path().join("a/x y.py"), "one").unwrap();
        fs::write(root.path().join("new"), "").unwrap();
        assert_eq!(inventory.differs(root.path()).unwrap().unwrap(), "new was added");
    }

    #[test]
    fn a_large_file_is_not_read_whole() {
        use std::process::Command;

        // In a process that has less memory than the file has bytes.
        const SIZE: u64 = 1 << 30;
        if let Ok(file) = std::env::var("LAMBSWOOL_TEST_LARGE_FILE") {
            assert_eq!(digest(Path::new(&file)).unwrap().0, SIZE);
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("large");
        File::create(&file).unwrap().set_len(SIZE).unwrap();
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "packages::inventory::tests::a_large_file_is_not_read_whole"]);
        again.env("LAMBSWOOL_TEST_LARGE_FILE", &file);
        sys::process::limit(&mut again, &[(rustix::process::Resource::As, SIZE / 2)]);
        let ended = again.output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }
}
