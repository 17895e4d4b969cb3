//! Writing a bundle's files: every name checked, every byte counted and hashed, nothing outside the directory.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use layers::FileError;

use super::{CodeError, MAX_BYTES, MAX_FILES, MAX_PATH};

/// Names of files and folders that no function needs.
const SKIPPED: [&str; 11] = [
    "__pycache__",
    ".git",
    ".hg",
    ".svn",
    ".venv",
    ".tox",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".DS_Store",
    "__MACOSX",
];

/// What a bundle holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listing {
    /// Path → whether it is executable, and its content.
    pub(super) files: BTreeMap<String, (bool, blake3::Hash)>,
    /// Folders with nothing in them. The others are told by what is in them.
    pub(super) empty_folders: BTreeSet<String>,
}

impl Listing {
    /// The identity of all of it.
    pub(super) fn hash(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        for (path, (executable, hash)) in &self.files {
            hasher.update(&(path.len() as u64).to_le_bytes()).update(path.as_bytes());
            hasher.update(&[u8::from(*executable)]).update(hash.as_bytes());
        }
        for path in &self.empty_folders {
            hasher.update(&(path.len() as u64).to_le_bytes()).update(path.as_bytes()).update(b"/");
        }
        hasher.finalize()
    }
}

/// Writes into one directory and never outside it.
#[derive(Debug)]
pub(super) struct Writer {
    directory: Dir,
    /// Path → what it adds to the bundle's identity.
    files: BTreeMap<String, (bool, blake3::Hash)>,
    folders: BTreeSet<String>,
    bytes: u64,
}

impl Writer {
    pub(super) fn open(directory: &Path) -> Result<Self, CodeError> {
        let open = Dir::open_ambient_dir(directory, ambient_authority());
        let directory = open.map_err(FileError::at("open", directory))?;
        Ok(Self { directory, files: BTreeMap::new(), folders: BTreeSet::new(), bytes: 0 })
    }

    /// Adds a file. `announced` is the size that an archive tells; a larger file is refused.
    pub(super) fn add(
        &mut self,
        name: &str,
        executable: bool,
        content: &mut dyn Read,
        announced: Option<u64>,
    ) -> Result<(), CodeError> {
        let Some(path) = accept(name)? else {
            return Ok(());
        };
        let entry = || name.to_owned();
        if self.files.len() >= MAX_FILES {
            return Err(CodeError::TooManyFiles { entry: entry() });
        }
        let left = MAX_BYTES - self.bytes;
        if announced.is_some_and(|size| size > left) {
            return Err(CodeError::TooLarge { entry: entry() });
        }
        self.make_folders(&path, name)?;
        if self.files.contains_key(&path) || self.folders.contains(&path) {
            return Err(CodeError::Duplicate { entry: entry() });
        }
        let limit = announced.unwrap_or(left).min(left);
        let (size, hash) = self
            .write(&path, executable, &mut content.take(limit + 1))
            .map_err(|source| CodeError::Unpack { entry: entry(), source })?;
        if size > left {
            return Err(CodeError::TooLarge { entry: entry() });
        }
        if size > limit {
            return Err(CodeError::Bomb {
                entry: entry(),
                reason: "more than the archive announces",
            });
        }
        self.bytes += size;
        self.files.insert(path, (executable, hash));
        Ok(())
    }

    /// Adds a folder, which may stay empty: what a program lists or changes into.
    pub(super) fn add_folder(&mut self, name: &str) -> Result<(), CodeError> {
        match accept(name)? {
            Some(path) => self.make_folders(&format!("{path}/"), name),
            None => Ok(()),
        }
    }

    /// All that was added.
    pub(super) fn finish(self) -> Result<(Listing, u64), CodeError> {
        if self.files.is_empty() {
            return Err(CodeError::Empty);
        }
        let mut listing = Listing { files: self.files, empty_folders: self.folders };
        let Listing { files, empty_folders } = &mut listing;
        let folders = empty_folders.clone();
        empty_folders.retain(|folder| {
            let inside = format!("{folder}/");
            let begins = |name: Option<&String>| name.is_some_and(|name| name.starts_with(&inside));
            let mut files = files.range(inside.clone()..).map(|(name, _)| name);
            !begins(files.next()) && !begins(folders.range(inside.clone()..).next())
        });
        Ok((listing, self.bytes))
    }

    fn make_folders(&mut self, path: &str, name: &str) -> Result<(), CodeError> {
        for (end, _) in path.match_indices('/') {
            let folder = &path[..end];
            if self.files.contains_key(folder) {
                return Err(CodeError::Duplicate { entry: folder.to_owned() });
            }
            if !self.folders.contains(folder) && self.folders.len() >= MAX_FILES {
                return Err(CodeError::TooManyFiles { entry: name.to_owned() });
            }
            if self.folders.insert(folder.to_owned()) {
                let made = self.directory.create_dir(folder);
                made.map_err(|source| CodeError::Unpack { entry: name.to_owned(), source })?;
            }
        }
        Ok(())
    }

    fn write(
        &self,
        path: &str,
        executable: bool,
        content: &mut dyn Read,
    ) -> io::Result<(u64, blake3::Hash)> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(if executable { 0o755 } else { 0o644 });
        let mut file = self.directory.open_with(path, &options)?;
        let mut hasher = blake3::Hasher::new();
        let mut size = 0;
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = content.read(&mut buffer)?;
            if read == 0 {
                return Ok((size, hasher.finalize()));
            }
            hasher.update(&buffer[..read]);
            file.write_all(&buffer[..read])?;
            size += read as u64;
        }
    }
}

