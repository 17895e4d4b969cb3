//! The install cache as the engine sees it: directories of any part of a lock.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, PoisonError};

use engine::{Distribution, PackageStore};
use layers::Store;
use packages::{Packages, Wheel, view_of};
use sandbox::{Layer, Pending, ProviderError, PythonSpec};

/// Lays wheels out for zygotes.
#[derive(Debug)]
pub struct Shelf {
    store: Store,
    /// A wheel never changes, and its description is a file.
    bytes: Mutex<HashMap<String, u64>>,
}

impl Shelf {
    /// Of one state directory's wheels.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store, bytes: Mutex::default() }
    }
}

impl PackageStore for Shelf {
    fn layer<'a>(&'a self, _: &'a PythonSpec, set: &'a [Distribution]) -> Pending<'a, Layer> {
        // A wheel's id says for which Python it was compiled.
        let wheels: Vec<String> = set.iter().map(|one| one.wheel.clone()).collect();
        let store = self.store.clone();
        let work = move || view_of(&store, wheels.iter().map(String::as_str)).map(|set| set.layer);
        Box::pin(async move {
            let step = "lay out packages";
            let made = tokio::task::spawn_blocking(work).await;
            let made = made.map_err(|error| ProviderError::Step { step, source: error.into() })?;
            made.map_err(|error| ProviderError::Step { step, source: io::Error::other(error) })
        })
    }

    fn disk_bytes(&self, distribution: &Distribution) -> u64 {
        let mut known = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = known.get(&distribution.wheel) {
            return *bytes;
        }
        let bytes = Wheel::find(&self.store, &distribution.wheel).map_or(0, |w| w.extent.bytes);
        known.insert(distribution.wheel.clone(), bytes);
        bytes
    }
}

/// What a lock's installation holds, as the engine names it.
#[must_use]
pub fn distributions(packages: &Packages) -> Vec<Distribution> {
    let mut all: Vec<Distribution> = packages
        .wheels
        .iter()
        .map(|wheel| Distribution {
            name: wheel.name.clone(),
            version: wheel.version.clone(),
            wheel: wheel.id.clone(),
            modules: wheel.modules.clone(),
        })
        .collect();
    all.sort();
    all
}
