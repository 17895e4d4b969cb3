//! A function's own files: taken in, checked, and sealed as a code layer.
//!
//! ```text
//!   .py │ .zip │ .tar[.gz] │ folder ──► Bundle (unpacked, hashed, no name yet) ──seal──► code/<id>
//!                                          │ dropped: gone         └──pack──► one tar for equal files
//! ```
//!
//! Nothing of an archive is trusted: names are checked before anything is written, writing goes through a directory
//! handle that cannot leave the directory, links and special files are refused, and sizes are counted as they come,
//! not as they are announced.

mod folder;
mod opt;
mod pack;
mod tarball;
mod writer;
mod zipped;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use function::BundleDigest;
use layers::base::Base;
use layers::staging::Staging;
use layers::store::{layer, short};
use layers::{FileError, RunError, Store, bytecode};
use sandbox::Layer;
use thiserror::Error;

pub use opt::{RESERVED, make_opt, modules_of_layer};
pub use writer::skipped;
use writer::{Listing, Writer};

/// Most files of a bundle, and most folders that they are in.
pub const MAX_FILES: usize = 20_000;

/// Most bytes of a bundle, unpacked.
pub const MAX_BYTES: u64 = 512 << 20;

/// Longest path of a file in a bundle, in bytes.
pub const MAX_PATH: usize = 512;

/// A function's files, unpacked into a place of their own and not deployed yet.
#[derive(Debug)]
pub struct Bundle {
    staging: Staging,
    listing: Listing,
    /// How many files it has.
    pub files: usize,
    /// How many bytes they have.
    pub bytes: u64,
}

/// What is wrong with a bundle.
#[derive(Debug, Error)]
pub enum CodeError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// An entry could not be read from the archive, or written.
    #[error("{entry:?} cannot be unpacked")]
    Unpack {
        /// The entry's path in the archive.
        entry: String,
        /// The system's error.
        source: io::Error,
    },
    /// The archive is not one.
    #[error("this is no readable {kind} archive: {reason}")]
    Archive {
        /// `zip` or `tar`.
        kind: &'static str,
        /// The reader's own words.
        reason: String,
    },
    /// A path that would be outside.
    #[error("{entry:?} leaves the bundle; only relative paths without `..` are accepted")]
    Outside {
        /// The entry's path in the archive.
        entry: String,
    },
    /// A path that is no text, or has characters that no file of a function needs.
    #[error(
        "{entry:?} has a name that is not accepted (not UTF-8, a backslash or a control character)"
    )]
    Name {
        /// The entry's path in the archive.
        entry: String,
    },
    /// A path that is too long.
    #[error("{entry:?} has a path longer than {MAX_PATH} bytes")]
    PathTooLong {
        /// The entry's path in the archive.
        entry: String,
    },
    /// A symbolic or hard link.
    #[error("{entry:?} is a link; put the file itself into the bundle")]
    Link {
        /// The entry's path in the archive.
        entry: String,
    },
    /// A device, a socket, a pipe.
    #[error("{entry:?} is neither a file nor a folder")]
    Special {
        /// The entry's path in the archive.
        entry: String,
    },
    /// Two entries with one name.
    #[error("{entry:?} is in the bundle twice")]
    Duplicate {
        /// The entry's path in the archive.
        entry: String,
    },
    /// An entry that is larger than its archive announces, or expands beyond reason.
    #[error("{entry:?} unpacks to more than it should: {reason}")]
    Bomb {
        /// The entry's path in the archive.
        entry: String,
        /// What it does, as a clause.
        reason: &'static str,
    },
    /// Too many files, or folders that they are in.
    #[error("the bundle has more than {MAX_FILES} files, or folders (at {entry:?})")]
    TooManyFiles {
        /// The first one too many.
        entry: String,
    },
    /// Too many bytes.
    #[error("the bundle has more than {} MiB unpacked (at {entry:?})", MAX_BYTES >> 20)]
    TooLarge {
        /// Where the limit was reached.
        entry: String,
    },
    /// A bundle without a file.
    #[error("the bundle is empty")]
    Empty,
    /// A file that is no bundle.
    #[error("{} is neither a folder nor a .py, .zip, .tar, .tar.gz or .tgz file", path.display())]
    UnknownKind {
        /// The path that was given.
        path: PathBuf,
    },
    /// The byte compiler failed.
    #[error("the function's code cannot be compiled")]
    Compile(#[source] RunError),
}

