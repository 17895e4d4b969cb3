//! Directories that unfinished zygotes import from: they must not be removed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandbox::Layer;

/// All claims of one cache.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<Vec<Layer>>);

/// Protects a directory until its zygote is in the cache, or was given up.
#[derive(Debug)]
pub(crate) struct Claim {
    claims: Arc<Claims>,
    layer: Layer,
}

impl Claims {
    pub(crate) fn claim(self: &Arc<Self>, layer: Layer) -> Claim {
        self.all().push(layer.clone());
        Claim { claims: Arc::clone(self), layer }
    }

    pub(crate) fn layers(&self) -> BTreeSet<Layer> {
        self.all().iter().cloned().collect()
    }

    fn all(&self) -> MutexGuard<'_, Vec<Layer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut all = self.claims.all();
        if let Some(at) = all.iter().position(|layer| *layer == self.layer) {
            all.swap_remove(at);
        }
    }
}
