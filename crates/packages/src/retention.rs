//! How long layers stay on disk that no function needs any more.
//!
//! ```text
//!   all wheels, sets, code, bases, guests ─► without those in use ─► least recently used first ─► until the rest fits
//! ```
//!
//! The caller says what is in use: it knows the deployed versions and the running sandboxes. A wheel is in use when a
//! set that is in use holds it, and when a wheel goes, the unused sets that hold it go with it: their links would keep
//! its bytes. What is in use stays whatever the budget says.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use layers::staging::Staging;
use layers::store::layer;
use layers::{Extent, FileError, Store, base, description};
use sandbox::Layer;

use crate::install::{Set, Wheel};

/// Age in which a set counts as in use: a sandbox starts from it a moment after the set was asked for, and only then
/// the caller sees the use.
const FRESH: Duration = Duration::from_secs(10);

/// What was removed, and what is left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Names of what was removed: wheels' ids, layers of the rest.
    pub removed: Vec<String>,
    /// Bytes that this gave back.
    pub freed: u64,
    /// Bytes of what is left.
    pub left: u64,
}

/// Which kinds of layers may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// While sandboxes may be made: packages and code.
    Running,
    /// Before the first one: also bases and guests, of which the makers of sandboxes keep templates.
    Starting,
}

/// Something that may go.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    what: What,
    bytes: u64,
    used: SystemTime,
    kept: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Wheel(String),
    /// A set, with the wheels that it holds.
    Set(Layer, Vec<String>),
    /// Code, a base, a guest, a set in one piece that an earlier release made.
    Whole(Layer),
}

/// Removes what is not `in_use`, the least recently used first, until what is left fits into `budget` bytes. What is in
/// use counts, is noted as used now, and stays.
///
/// # Errors
/// When the store cannot be read, or something cannot be removed; what was removed until then is gone.
pub fn collect(
    store: &Store,
    in_use: &BTreeSet<Layer>,
    budget: u64,
    scope: Scope,
) -> Result<Collected, FileError> {
    // What cannot be removed is tried again the next time. The rest goes all the same.
    drop(installers_cache(store));
    let items = items(store, in_use, scope)?;
    note(store, in_use);
    let total: u64 = items.iter().map(|item| item.bytes).sum();
    let mut collected = Collected { left: total, ..Collected::default() };
    for item in choose(items, budget) {
        remove(store, &item.what)?;
        collected.removed.push(item.what.name());
        collected.freed += item.bytes;
        collected.left -= item.bytes;
    }
    Ok(collected)
}

/// Empties the installer's own cache once it holds many wheels. Resolving fetches what wheels say of themselves, which is
/// small. Where an index gives no hashes it fetches the wheels, with each lock anew, and nothing else bounds that.
fn installers_cache(store: &Store) -> io::Result<()> {
    const MOST_WHEELS: usize = 256;
    let cache = store.uv().join("cache");
    let wheels = fs::read_dir(cache.join("archive-v0")).map_or(0, Iterator::count);
    if wheels <= MOST_WHEELS {
        return Ok(());
    }
    // Out of the way first: what is half removed is no cache. An earlier one may not have been removed to its end.
    let old = store.uv().join("old-cache");
    if old.exists() {
        fs::remove_dir_all(&old)?;
    }
    fs::rename(&cache, &old)?;
    fs::remove_dir_all(&old)
}

/// What goes, in the order in which it goes.
fn choose(items: Vec<Item>, budget: u64) -> Vec<Item> {
    let mut left: u64 = items.iter().map(|item| item.bytes).sum();
    let mut unused: Vec<Item> = items.into_iter().filter(|item| !item.kept).collect();
    // Of what was used together sets go first: they are made again in milliseconds.
    let rank = |item: &Item| (item.used, matches!(item.what, What::Wheel(_)), item.what.name());
    unused.sort_by_key(rank);
    let mut going: Vec<Item> = Vec::new();
    while left > budget && !unused.is_empty() {
        let first = unused.remove(0);
        if let What::Wheel(id) = &first.what {
            let holds =
                |item: &mut Item| matches!(&item.what, What::Set(_, ids) if ids.contains(id));
            for set in unused.extract_if(.., holds) {
                left -= set.bytes;
                going.push(set);
            }
        }
        left -= first.bytes;
        going.push(first);
    }
    going
}