impl Bundle {
    /// One source file, stored as `<name>.py`.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn from_py(store: &Store, name: &str, mut source: impl Read) -> Result<Self, CodeError> {
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }
        };
        let stem: String = name.strip_suffix(".py").unwrap_or(name).chars().map(plain).collect();
        Self::take(store, |writer| writer.add(&format!("{stem}.py"), false, &mut source, None))
    }

    /// A zip archive.
    ///
    /// # Errors
    /// When it is none, or holds what is not accepted.
    pub fn from_zip(store: &Store, archive: impl Read + Seek) -> Result<Self, CodeError> {
        Self::take(store, |writer| zipped::unpack(archive, writer))
    }

    /// A tar archive, compressed with gzip or not.
    ///
    /// # Errors
    /// When it is none, or holds what is not accepted.
    pub fn from_tar(store: &Store, archive: impl Read) -> Result<Self, CodeError> {
        Self::take(store, |writer| tarball::unpack(archive, writer))
    }

    /// A folder, without bytecode, version control and virtual environments.
    ///
    /// # Errors
    /// When it cannot be read, or holds what is not accepted.
    pub fn from_dir(store: &Store, folder: &Path) -> Result<Self, CodeError> {
        Self::take(store, |writer| folder::copy(folder, writer))
    }

    /// Whatever stands at a path, told by its name.
    ///
    /// # Errors
    /// As the others.
    pub fn from_path(store: &Store, path: &Path) -> Result<Self, CodeError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let open = || File::open(path).map_err(FileError::at("open", path));
        if path.is_dir() {
            return Self::from_dir(store, path);
        }
        // A path that is not there is told as such, whatever its name.
        let file = open()?;
        if let Some(stem) = name.strip_suffix(".py") {
            return Self::from_py(store, stem, file);
        }
        if name.ends_with(".zip") {
            return Self::from_zip(store, file);
        }
        if [".tar", ".tar.gz", ".tgz"].iter().any(|suffix| name.ends_with(suffix)) {
            return Self::from_tar(store, file);
        }
        Err(CodeError::UnknownKind { path: path.to_owned() })
    }

    /// Where its files are until it is sealed.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.staging.path()
    }

    /// The hash of its files: equal for equal paths, modes and contents, however they were packed.
    #[must_use]
    pub fn digest(&self) -> BundleDigest {
        self.listing.hash().into()
    }

    /// The same bundle without some files, and without the folders that have nothing but these. Its files are links to those of
    /// this one: no bytes are copied, and neither may be written to. It may have no file at all.
    ///
    /// # Errors
    /// When a file cannot be linked.
    pub fn without(&self, store: &Store, leaving: &BTreeSet<&str>) -> Result<Self, CodeError> {
        let staging = incoming(store)?;
        let mut listing = self.listing.clone();
        listing.files.retain(|path, _| !leaving.contains(path.as_str()));
        let mut bytes = 0;
        let mut link = |path: &str| -> io::Result<()> {
            let (from, to) = (self.path().join(path), staging.path().join(path));
            fs::create_dir_all(to.parent().unwrap_or(staging.path()))?;
            fs::hard_link(&from, &to)?;
            bytes += fs::metadata(&to)?.len();
            Ok(())
        };
        for path in listing.files.keys() {
            link(path).map_err(FileError::at("link", &self.path().join(path)))?;
        }
        for folder in &listing.empty_folders {
            let folder = staging.path().join(folder);
            fs::create_dir_all(&folder).map_err(FileError::at("create", &folder))?;
        }
        Ok(Self { staging, files: listing.files.len(), listing, bytes })
    }

    /// Writes its files as a tar archive, which [`Bundle::from_tar`] reads. Equal files give equal
    /// bytes.
    ///
    /// # Errors
    /// When a file cannot be read, or `archive` not be written.
    pub fn pack(&self, archive: impl Write) -> io::Result<()> {
        pack::write(self.path(), archive)
    }

    /// Compiles the code for a base and gives it its name. Equal content on an equal Python has an equal name.
    ///
    /// # Errors
    /// When it cannot be compiled or put into place.
    pub fn seal(self, store: &Store, base: &Base) -> Result<Layer, CodeError> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.listing.hash().as_bytes()).update(base.minor().as_bytes());
        let layer = layer("code", &short(&hasher.finalize()));
        if !store.has(&layer) {
            bytecode::compile(&base.command(store), self.path(), "/var/task")
                .map_err(CodeError::Compile)?;
            self.staging.seal(&store.layer_path(&layer))?;
        }
        Ok(layer)
    }

    fn take(
        store: &Store,
        fill: impl FnOnce(&mut Writer) -> Result<(), CodeError>,
    ) -> Result<Self, CodeError> {
        let staging = incoming(store)?;
        let mut writer = Writer::open(staging.path())?;
        fill(&mut writer)?;
        let (listing, bytes) = writer.finish()?;
        Ok(Self { staging, files: listing.files.len(), listing, bytes })
    }
}

