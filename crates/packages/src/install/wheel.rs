//! A wheel that is there: unpacked, compiled, and never changed.
//!
//! ```text
//!   wheels/six-1.16.0-<hash>/        the files, bytecode included
//!   wheels/six-1.16.0-<hash>.json    what it is                        ─ last used: the file's time
//!   wheels/six-1.16.0-<hash>.files   every file with its size and hash
//!   wheels/locked/<hash>             ─► ../six-1.16.0-<hash>           which wheel a locked requirement gave: [`Locked`]
//! ```
//!
//! The hash is of the files' content and of the Python that they were compiled for. A locked requirement names a
//! version and hashes of files of which the installer takes the one that fits, so which wheel it gives is known only
//! once it was unpacked; the link remembers it.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use layers::base::Base;
use layers::store::short;
use layers::{Extent, FileError, Store, description};
use sandbox::Layer;
use serde::{Deserialize, Serialize};

use super::inventory::Inventory;
use crate::sources::Sources;

/// Changes whenever the same wheel would be unpacked into something else.
pub(super) const FORMAT: u32 = 1;

/// The directory of all wheels, below `layers/`.
pub(crate) const KIND: &str = "wheels";

/// A wheel in the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wheel {
    /// Normalised name (PEP 503).
    pub name: String,
    /// The exact version.
    pub version: String,
    /// Names its directory: name, version, and a hash of content, interpreter and platform.
    pub id: String,
    /// The Python that it was compiled for: `3.11`.
    pub python: String,
    /// Outermost importable modules that it brings, dotted below namespace packages; private ones included. Sorted.
    pub modules: Vec<String>,
    /// Normalised names of the distributions that it needs, those of extras left out. Sorted.
    pub needs: Vec<String>,
    /// Its files and their bytes, bytecode included.
    pub extent: Extent,
    /// The locked requirement that gave it, with its hashes: what fetches it again. Empty: a function's bundle brought it.
    pub(super) requirement: String,
    /// Where the file is kept that it was unpacked from, when that was built here and not fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub built: Option<Layer>,
    /// Where it was found.
    pub(super) sources: Sources,
    pub(super) format: u32,
}

impl Wheel {
    /// All that are there, by name, version and id.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn all(store: &Store) -> Result<Vec<Self>, FileError> {
        let directory = store.kind(KIND);
        let entries = fs::read_dir(&directory).map_err(FileError::at("list", &directory))?;
        let id = |entry: fs::DirEntry| {
            Some(entry.file_name().to_str()?.strip_suffix(".json")?.to_owned())
        };
        let ids = entries.flatten().filter_map(id);
        let mut wheels: Vec<Self> = ids.filter_map(|id| Self::find(store, &id)).collect();
        wheels.sort_by(|a, b| (&a.name, &a.version, &a.id).cmp(&(&b.name, &b.version, &b.id)));
        Ok(wheels)
    }

    /// The wheel of this id, if it is there and complete.
    #[must_use]
    pub fn find(store: &Store, id: &str) -> Option<Self> {
        let wheel: Self = description::read(&beside(store, id, "json"))?;
        (wheel.format == FORMAT && wheel.path(store).is_dir()).then_some(wheel)
    }

    /// When it was last put into a package set, or found in use.
    #[must_use]
    pub fn used(&self, store: &Store) -> SystemTime {
        description::touched(&beside(store, &self.id, "json"))
    }

    /// The wheel that a locked requirement gave before.
    pub(super) fn of_lock(store: &Store, locked: &Locked) -> Option<Self> {
        let at = |key: &str| {
            let target = fs::read_link(alias(store, key)).ok()?;
            Self::find(store, target.file_name()?.to_str()?)
        };
        let fetched = at(&locked.fetched).filter(|wheel| wheel.built.is_none());
        fetched.or_else(|| at(&locked.built))
    }

    /// Whether only functions' bundles have brought it: nothing is known that fetches it.
    #[must_use]
    pub fn is_of_bundle(&self) -> bool {
        self.requirement.is_empty()
    }

    pub(super) fn path(&self, store: &Store) -> PathBuf {
        store.kind(KIND).join(&self.id)
    }

    /// Every file of it, as it was when it was unpacked.
    pub(super) fn inventory(&self, store: &Store) -> Result<Inventory, FileError> {
        let path = beside(store, &self.id, "files");
        // We wrote it: a line for each file, of which a package has only so many.
        let text = fs::read_to_string(&path).map_err(FileError::at("read", &path))?;
        let wrong = || FileError::at("understand", &path)(io::ErrorKind::InvalidData.into());
        Inventory::parse(&text).ok_or_else(wrong)
    }

    pub(crate) fn touch(&self, store: &Store) {
        description::touch(&beside(store, &self.id, "json"));
    }

    /// Writes down what it is, once its directory is in place. The description comes last: without it there is no wheel.
    pub(super) fn describe(&self, store: &Store, inventory: &Inventory) -> Result<(), FileError> {
        description::write_bytes(&beside(store, &self.id, "files"), inventory.text().as_bytes())?;
        self.tell(store)
    }

    /// Writes down what it is, where its files are told already.
    pub(super) fn tell(&self, store: &Store) -> Result<(), FileError> {
        description::write(&beside(store, &self.id, "json"), self)
    }

    /// Remembers which wheel a locked requirement gave.
    pub(super) fn remember(&self, store: &Store, key: &str) -> Result<(), FileError> {
        let path = alias(store, key);
        let unfinished = path.with_extension(format!("new-{}", std::process::id()));
        let link = || -> io::Result<()> {
            let _ = fs::remove_file(&unfinished);
            symlink(Path::new("..").join(&self.id), &unfinished)?;
            fs::rename(&unfinished, &path)
        };
        link().map_err(FileError::at("link", &path))
    }

    /// Removes its description, its list of files and the links to it: its directory is then left over.
    pub(crate) fn forget(&self, store: &Store) -> Result<(), FileError> {
        // The description first: a wheel without files must not be found.
        for kind in ["json", "files"] {
            let path = beside(store, &self.id, kind);
            fs::remove_file(&path).map_err(FileError::at("remove", &path))?;
        }
        let links = store.kind(KIND).join("locked");
        for entry in fs::read_dir(&links).map_err(FileError::at("list", &links))?.flatten() {
            if fs::read_link(entry.path()).is_ok_and(|target| target.ends_with(&self.id)) {
                let path = entry.path();
                fs::remove_file(&path).map_err(FileError::at("remove", &path))?;
            }
        }
        Ok(())
    }
}

