//! The one `uv` of a worker: found, or fetched, when it is first needed.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use layers::{Patience, Store};
use packages::indexes::Indexes;
use packages::installer::{self, Bounds};
use packages::uv::{Uv, UvError};

use crate::deploy::builder::BuildSandboxes;
use crate::deploy::progress::Progress;

/// Where `uv` is, once that is known.
#[derive(Debug)]
pub struct Installer {
    store: Store,
    builds: Option<Arc<BuildSandboxes>>,
    bounds: Bounds,
    indexes: Indexes,
    known: OnceLock<installer::Installer>,
    finding: Mutex<()>,
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
        Self { store, builds, bounds, indexes, known: OnceLock::new(), finding: Mutex::default() }
    }

    /// How large a package may be.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// The installer, which is waited for no longer than that; fetched when this machine has none.
    ///
    /// # Errors
    /// When there is none and it cannot be fetched.
    pub fn get(
        &self,
        patience: &Arc<Patience>,
        progress: &dyn Progress,
    ) -> Result<installer::Installer, UvError> {
        if let Some(known) = self.known.get() {
            return Ok(known.clone().waiting(Arc::clone(patience)));
        }
        // Held while it is fetched: a second deploy waits for the same download.
        let _finding = self.finding.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = self.known.get() {
            return Ok(known.clone().waiting(Arc::clone(patience)));
        }
        let found = installer::Installer::new(Uv::find_or_fetch(&self.store, patience, progress)?);
        let found = found.bounded(self.bounds).allowing(self.indexes.clone());
        let found = match &self.builds {
            Some(builds) => found.building_in(Arc::clone(builds) as _),
            None => found,
        };
        Ok(self.known.get_or_init(|| found).clone().waiting(Arc::clone(patience)))
    }

    /// See [`installer::Installer::take_mended`]. It never waits: deploys without packages ask it, too, and need no
    /// installer.
    pub fn take_mended(&self) -> bool {
        self.known.get().is_some_and(installer::Installer::take_mended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_needs_no_packages_does_not_wait_while_the_installer_is_looked_for() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::open(root.path()).unwrap();
        let indexes = Indexes::new(Vec::new(), Vec::new(), |_| None).unwrap();
        let installer = Arc::new(Installer::new(store, None, Bounds::default(), indexes));
        let _looked_for = installer.finding.lock().unwrap();
        let (asked, asks) = (std::sync::mpsc::channel(), Arc::clone(&installer));
        std::thread::spawn(move || asked.0.send(asks.take_mended()));
        let answer = asked.1.recv_timeout(std::time::Duration::from_secs(60));
        assert_eq!(answer, Ok(false), "it waits");
    }
}
