//! The install cache: one directory per wheel, and package sets put together from them.
//!
//! ```text
//!   lock ─► each requirement: its wheel (fetched once, for all locks) ─► view: hard links to exactly these ─► /opt/python
//!           wheels/<name>-<version>-<hash>/                             packages/<hash of the wheels' ids>/
//! ```
//!
//! Wheels are unpacked; what has none is built in a sandbox first ([`crate::sdist`]). What is in them:
//!
//! | | |
//! | --- | --- |
//! | namespace packages | directories merge |
//! | `<name>.libs/`, extension modules | as they are: their run paths are relative |
//! | `*.data`: data, headers, platlib | where `uv pip install --target` puts them, below `/opt/python` |
//! | entry points, scripts | `/opt/python/bin`, started by the base's interpreter |
//! | `.pth` files | without effect: a sandbox's interpreter starts without `site`; path lines are reported |
//! | a file of two wheels | the later by name, and reported |

pub mod bundled;
mod error;
mod fetch;
mod imports;
mod inventory;
mod path_files;
mod plan;
mod programs;
mod scripts;
mod shipped_bytecode;
mod verify;
mod view;
mod wheel;

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use layers::base::Base;
use layers::staging::Staging;
use layers::{FileError, Progress, Store};
use sandbox::Layer;

pub use error::{InstallError, ViewError};
pub use imports::is_noise;
pub use plan::Clash;
pub use verify::{Verdict, verify};
pub use view::{Set, view, view_of};
use wheel::Locked;
pub use wheel::Wheel;

use crate::installer::Installer;
use crate::lock::Lock;
use crate::sources::Sources;
use fetch::Fetcher;
pub(crate) use imports::read as read_distribution;
pub(crate) use inventory::Inventory;
pub(crate) use scripts::rehomed;

/// Wheels fetched at the same time: most of it is waiting for the index.
const AT_ONCE: usize = 4;

/// An installed package set.
#[derive(Clone, Debug, PartialEq)]
pub struct Packages {
    /// The layer that sandboxes mount.
    pub layer: Layer,
    /// Modules of the distributions that were asked for, dotted where a namespace package stands above: what a zygote
    /// for this set imports. Sorted.
    pub imports: Vec<String>,
    /// Exactly what it holds, by name.
    pub wheels: Vec<Wheel>,
    /// Files that two of them bring.
    pub clashes: Vec<Clash>,
    /// Whether a wheel had to be fetched for it; else all were there.
    pub fetched: bool,
}

/// Installs a lock: fetches the wheels that are not there, repairs those of which files are missing, and puts the set
/// together. `sources` says where the packages were found when they were locked.
///
/// # Errors
/// When the installer fails, with its own words; what was fetched until then stays.
pub fn install(
    store: &Store,
    installer: &Installer,
    base: &Base,
    lock: &Lock,
    sources: &Sources,
    progress: &dyn Progress,
) -> Result<Packages, InstallError> {
    let requirements = lock.requirements();
    let known = |line: &String| Wheel::of_lock(store, &Locked::new(line, base, sources));
    let (there, missing): (Vec<_>, Vec<_>) =
        requirements.iter().map(|line| (line, known(line))).partition(|(_, w)| w.is_some());
    let mut wheels: Vec<Wheel> = there.into_iter().filter_map(|(_, wheel)| wheel).collect();
    // A look at sizes, which reads nothing: what was cut short or lost shows.
    let broken: Vec<&Wheel> = wheels.iter().filter(|wheel| !wheel.looks_whole(store)).collect();
    let fetched = !missing.is_empty() || !broken.is_empty();
    if !broken.is_empty() {
        installer.note_mending();
    }
    if fetched {
        let cache = Staging::begin(&store.kind(wheel::KIND), &format!("cache-{}", lock.id))?;
        let fetcher = Fetcher::new(store, installer, base, cache.path(), progress);
        verify::repair(&fetcher, &broken)?;
        let lines: Vec<&String> = missing.into_iter().map(|(line, _)| line).collect();
        wheels.extend(fetch_all(&fetcher, &lines, sources)?);
    }
    let mut set = view(store, &wheels)?;
    if !set.looks_whole(store) {
        installer.note_mending();
        view::remake(store, &set)?;
        set = view(store, &wheels)?;
    }
    for clash in &set.clashes {
        let Clash { path, kept, hidden } = clash;
        progress.line(&format!("{} is of {kept}, and hides that of {hidden}", path.display()));
    }
    wheels.sort_by(|a, b| a.name.cmp(&b.name));
    for wheel in &wheels {
        let root = wheel.path(store);
        let files = path_files::of(&root).map_err(FileError::at("look through", &root))?;
        for (file, paths) in files {
            let name = &wheel.name;
            progress.line(&format!(
                "{name}: {file:?} names {paths:?} to import from, and has no effect here: `.pth` files are not read"
            ));
        }
    }
    let imports = imports::worthwhile(&wheels, &lock.direct);
    Ok(Packages { layer: set.layer, imports, wheels, clashes: set.clashes, fetched })
}

fn fetch_all(
    fetcher: &Fetcher<'_>,
    lines: &[&String],
    sources: &Sources,
) -> Result<Vec<Wheel>, InstallError> {
    if lines.is_empty() {
        return Ok(Vec::new());
    }
    fetcher.progress.step(&format!("installing {} package(s)", lines.len()));
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(lines.len()) {
            scope.spawn(|| {
                while let Some(line) = lines.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = fetcher.wheel(line, sources);
                    if outcome.is_err() {
                        // What others have begun is finished and stays; nothing new is begun.
                        next.store(lines.len(), Ordering::Relaxed);
                    }
                    outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    let unpacked = fetcher.unpacked.load(Ordering::Relaxed);
    if unpacked > 0 {
        fetcher.progress.bytes(unpacked, Some(unpacked));
    }
    let wheels: Result<Vec<Option<Wheel>>, InstallError> = outcomes.into_iter().collect();
    Ok(wheels?.into_iter().flatten().collect())
}
