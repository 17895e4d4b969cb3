//! The one `uv` of a worker: found, or fetched, when it is first needed.

use std::sync::{Arc, Mutex, PoisonError};

use layers::uv::{Bounds, Uv, UvError};
use layers::{Indexes, Patience, Store};

use crate::build::BuildSandboxes;
use crate::progress::Progress;

/// Where `uv` is, once that is known.
#[derive(Debug)]
pub struct Installer {
    store: Store,
    builds: Option<Arc<BuildSandboxes>>,
    bounds: Bounds,
    indexes: Indexes,
    known: Mutex<Option<Uv>>,
}

impl Installer {
    /// Nothing is looked for yet. What has no wheel is built in `builds`; without them it is refused. So is what is larger
    /// than `bounds`, and what comes from elsewhere than `indexes`.
    #[must_use]
    pub fn new(
        store: Store,
        builds: Option<Arc<BuildSandboxes>>,
        bounds: Bounds,
        indexes: Indexes,
    ) -> Self {
        Self { store, builds, bounds, indexes, known: Mutex::new(None) }
    }

    /// The installer, which is waited for no longer than that; fetched when this machine has none.
    ///
    /// # Errors
    /// When there is none and it cannot be fetched.
    pub fn uv(&self, patience: &Arc<Patience>, progress: &dyn Progress) -> Result<Uv, UvError> {
        // Held while it is fetched: whoever comes second waits for the same download.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(uv) = &*known {
            return Ok(uv.clone().waiting(Arc::clone(patience)));
        }
        let uv = Uv::find_or_fetch(&self.store, patience, progress)?;
        let uv = uv.bounded(self.bounds).allowing(self.indexes.clone());
        let uv = match &self.builds {
            Some(builds) => uv.building_in(Arc::clone(builds) as _),
            None => uv,
        };
        Ok(known.insert(uv).clone().waiting(Arc::clone(patience)))
    }

    /// See [`Uv::take_mended`].
    pub fn take_mended(&self) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().is_some_and(Uv::take_mended)
    }
}
