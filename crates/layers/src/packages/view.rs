//! A package set: one directory that holds exactly some wheels, made of hard links into theirs.
//!
//! ```text
//!   wheels/six-1.16.0-…/six.py ──┐ the same file: no bytes, one copy in memory for all who map it
//!   packages/<hash>/six.py ──────┘
//!   packages/<hash>.json         which wheels
//! ```
//!
//! Directories merge, so that namespace packages that several wheels share are one. A file that two wheels bring is
//! taken from the later one by name, together with its bytecode, and is reported when the contents differ. Links need
//! not reach the disk one by one: they are entries of the file system's journal, which keeps their order.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sandbox::Layer;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::inventory::Inventory;
use super::wheel::Wheel;
use crate::extent::Extent;
use crate::store::{layer, short};
use crate::{FileError, Store, description};

/// Changes whenever the same wheels would be put together otherwise.
const FORMAT: u32 = 1;

/// A package set that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Set {
    /// Its directory, `/opt/python` of a sandbox.
    pub layer: Layer,
    /// Ids of its wheels, by name.
    pub wheels: Vec<String>,
    /// Files that two wheels bring with different contents.
    pub clashes: Vec<Clash>,
    /// Its files and their bytes, which are its wheels'.
    pub extent: Extent,
    directories: u64,
}

/// A file that two wheels of a set bring, with different contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clash {
    /// The file.
    pub path: PathBuf,
    /// The distribution whose file it is.
    pub kept: String,
    /// The distribution whose file is not there.
    pub hidden: String,
}

/// Why a package set cannot be put together.
#[derive(Debug, Error)]
pub enum ViewError {
    /// A file could not be read, linked or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A wheel that was removed, or never was.
    #[error("the wheel {0} is not installed; deploy the function that needs it anew")]
    Missing(String),
    /// Two wheels of one distribution, or wheels for two Pythons.
    #[error("{0} and {1} cannot be in one package set")]
    Incompatible(String, String),
    /// What is a file in one wheel is a directory in another.
    #[error(
        "{first} and {second} cannot be installed together: {} is a file in one and a directory in the other", path.display()
    )]
    FileAndDirectory {
        /// What.
        path: PathBuf,
        /// One distribution.
        first: String,
        /// The other.
        second: String,
    },
}

/// The set of exactly these wheels, made when it is not there: milliseconds.
///
/// # Errors
/// When the wheels do not go together, or a link cannot be made.
pub fn view(store: &Store, wheels: &[Wheel]) -> Result<Set, ViewError> {
    let sorted = sorted(wheels)?;
    let layer = name(&sorted);
    for wheel in &sorted {
        wheel.touch(store);
    }
    if let Some(set) = Set::find(store, &layer) {
        description::touch(&Set::description(store, &layer));
        return Ok(set);
    }
    let plan = Plan::of(store, &sorted)?;
    store.make_linked::<ViewError>(&layer, |root| plan.link(store, root))?;
    plan.describe(store, layer)
}

/// The set of exactly the wheels with these ids: for who keeps names, not wheels.
///
/// # Errors
/// When one of them is not there, they do not go together, or a link cannot be made.
pub fn view_of<'a>(
    store: &Store,
    ids: impl IntoIterator<Item = &'a str>,
) -> Result<Set, ViewError> {
    view(store, &found(store, ids)?)
}

/// Puts a set together anew, from wheels that were repaired. Whoever runs from the old directory keeps it.
pub(super) fn remake(store: &Store, set: &Set) -> Result<(), ViewError> {
    let wheels = found(store, set.wheels.iter().map(String::as_str))?;
    let sorted = sorted(&wheels)?;
    let plan = Plan::of(store, &sorted)?;
    store.replace::<ViewError>(&set.layer, |root| plan.link(store, root))?;
    plan.describe(store, set.layer.clone()).map(drop)
}

impl Set {
    /// All that are there, by name. Sets that an earlier release made, in one piece, are not among them.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn all(store: &Store) -> Result<Vec<Self>, FileError> {
        let directory = store.kind("packages");
        let entries = fs::read_dir(&directory).map_err(FileError::at("list", &directory))?;
        let id = |entry: fs::DirEntry| {
            Some(entry.file_name().to_str()?.strip_suffix(".json")?.to_owned())
        };
        let layers = entries.flatten().filter_map(id).map(|id| layer("packages", &id));
        let mut sets: Vec<Self> = layers.filter_map(|layer| Self::find(store, &layer)).collect();
        sets.sort_by(|a, b| a.layer.cmp(&b.layer));
        Ok(sets)
    }

    /// The set in this layer, if it is there and complete.
    #[must_use]
    pub fn find(store: &Store, layer: &Layer) -> Option<Self> {
        let set: Self = description::read(&Self::description(store, layer))?;
        store.has(layer).then_some(set)
    }

    /// When it was last asked for, or found in use.
    #[must_use]
    pub fn used(&self, store: &Store) -> SystemTime {
        description::touched(&Self::description(store, &self.layer))
    }

    pub(crate) fn description(store: &Store, layer: &Layer) -> PathBuf {
        let mut path = store.layer_path(layer).into_os_string();
        path.push(".json");
        PathBuf::from(path)
    }

    /// Bytes of its own: its directories, and its description. Its files are its wheels'.
    pub(crate) fn overhead(&self, store: &Store) -> Result<u64, FileError> {
        let path = Self::description(store, &self.layer);
        let described = fs::metadata(&path).map_err(FileError::at("look at", &path))?.len();
        // A block for each directory; they are not counted one by one.
        Ok(described + 4096 * self.directories)
    }

    /// Whether as many files of the same size in sum are there as there should be.
    pub(super) fn looks_whole(&self, store: &Store) -> bool {
        Extent::of(&store.layer_path(&self.layer)).is_ok_and(|now| now == self.extent)
    }
}

