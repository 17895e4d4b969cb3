//! The one `uv` of a worker: found, or fetched, when it is first needed.

use std::sync::{Arc, Mutex, PoisonError};

use layers::Store;
use layers::uv::{Uv, UvError};

use crate::progress::Progress;

/// Where `uv` is, once that is known.
#[derive(Debug)]
pub struct Installer {
    store: Store,
    known: Mutex<Option<Arc<Uv>>>,
}

impl Installer {
    /// Nothing is looked for yet.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store, known: Mutex::new(None) }
    }

    /// The installer; fetched when this machine has none.
    ///
    /// # Errors
    /// When there is none and it cannot be fetched.
    pub fn uv(&self, progress: &dyn Progress) -> Result<Arc<Uv>, UvError> {
        // Held while it is fetched: whoever comes second waits for the same download.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(uv) = &*known {
            return Ok(Arc::clone(uv));
        }
        let uv = Arc::new(Uv::find_or_fetch(&self.store, progress)?);
        *known = Some(Arc::clone(&uv));
        Ok(uv)
    }
}
