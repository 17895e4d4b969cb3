//! Whose file stands where when wheels are put together.
//!
//! Directories merge, so that namespace packages that several wheels share are one. A file that two wheels bring is
//! taken from the later one by name, together with its bytecode, and is reported when the contents differ.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use layers::{Extent, FileError, Store};
use serde::{Deserialize, Serialize};

use super::error::ViewError;
use super::inventory::{Inventory, digest};
use super::wheel::Wheel;

/// A file that two wheels of a set bring, with different contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clash {
    /// The file's path in the set.
    pub path: PathBuf,
    /// The distribution whose file it is.
    pub kept: String,
    /// The distribution whose file is not there.
    pub hidden: String,
}

/// Whose file stands at each path of a set.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    wheels: &'a [&'a Wheel],
    files: BTreeMap<PathBuf, Planned>,
    pub(super) clashes: Vec<Clash>,
}

#[derive(Clone, Copy, Debug)]
struct Planned {
    wheel: usize,
    bytes: u64,
    hash: blake3::Hash,
}

impl<'a> Plan<'a> {
    pub(super) fn of(store: &Store, wheels: &'a [&'a Wheel]) -> Result<Self, ViewError> {
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
        let stem = |source: &Path| {
            let stem = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            (source.with_file_name("__pycache__"), stem)
        };
        // `a.py` and `a.pyi` may be of two wheels.
        let mut owners: HashMap<(PathBuf, String), Vec<usize>> = HashMap::new();
        for source in contested {
            let of = self.files.get(source).map(|planned| planned.wheel);
            owners.entry(stem(source)).or_default().extend(of);
        }
        self.files.retain(|path, planned| {
            let Some(cache) = path.parent().filter(|_| in_cache(path)) else { return true };
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // Of `a.b.py` and of `a.py` it begins with `a.`.
            let mut stems = name.match_indices('.').map(|(at, _)| name[..at].to_owned());
            stems.all(|stem| {
                let owners = owners.get(&(cache.to_owned(), stem));
                owners.is_none_or(|owners| owners.iter().all(|owner| *owner == planned.wheel))
            })
        });
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

    pub(super) fn link(&self, store: &Store, root: &Path) -> Result<(), ViewError> {
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

    /// The first file below `root` that is not its wheel's own.
    pub(super) fn stranger(&self, store: &Store, root: &Path) -> Option<&Path> {
        let own = |(path, planned): &(&PathBuf, &Planned)| {
            let here = root.join(path);
            let there = self.wheels[planned.wheel].path(store).join(path);
            let node = |path: &Path| fs::symlink_metadata(path).map(|m| (m.dev(), m.ino())).ok();
            // Not the same file where links had run out.
            node(&here).is_some() && node(&here) == node(&there)
                || digest(&here).is_ok_and(|(_, hash)| hash == planned.hash)
        };
        self.files.iter().find(|file| !own(file)).map(|(path, _)| path.as_path())
    }

    pub(super) fn extent(&self) -> Extent {
        let bytes = self.files.values().map(|planned| planned.bytes).sum();
        Extent { files: self.files.len() as u64, bytes }
    }

    /// Directories, each after those above it; the first is the root itself.
    pub(super) fn directories(&self) -> BTreeSet<&Path> {
        self.files.keys().flat_map(|path| path.ancestors().skip(1)).collect()
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
        let (a, b) = (Wheel::named("a", "3.11"), Wheel::named("b", "3.11"));
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
    fn bytecode_stays_beside_no_source_of_another_wheel_whatever_shares_its_stem() {
        let wheels = ["a", "b", "c"].map(|name| Wheel::named(name, "3.11"));
        let wheels: Vec<&Wheel> = wheels.iter().collect();
        let first = inventory(&[("x.py", "1"), ("x.pyi", "1")]);
        let second = inventory(&[("x.py", "2"), ("__pycache__/x.cpython-311.pyc", "p")]);
        let third = inventory(&[("x.pyi", "3"), ("__pycache__/x.cpython-311.pyc", "q")]);
        let plan = Plan::merge(&wheels, vec![first, second, third]).unwrap();
        let paths: Vec<_> = plan.files.keys().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(
            paths,
            ["x.py", "x.pyi"],
            "the bytecode is the third's, the source the second's"
        );
    }

    #[test]
    fn a_file_that_is_another_wheels_directory_is_refused_with_both_names() {
        let error = merge(&[("x", "1")], &[("x/y.py", "2")]).unwrap_err().to_string();
        assert!(error.contains("a and b") && error.contains("x is a file"), "{error}");
    }
}