fn found<'a>(
    store: &Store,
    ids: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<Wheel>, ViewError> {
    let find = |id: &str| Wheel::find(store, id).ok_or_else(|| ViewError::Missing(id.to_owned()));
    ids.into_iter().map(find).collect()
}

fn sorted(wheels: &[Wheel]) -> Result<Vec<&Wheel>, ViewError> {
    let mut sorted: Vec<&Wheel> = wheels.iter().collect();
    sorted.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
    sorted.dedup_by(|a, b| a.id == b.id);
    for pair in sorted.windows(2) {
        if pair[0].name == pair[1].name || pair[0].python != pair[1].python {
            return Err(ViewError::Incompatible(pair[0].id.clone(), pair[1].id.clone()));
        }
    }
    Ok(sorted)
}

fn name(sorted: &[&Wheel]) -> Layer {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&FORMAT.to_le_bytes());
    for wheel in sorted {
        hasher.update(wheel.id.as_bytes()).update(&[0]);
    }
    layer("packages", &short(&hasher.finalize()))
}

/// Whose file stands at each path.
struct Plan<'a> {
    wheels: &'a [&'a Wheel],
    files: BTreeMap<PathBuf, Planned>,
    clashes: Vec<Clash>,
}

#[derive(Clone, Copy)]
struct Planned {
    wheel: usize,
    bytes: u64,
    hash: blake3::Hash,
}