/// The path of an entry in its plain form; none when it is one of those that are left out.
fn accept(name: &str) -> Result<Option<String>, CodeError> {
    let entry = || name.to_owned();
    if name.len() > MAX_PATH {
        return Err(CodeError::PathTooLong {
            entry: name.chars().take(80).collect::<String>() + "…",
        });
    }
    if name.contains('\\') || name.chars().any(char::is_control) {
        return Err(CodeError::Name { entry: entry() });
    }
    if name.starts_with('/') || name.split('/').any(|part| part == "..") {
        return Err(CodeError::Outside { entry: entry() });
    }
    let parts: Vec<&str> =
        name.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.iter().any(|part| skipped(part)) {
        return Ok(None);
    }
    Ok((!parts.is_empty()).then(|| parts.join("/")))
}

/// Whether a file or folder of this name is left out of every function.
#[must_use]
pub fn skipped(name: &str) -> bool {
    SKIPPED.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer() -> (tempfile::TempDir, Writer) {
        let directory = tempfile::tempdir().unwrap();
        let writer = Writer::open(directory.path()).unwrap();
        (directory, writer)
    }

    #[test]
    fn names_that_leave_the_bundle_are_refused_by_name() {
        for bad in ["/etc/passwd", "../x", "a/../../x", "a\\..\\x", "a\nb", &"x".repeat(600)] {
            let (directory, mut writer) = writer();
            let error = writer.add(bad, false, &mut &b"x"[..], None).unwrap_err().to_string();
            assert!(error.contains(&bad.escape_debug().to_string()[..3]), "{error}");
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_name_comes_once_and_is_a_file_or_a_folder() {
        let (_directory, mut writer) = writer();
        writer.add("./a/b.py", false, &mut &b"1"[..], None).unwrap();
        for again in ["a/b.py", "a//b.py", "a", "a/b.py/c"] {
            let error = writer.add(again, false, &mut &b"2"[..], None).unwrap_err();
            assert!(matches!(error, CodeError::Duplicate { .. }), "{again}: {error}");
        }
    }

    #[test]
    fn a_file_larger_than_announced_is_refused() {
        let (_directory, mut writer) = writer();
        let error = writer.add("a", false, &mut &b"12345"[..], Some(4)).unwrap_err();
        assert!(matches!(error, CodeError::Bomb { .. }), "{error}");
        let error = writer.add("b", false, &mut &b"1"[..], Some(MAX_BYTES + 1)).unwrap_err();
        assert!(matches!(error, CodeError::TooLarge { .. }), "{error}");
    }

    #[test]
    fn one_file_too_many_is_refused() {
        let (_directory, mut writer) = writer();
        let hash = blake3::hash(b"");
        writer.files = (0..MAX_FILES).map(|n| (n.to_string(), (false, hash))).collect();
        let error = writer.add("x", false, &mut &b""[..], None).unwrap_err();
        assert!(matches!(error, CodeError::TooManyFiles { .. }), "{error}");
    }

    #[test]
    fn one_folder_too_many_is_refused() {
        let (_directory, mut writer) = writer();
        writer.folders = (0..MAX_FILES - 1).map(|n| n.to_string()).collect();
        writer.add("a/x", false, &mut &b"1"[..], None).unwrap();
        writer.add("a/y", false, &mut &b"2"[..], None).unwrap();
        let error = writer.add("b/x", false, &mut &b"3"[..], None).unwrap_err();
        assert!(matches!(error, CodeError::TooManyFiles { .. }), "{error}");
    }

    #[test]
    fn the_identity_is_of_paths_modes_and_bytes_and_not_of_their_order() {
        let identity = |files: &[(&str, bool, &[u8])]| {
            let (_directory, mut writer) = writer();
            for (name, executable, content) in files {
                writer.add(name, *executable, &mut &**content, None).unwrap();
            }
            writer.finish().unwrap().0.hash()
        };
        let first = identity(&[("a", false, b"1"), ("b/c", true, b"2")]);
        assert_eq!(
            first,
            identity(&[
                ("b/c", true, b"2"),
                ("a", false, b"1"),
                ("__pycache__/a.pyc", false, b"3")
            ])
        );
        assert_ne!(first, identity(&[("a", true, b"1"), ("b/c", true, b"2")]));
        assert_ne!(first, identity(&[("a", false, b"x"), ("b/c", true, b"2")]));
        assert_ne!(first, identity(&[("a2", false, b"1"), ("b/c", true, b"2")]));
    }

    #[test]
    fn an_empty_folder_is_kept_and_is_part_of_the_identity() {
        let made = |folders: &[&str]| {
            let (directory, mut writer) = writer();
            writer.add("main.py", false, &mut &b""[..], None).unwrap();
            writer.add("data/a.csv", false, &mut &b""[..], None).unwrap();
            folders.iter().for_each(|folder| writer.add_folder(folder).unwrap());
            (directory, writer.finish().unwrap().0.hash())
        };
        let (_, plain) = made(&[]);
        assert_eq!(made(&["data/", "data", "./", "__pycache__"]).1, plain);
        let (directory, more) = made(&["out/jpg/"]);
        assert!(directory.path().join("out/jpg").is_dir());
        assert_ne!(more, plain);
        assert_ne!(made(&["out"]).1, more);
        let (_directory, mut writer) = writer();
        writer.add("a", false, &mut &b""[..], None).unwrap();
        for wrong in ["a", "a/b"] {
            assert!(matches!(writer.add_folder(wrong), Err(CodeError::Duplicate { .. })));
        }
        assert!(matches!(writer.add_folder("../x"), Err(CodeError::Outside { .. })));
    }

    #[test]
    fn an_empty_bundle_is_refused() {
        assert!(matches!(writer().1.finish(), Err(CodeError::Empty)));
    }
}