/// Names a wheel: by every file that came out of it, and what it was compiled for.
pub(super) fn identify(name: &str, version: &str, base: &Base, inventory: &Inventory) -> String {
    let mut hasher = blake3::Hasher::new();
    let head = format!("{FORMAT}\0{}\0{}\0", base.minor(), std::env::consts::ARCH);
    hasher.update(head.as_bytes()).update(inventory.text().as_bytes());
    format!("{name}-{version}-{}", short(&hasher.finalize()))
}

/// Names a locked requirement twice. One of its hashes vouches for a wheel that is fetched, so that is everybody's. A wheel
/// that is built here is what its tools made of a source, and only for those who get their tools from the same indexes.
#[derive(Debug)]
pub(super) struct Locked {
    fetched: String,
    built: String,
}

impl Locked {
    pub(super) fn new(requirement: &str, base: &Base, sources: &Sources) -> Self {
        let fetched = key(requirement, base);
        let mut hasher = blake3::Hasher::new();
        for part in [&fetched, &sources.for_finding().text()] {
            hasher.update(part.as_bytes()).update(&[0]);
        }
        Self { fetched, built: short(&hasher.finalize()) }
    }

    /// Names the turn of making it: one lock at a time does.
    pub(super) fn turn(&self) -> &str {
        &self.fetched
    }

    /// Where to remember what it gave.
    pub(super) fn place(&self, wheel: &Wheel) -> &str {
        if wheel.built.is_some() { &self.built } else { &self.fetched }
    }
}

/// Names a locked requirement on a base's Python, in whatever order its hashes stand.
pub(super) fn key(requirement: &str, base: &Base) -> String {
    let mut words: Vec<&str> = requirement.split_whitespace().collect();
    words.sort_unstable();
    let mut hasher = blake3::Hasher::new();
    for part in [base.minor(), std::env::consts::ARCH].iter().chain(&words) {
        hasher.update(part.as_bytes()).update(&[0]);
    }
    short(&hasher.finalize())
}

fn alias(store: &Store, key: &str) -> PathBuf {
    store.kind(KIND).join("locked").join(key)
}

/// A file beside a wheel's directory. Not `with_extension`: a version has dots.
fn beside(store: &Store, id: &str, kind: &str) -> PathBuf {
    store.kind(KIND).join(format!("{id}.{kind}"))
}

#[cfg(test)]
impl Wheel {
    /// A wheel of which only the name matters.
    pub(super) fn named(name: &str, python: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: "1".to_owned(),
            id: format!("{name}-1-{python}"),
            python: python.to_owned(),
            modules: Vec::new(),
            needs: Vec::new(),
            extent: Extent::default(),
            requirement: String::new(),
            built: None,
            sources: Sources::default(),
            format: FORMAT,
        }
    }
}