impl<'a> Plan<'a> {
    fn of(store: &Store, wheels: &'a [&'a Wheel]) -> Result<Self, ViewError> {
        let inventories = wheels.iter().map(|wheel| wheel.inventory(store));
        Self::merge(wheels, inventories.collect::<Result<Vec<_>, _>>()?)
    }

    fn merge(wheels: &'a [&'a Wheel], inventories: Vec<Inventory>) -> Result<Self, ViewError> {
        let mut plan = Self { wheels, files: BTreeMap::new(), clashes: Vec::new() };
        let mut contested = BTreeSet::new();
        for (wheel, inventory) in inventories.into_iter().enumerate() {
            for entry in inventory.0 {
                let planned = Planned { wheel, bytes: entry.bytes, hash: entry.hash };
                let Some(before) = plan.files.insert(entry.path.clone(), planned) else { continue };
                if before.hash != planned.hash && !in_cache(&entry.path) {
                    let name = |wheel: usize| wheels[wheel].name.clone();
                    let (kept, hidden) = (name(wheel), name(before.wheel));
                    plan.clashes.push(Clash { path: entry.path.clone(), kept, hidden });
                }
                contested.insert(entry.path);
            }
        }
        plan.drop_strange_bytecode(&contested);
        plan.refuse_files_as_directories()?;
        Ok(plan)
    }

    /// Bytecode is not checked against its source when it is loaded: beside a source of another wheel it would be run in
    /// its stead.
    fn drop_strange_bytecode(&mut self, contested: &BTreeSet<PathBuf>) {
        for source in contested {
            let Some(owner) = self.files.get(source).map(|planned| planned.wheel) else { continue };
            let stem = source.file_stem().unwrap_or_default().to_string_lossy().into_owned() + ".";
            let cache = source.with_file_name("__pycache__");
            let strange = |path: &Path, planned: &Planned| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let of_source = path.parent() == Some(&cache) && name.starts_with(&stem);
                of_source && planned.wheel != owner
            };
            self.files.retain(|path, planned| !strange(path, planned));
        }
    }

    fn refuse_files_as_directories(&self) -> Result<(), ViewError> {
        for (path, planned) in &self.files {
            let above = path.ancestors().skip(1).find_map(|a| Some((a, self.files.get(a)?)));
            if let Some((file, other)) = above {
                return Err(ViewError::FileAndDirectory {
                    path: file.to_owned(),
                    first: self.wheels[other.wheel].name.clone(),
                    second: self.wheels[planned.wheel].name.clone(),
                });
            }
        }
        Ok(())
    }

    fn link(&self, store: &Store, root: &Path) -> Result<(), ViewError> {
        // Sorted, and so each one after those above it; the first is the root itself.
        for directory in self.directories() {
            let path = root.join(directory);
            make_directory(&path).map_err(FileError::at("create", &path))?;
        }
        for (path, planned) in &self.files {
            let source = self.wheels[planned.wheel].path(store).join(path);
            link(&source, &root.join(path)).map_err(FileError::at("link", &source))?;
        }
        Ok(())
    }

    fn directories(&self) -> BTreeSet<&Path> {
        self.files.keys().flat_map(|path| path.ancestors().skip(1)).collect()
    }

    fn describe(&self, store: &Store, layer: Layer) -> Result<Set, ViewError> {
        let set = Set {
            wheels: self.wheels.iter().map(|wheel| wheel.id.clone()).collect(),
            clashes: self.clashes.clone(),
            extent: Extent {
                files: self.files.len() as u64,
                bytes: self.files.values().map(|planned| planned.bytes).sum(),
            },
            directories: self.directories().len() as u64,
            layer,
        };
        description::write(&Set::description(store, &set.layer), &set)?;
        Ok(set)
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    if !path.is_dir() {
        fs::create_dir(path)?;
    }
    // Whatever the umask says.
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

fn in_cache(path: &Path) -> bool {
    path.parent().is_some_and(|parent| parent.ends_with("__pycache__"))
}

fn link(source: &Path, target: &Path) -> io::Result<()> {
    match fs::hard_link(source, target) {
        // A file has at most 65 000 names on ext4.
        Err(error) if error.kind() == io::ErrorKind::TooManyLinks => {
            fs::copy(source, target).map(drop)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::inventory::Entry;
    use super::*;
    use crate::sources::Sources;

    fn wheel(name: &str, python: &str) -> Wheel {
        Wheel {
            name: name.to_owned(),
            version: "1".to_owned(),
            id: format!("{name}-1-{python}"),
            python: python.to_owned(),
            modules: Vec::new(),
            needs: Vec::new(),
            extent: Extent::default(),
            requirement: String::new(),
            sources: Sources::default(),
            format: 0,
        }
    }

    /// Each file's content is its second word.
    fn inventory(files: &[(&str, &str)]) -> Inventory {
        let entry = |(path, content): &(&str, &str)| Entry {
            path: PathBuf::from(path),
            bytes: content.len() as u64,
            hash: blake3::hash(content.as_bytes()),
        };
        Inventory(files.iter().map(entry).collect())
    }

    fn merge(first: &[(&str, &str)], second: &[(&str, &str)]) -> Result<Vec<String>, ViewError> {
        let (a, b) = (wheel("a", "3.11"), wheel("b", "3.11"));
        let wheels = [&a, &b];
        let plan = Plan::merge(&wheels, vec![inventory(first), inventory(second)])?;
        let files = plan
            .files
            .iter()
            .map(|(path, planned)| format!("{} of {}", path.display(), wheels[planned.wheel].name));
        let clashes = plan
            .clashes
            .iter()
            .map(|c| format!("{} over {}: {}", c.kept, c.hidden, c.path.display()));
        Ok(files.chain(clashes).collect())
    }

    #[test]
    fn namespace_packages_merge_and_equal_files_are_no_clash() {
        let merged = merge(
            &[("google/a.py", "1"), ("ns/__init__.py", "")],
            &[("google/b.py", "2"), ("ns/__init__.py", "")],
        );
        assert_eq!(
            merged.unwrap(),
            ["google/a.py of a", "google/b.py of b", "ns/__init__.py of b"]
        );
    }

    #[test]
    fn the_later_wheels_file_is_kept_without_the_earlier_ones_bytecode() {
        let first = [
            ("x.py", "1"),
            ("__pycache__/x.cpython-311.pyc", "p"),
            ("__pycache__/xy.cpython-311.pyc", "q"),
        ];
        let second = [("x.py", "2")];
        assert_eq!(
            merge(&first, &second).unwrap(),
            ["__pycache__/xy.cpython-311.pyc of a", "x.py of b", "b over a: x.py"]
        );
    }

    #[test]
    fn a_file_that_is_another_wheels_directory_is_refused_with_both_names() {
        let error = merge(&[("x", "1")], &[("x/y.py", "2")]).unwrap_err().to_string();
        assert!(error.contains("a and b") && error.contains("x is a file"), "{error}");
    }

    #[test]
    fn two_versions_or_two_pythons_are_no_set() {
        let (one, other) = (wheel("a", "3.11"), wheel("a", "3.12"));
        assert!(matches!(sorted(&[one.clone(), other.clone()]), Err(ViewError::Incompatible(..))));
        let far = Wheel { name: "b".to_owned(), ..other };
        assert!(matches!(sorted(&[one.clone(), far]), Err(ViewError::Incompatible(..))));
        let near = wheel("b", "3.11");
        assert_eq!(
            name(&sorted(&[one.clone(), near.clone()]).unwrap()),
            name(&sorted(&[near, one]).unwrap())
        );
    }
}
