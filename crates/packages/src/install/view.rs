//! A package set: one directory that holds exactly some wheels, made of hard links into theirs.
//!
//! ```text
//!   wheels/six-1.16.0-…/six.py ──┐ the same file: no bytes, one copy in memory for all who map it
//!   packages/<hash>/six.py ──────┘
//!   packages/<hash>.json         which wheels
//! ```
//!
//! Whose file stands where is [`Plan`]'s. Links need not reach the disk one by one: they are entries of the file
//! system's journal, which keeps their order.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use layers::store::{layer, short};
use layers::{Extent, FileError, Store, description};
use sandbox::Layer;
use serde::{Deserialize, Serialize};

use super::error::ViewError;
use super::plan::{Clash, Plan};
use super::wheel::Wheel;

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
    Set::describe(store, layer, &sorted, &plan)
}

/// The set of exactly the wheels with these ids.
///
/// # Errors
/// When one of them is not there, they do not go together, or a link cannot be made.
pub fn view_of<'a>(
    store: &Store,
    ids: impl IntoIterator<Item = &'a str>,
) -> Result<Set, ViewError> {
    view(store, &found(store, ids)?)
}

/// Puts a set together anew, from wheels that were repaired. A sandbox that runs from the old directory keeps it.
pub(super) fn remake(store: &Store, set: &Set) -> Result<(), ViewError> {
    let wheels = found(store, set.wheels.iter().map(String::as_str))?;
    let sorted = sorted(&wheels)?;
    let plan = Plan::of(store, &sorted)?;
    store.replace::<ViewError>(&set.layer, |root| plan.link(store, root))?;
    Set::describe(store, set.layer.clone(), &sorted, &plan).map(drop)
}

/// What is wrong with a set of sound wheels, in words; none when nothing is.
pub(super) fn fault(store: &Store, set: &Set) -> Result<Option<String>, ViewError> {
    if !set.looks_whole(store) {
        return Ok(Some("files are missing or were added".to_owned()));
    }
    let wheels = found(store, set.wheels.iter().map(String::as_str))?;
    let sorted = sorted(&wheels)?;
    let plan = Plan::of(store, &sorted)?;
    let stranger = plan.stranger(store, &store.layer_path(&set.layer));
    Ok(stranger.map(|path| format!("{} is not its package's", path.display())))
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

    fn describe(
        store: &Store,
        layer: Layer,
        wheels: &[&Wheel],
        plan: &Plan<'_>,
    ) -> Result<Self, ViewError> {
        let set = Self {
            wheels: wheels.iter().map(|wheel| wheel.id.clone()).collect(),
            clashes: plan.clashes.clone(),
            extent: plan.extent(),
            directories: plan.directories().len() as u64,
            layer,
        };
        description::write(&Self::description(store, &set.layer), &set)?;
        Ok(set)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_versions_or_two_pythons_are_no_set() {
        let (one, other) = (Wheel::named("a", "3.11"), Wheel::named("a", "3.12"));
        assert!(matches!(sorted(&[one.clone(), other.clone()]), Err(ViewError::Incompatible(..))));
        let far = Wheel { name: "b".to_owned(), ..other };
        assert!(matches!(sorted(&[one.clone(), far]), Err(ViewError::Incompatible(..))));
        let near = Wheel::named("b", "3.11");
        assert_eq!(
            name(&sorted(&[one.clone(), near.clone()]).unwrap()),
            name(&sorted(&[near, one]).unwrap())
        );
    }
}
