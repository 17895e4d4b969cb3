//! Whether wheels and package sets are what they were when they were made, and making them so again.
//!
//! A broken wheel is fetched once more, beside the old directory, and takes its place in one step. When that was done for
//! all, the sets that hold them are put together again in the same way: a set takes all of its wheels, so none of them may
//! still be broken. A sandbox goes on with the directory that it was started from, which is kept until no sandbox runs
//! ([`Store::bury`]).

use std::collections::BTreeSet;

use layers::base::{self, Base};
use layers::staging::Staging;
use layers::{Extent, Progress, Store};

use super::error::{InstallError, ViewError};
use super::fetch::Fetcher;
use super::view::{self, Set, remake};
use super::wheel::{self, Wheel};
use crate::installer::Installer;

/// What was found out about a wheel or a package set that is not as it was.
#[derive(Debug)]
pub struct Verdict {
    /// The wheel's id, or the set's layer.
    pub what: String,
    /// What is wrong with it.
    pub fault: String,
    /// Whether it is well again, or why not.
    pub repaired: Result<(), InstallError>,
}

impl Wheel {
    /// Whether as many files of the same size in sum are there as there should be. Opens none.
    pub(super) fn looks_whole(&self, store: &Store) -> bool {
        Extent::of(&self.path(store)).is_ok_and(|now| now == self.extent)
    }
}

/// Reads every file of every wheel, compares it with what was unpacked, and repairs what differs. Returns what was
/// broken.
///
/// # Errors
/// When the store cannot be read.
pub fn verify(
    store: &Store,
    installer: &Installer,
    progress: &dyn Progress,
) -> Result<Vec<Verdict>, InstallError> {
    let wheels = Wheel::all(store)?;
    let bases = base::list(store)?;
    progress.step(&format!("checking {} wheel(s)", wheels.len()));
    let mut verdicts = Vec::new();
    let (mut mended, mut broken) = (BTreeSet::new(), BTreeSet::new());
    for wheel in &wheels {
        let Some(fault) = fault(store, wheel) else { continue };
        progress.step(&format!("repairing {}", wheel.id));
        let fits = |base: &&Base| base.minor() == wheel.python;
        let repaired = match bases.iter().rfind(fits) {
            None => Err(InstallError::NoBase { python: wheel.python.clone() }),
            Some(base) => {
                let name = format!("cache-{}", wheel.id);
                let cache = Staging::begin(&store.kind(wheel::KIND), &name)?;
                Fetcher::new(store, installer, base, cache.path(), progress).again(wheel)
            }
        };
        let to = if repaired.is_ok() { &mut mended } else { &mut broken };
        to.insert(wheel.id.as_str());
        verdicts.push(Verdict { what: wheel.id.clone(), fault, repaired });
    }
    // The files of a set are those of its wheels: only when all of these are whole can it be.
    for set in &Set::all(store)? {
        let of = |wheels: &BTreeSet<&str>| {
            set.wheels.iter().find(|wheel| wheels.contains(wheel.as_str())).cloned()
        };
        let (fault, repaired) = match (of(&broken), of(&mended)) {
            (Some(wheel), _) => {
                (format!("its wheel {wheel} is broken"), Err(InstallError::Broken { wheel }))
            }
            // What was wrong with it was its wheel's, and is told of that.
            (None, Some(_)) => match remake(store, set) {
                Ok(()) => continue,
                Err(error) => ("a wheel of it was repaired".to_owned(), Err(error.into())),
            },
            (None, None) => match view::fault(store, set) {
                Ok(None) => continue,
                Ok(Some(fault)) => (fault, remake(store, set).map_err(InstallError::from)),
                Err(error) => ("it cannot be compared".to_owned(), Err(error.into())),
            },
        };
        verdicts.push(Verdict { what: set.layer.to_string(), fault, repaired });
    }
    Ok(verdicts)
}

fn fault(store: &Store, wheel: &Wheel) -> Option<String> {
    let Ok(inventory) = wheel.inventory(store) else {
        return Some("the list of its files is lost".to_owned());
    };
    inventory.differs(&wheel.path(store)).unwrap_or_else(|error| Some(error.to_string()))
}

/// Fetches broken wheels again, and puts the sets that hold them together again.
pub(super) fn repair(fetcher: &Fetcher<'_>, broken: &[&Wheel]) -> Result<(), InstallError> {
    for wheel in broken {
        fetcher.again(wheel)?;
    }
    let mended: BTreeSet<&str> = broken.iter().map(|wheel| wheel.id.as_str()).collect();
    Ok(remake_holding(fetcher.store, &mended)?)
}

/// Puts the sets together again that hold one of these wheels.
pub(super) fn remake_holding(store: &Store, wheels: &BTreeSet<&str>) -> Result<(), ViewError> {
    if wheels.is_empty() {
        return Ok(());
    }
    let holds = |set: &&Set| set.wheels.iter().any(|wheel| wheels.contains(wheel.as_str()));
    Set::all(store)?.iter().filter(holds).try_for_each(|set| remake(store, set))
}