fn items(store: &Store, in_use: &BTreeSet<Layer>, scope: Scope) -> Result<Vec<Item>, FileError> {
    let mut items = Vec::new();
    let mut needed = BTreeSet::new();
    let mut described = BTreeSet::new();
    for set in Set::all(store)? {
        let (used, bytes) = (set.used(store), set.overhead(store)?);
        let fresh = scope == Scope::Running && used.elapsed().is_ok_and(|age| age < FRESH);
        let kept = fresh || in_use.contains(&set.layer);
        if kept {
            needed.extend(set.wheels.iter().cloned());
        }
        described.insert(set.layer.clone());
        items.push(Item { what: What::Set(set.layer, set.wheels), bytes, used, kept });
    }
    let mut archives = Vec::new();
    for wheel in Wheel::all(store)? {
        let (kept, used) = (needed.contains(&wheel.id), wheel.used(store));
        archives.extend(wheel.built.filter(|_| kept));
        items.push(Item { bytes: wheel.extent.bytes, what: What::Wheel(wheel.id), used, kept });
    }
    let mut kept: BTreeSet<&Layer> = in_use.iter().collect();
    // What repairs a wheel that was built here without building it again.
    kept.extend(archives.iter());
    let bases = base::list(store)?;
    // The newest making of each Python serves the next function.
    let newest = bases.iter().rev().enumerate().filter(|(nth, base)| {
        !bases.iter().rev().take(*nth).any(|newer| newer.source == base.source)
    });
    kept.extend(newest.map(|(_, base)| &base.layer));
    let kinds: &[&str] = match scope {
        Scope::Running => &["packages", "built", "code", "opt"],
        Scope::Starting => &["packages", "built", "code", "opt", "base", "guest"],
    };
    for kind in kinds {
        for layer in layers(store, kind)?.into_iter().filter(|layer| !described.contains(layer)) {
            let path = store.layer_path(&layer);
            let used = description::touched(&path);
            let bytes = Extent::of(&path).map_err(FileError::at("measure", &path))?.bytes;
            let kept = kept.contains(&layer);
            items.push(Item { what: What::Whole(layer), bytes, used, kept });
        }
    }
    Ok(items)
}

fn layers(store: &Store, kind: &str) -> Result<Vec<Layer>, FileError> {
    let directory = store.kind(kind);
    let entries = fs::read_dir(&directory).map_err(FileError::at("list", &directory))?;
    let named = entries.flatten().filter(|entry| entry.path().is_dir()).filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        (!name.starts_with('.')).then(|| layer(kind, &name))
    });
    Ok(named.collect())
}

/// Notes that layers, and the wheels of sets, are used now.
fn note(store: &Store, in_use: &BTreeSet<Layer>) {
    for layer in in_use {
        let Some(set) = Set::find(store, layer) else {
            description::touch(&store.layer_path(layer));
            continue;
        };
        description::touch(&Set::description(store, layer));
        let wheels = set.wheels.iter().filter_map(|id| Wheel::find(store, id));
        wheels.for_each(|wheel| wheel.touch(store));
    }
}

fn remove(store: &Store, what: &What) -> Result<(), FileError> {
    match what {
        What::Wheel(id) => {
            if let Some(wheel) = Wheel::find(store, id) {
                wheel.forget(store)?;
            }
            remove_tree(store, &layer("wheels", id))
        }
        What::Set(layer, _) | What::Whole(layer) => {
            forget(&Set::description(store, layer))?;
            remove_tree(store, layer)
        }
    }
}

/// Removes a description: without it the layer beside it is not found.
fn forget(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FileError::at("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Takes the name away first: at no moment is half a layer there.
fn remove_tree(store: &Store, layer: &Layer) -> Result<(), FileError> {
    let path = store.layer_path(layer);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let parent = path.parent().unwrap_or(&path);
    let staging = Staging::begin(parent, &name)?;
    fs::rename(&path, staging.path()).map_err(FileError::at("remove", &path))
}

impl What {
    fn name(&self) -> String {
        match self {
            Self::Wheel(id) => id.clone(),
            Self::Set(layer, _) | Self::Whole(layer) => layer.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn wheel(id: &str, bytes: u64, used: u64, kept: bool) -> Item {
        Item { what: What::Wheel(id.to_owned()), bytes, used: at(used), kept }
    }

    fn set(id: &str, wheels: &[&str], used: u64, kept: bool) -> Item {
        let wheels = wheels.iter().map(|&id| id.to_owned()).collect();
        Item { what: What::Set(layer("packages", id), wheels), bytes: 1, used: at(used), kept }
    }

    fn names(items: Vec<Item>, budget: u64) -> Vec<String> {
        choose(items, budget).iter().map(|item| item.what.name()).collect()
    }

    #[test]
    fn the_installers_cache_is_emptied_when_it_holds_many_wheels_and_not_before() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::open(state.path()).unwrap();
        let wheels = store.uv().join("cache/archive-v0");
        let simple = store.uv().join("cache/simple-v28");
        for _ in 0..2 {
            fs::create_dir_all(&simple).unwrap();
            (0..256).for_each(|wheel| fs::create_dir_all(wheels.join(wheel.to_string())).unwrap());
            collect(&store, &BTreeSet::new(), u64::MAX, Scope::Running).unwrap();
            assert!(simple.exists());
            fs::create_dir_all(wheels.join("one more")).unwrap();
            collect(&store, &BTreeSet::new(), u64::MAX, Scope::Running).unwrap();
            assert!(!store.uv().join("cache").exists());
            assert!(!store.uv().join("old-cache").exists());
        }
    }

    #[test]
    fn nothing_goes_while_everything_fits() {
        assert_eq!(names(vec![wheel("a", 10, 1, false), wheel("b", 10, 2, false)], 20), [""; 0]);
    }

    #[test]
    fn the_least_recently_used_goes_first_and_its_sets_with_it() {
        let items = vec![
            wheel("old", 10, 1, false),
            wheel("new", 10, 9, false),
            set("both", &["old", "new"], 9, false),
            set("one", &["new"], 9, false),
        ];
        assert_eq!(names(items, 12), ["packages/both", "old"]);
    }

    #[test]
    fn what_is_in_use_stays_though_nothing_else_is_left() {
        let items = vec![
            wheel("used", 100, 1, true),
            set("s", &["used"], 1, true),
            wheel("x", 5, 2, false),
        ];
        assert_eq!(names(items, 0), ["x"]);
    }
}