/// A place for a bundle, whose name is known only when all of it has been read.
fn incoming(store: &Store) -> Result<Staging, FileError> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Staging::begin(&store.kind("code"), &format!("incoming-{}-{number}", std::process::id()))
}

/// With more names than that, or more bytes of names, a caller lists the directory itself.
const MOST_ENTRIES: usize = 32;
const MOST_NAME_BYTES: usize = 1024;

/// The names in the uppermost directory of sealed code, sorted; none where they are many or cannot be read.
#[must_use]
pub fn entries(sealed: &Path) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut left = MOST_NAME_BYTES;
    for entry in std::fs::read_dir(sealed).ok()? {
        let name = entry.ok()?.file_name().into_string().ok()?;
        left = left.checked_sub(name.len())?;
        names.push(name);
        if names.len() > MOST_ENTRIES {
            return None;
        }
    }
    names.sort();
    Some(names)
}

/// The modules that a directory of code has, by their names: files, and directories that say that they are packages. None of one
/// that cannot be read.
#[must_use]
pub fn modules(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let module = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let (module, end) = name.split_once('.').unwrap_or((&name, ""));
        let package = || entry.path().join("__init__.py").is_file();
        let is_one = match end {
            "" => package(),
            end => end == "py" || end.ends_with("so"),
        };
        let plain = |c: char| c == '_' || c.is_alphanumeric();
        (is_one && !module.is_empty() && module.chars().all(plain)).then(|| module.to_owned())
    };
    entries.filter_map(module).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_code_are_told_where_they_are_few() {
        let root = tempfile::tempdir().unwrap();
        let add = |name: &str| std::fs::write(root.path().join(name), "").unwrap();
        add("main.py");
        add("a.json");
        assert_eq!(entries(root.path()).unwrap(), ["a.json", "main.py"]);
        add(&"x".repeat(255));
        assert_eq!(entries(root.path()).unwrap().len(), 3);
        (0..4).for_each(|n| add(&format!("{n}{}", "y".repeat(250))));
        assert_eq!(entries(root.path()), None, "too long");
        let many = tempfile::tempdir().unwrap();
        for n in 0..=MOST_ENTRIES {
            assert_eq!(entries(many.path()).unwrap().len(), n);
            std::fs::write(many.path().join(n.to_string()), "").unwrap();
        }
        assert_eq!(entries(many.path()), None, "too many");
        assert_eq!(entries(&root.path().join("gone")), None);
    }
}
