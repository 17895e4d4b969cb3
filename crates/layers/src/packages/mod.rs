//! The install cache: one directory per wheel, and package sets put together from them.
//!
//! ```text
//!   lock ─► each requirement: its wheel (fetched once, whoever asks) ─► view: hard links to exactly these ─► /opt/python
//!           wheels/<name>-<version>-<hash>/                             packages/<hash of the wheels' ids>/
//! ```
//!
//! Wheels are unpacked; what has none is built in a sandbox first ([`crate::build`]). What is in them:
//!
//! | | |
//! | --- | --- |
//! | namespace packages | directories merge |
//! | `<name>.libs/`, extension modules | as they are: their run paths are relative |
//! | `*.data`: data, headers, platlib | where `uv pip install --target` puts them, below `/opt/python` |
//! | entry points, scripts | `/opt/python/bin`, started by the base's interpreter |
//! | `.pth` files | without effect: a sandbox's interpreter starts without `site`; path lines are reported |
//! | a file of two wheels | the later by name, and reported |

mod fetch;
mod imports;
mod inventory;
mod path_files;
mod plan;
mod scripts;
mod verify;
mod view;
mod wheel;

use std::io;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use sandbox::Layer;
use thiserror::Error;

pub use imports::is_noise;
pub use plan::Clash;
pub use verify::{Verdict, verify};
pub use view::{Set, ViewError, view, view_of};
use wheel::Locked;
pub use wheel::Wheel;

use crate::base::Base;
use crate::build::BuildError;
use crate::indexes::NotAllowed;
use crate::installer::InstallerError;
use crate::lock::Lock;
use crate::sources::Sources;
use crate::staging::Staging;
use crate::uv::{Bounds, Uv};
use crate::{FileError, Progress, RunError, Store};
use fetch::Fetcher;
pub(crate) use imports::read as read_distribution;
pub(crate) use inventory::Inventory;
pub(crate) use scripts::rehomed;

/// Wheels fetched at the same time: most of it is waiting for the index.
const AT_ONCE: usize = 4;

/// An installed package set.
#[derive(Clone, Debug, PartialEq)]
pub struct Packages {
    /// Where it is.
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

/// Why a package set is not installed.
#[derive(Debug, Error)]
pub enum InstallError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A wheel whose own files do not say what it is.
    #[error("the wheel of {requirement} cannot be used: {reason}; ask for another version of it")]
    Unreadable {
        /// Which one.
        requirement: String,
        /// What is wrong with it.
        reason: io::Error,
    },
    /// The installer could not be started, or was ended.
    #[error(transparent)]
    Start(#[from] InstallerError),
    /// What the operator has not allowed, or allows no more.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    /// A distribution without a wheel for this Python and platform.
    #[error(
        "a locked package has no wheel for Python {python} on this machine, and building from source is off (the setting `build_from_source`); uv says:\n{words}"
    )]
    NoWheel {
        /// The base's version.
        python: String,
        /// The installer's own words.
        words: String,
    },
    /// A distribution without a wheel that could not be built.
    #[error("{requirement} has no wheel for this Python and machine, and building it failed")]
    Build {
        /// Name and version.
        requirement: String,
        /// Why.
        #[source]
        source: BuildError,
    },
    /// A distribution that is larger than allowed, unpacked.
    #[error(
        "{requirement} unpacks to more than {} MiB or {} files; the settings `package_bytes` and `package_files` allow more", bounds.bytes >> 20, bounds.files
    )]
    Excessive {
        /// Name and version.
        requirement: String,
        /// What is allowed.
        bounds: Bounds,
    },
    /// A file that is not what was locked.
    #[error("a package's file is not the one that was locked; uv says:\n{words}")]
    Hash {
        /// The installer's own words.
        words: String,
    },
    /// The index cannot be reached, and not all wheels are there.
    #[error(
        "the package index cannot be reached, and not all packages were installed before; uv says:\n{words}"
    )]
    Unreachable {
        /// The installer's own words.
        words: String,
    },
    /// Anything else that the installer says.
    #[error("the packages cannot be installed; uv says:\n{words}")]
    Failed {
        /// The installer's own words.
        words: String,
    },
    /// The byte compiler failed.
    #[error("the packages cannot be compiled")]
    Compile(#[source] RunError),
    /// The wheels do not go together.
    #[error(transparent)]
    View(#[from] ViewError),
    /// A broken wheel of a Python that has no base any more.
    #[error(
        "there is no base with Python {python} to compile it with; make one with `wool base build {python}`"
    )]
    NoBase {
        /// Which Python.
        python: String,
    },
    /// A set of which a wheel is broken and could not be repaired.
    #[error("{wheel} is broken, and is to be repaired first")]
    Broken {
        /// Which.
        wheel: String,
    },
    /// What is fetched in a broken wheel's stead is not the same.
    #[error(
        "{wheel} is broken, and what the index gives now is another wheel; deploy its functions anew"
    )]
    Other {
        /// Which.
        wheel: String,
    },
}

/// Installs a lock: fetches the wheels that are not there, repairs those of which files are missing, and puts the set
/// together. `sources` says where the packages were found when they were locked.
///
/// # Errors
/// When the installer fails, with its own words; what was fetched until then stays.
pub fn install(
    store: &Store,
    uv: &Uv,
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
        uv.note_mending();
    }
    if fetched {
        let cache = Staging::begin(&store.kind(wheel::KIND), &format!("cache-{}", lock.id))?;
        let fetcher = Fetcher::new(store, uv, base, cache.path(), progress);
        verify::repair(&fetcher, &broken)?;
        let lines: Vec<&String> = missing.into_iter().map(|(line, _)| line).collect();
        wheels.extend(fetch_all(&fetcher, &lines, sources)?);
    }
    let mut set = view(store, &wheels)?;
    if !set.looks_whole(store) {
        uv.note_mending();
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
