//! How many bytes of bodies there may be at a time, over all requests.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::ApiError;

/// Bytes that bodies may have together.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    left: Arc<Semaphore>,
    /// What a body counts as, however small.
    pub(super) least: u64,
    /// Which setting allows more.
    setting: &'static str,
}

/// What the bodies that come through one door may have: whoever fills one door's keeps nobody out of the other.
#[derive(Clone, Debug)]
pub struct Bodies {
    /// Those of calls, in memory.
    pub(super) run: Budget,
    /// Bundles that are being deployed, on disk.
    pub(super) deploy: Budget,
}

impl Bodies {
    /// So many bytes of calls, and of `most` bundles at once.
    pub(crate) fn new(run: u64, deploy: u64, most: usize) -> Self {
        let each = deploy / most.max(1) as u64;
        Self {
            run: Budget::new(run, 1, "run_bodies"),
            deploy: Budget::new(deploy, each, "deploy_bodies"),
        }
    }
}

/// What one body has of a budget; given back with the last clone.
#[derive(Clone, Debug)]
pub(super) struct Held {
    _taken: Option<Arc<OwnedSemaphorePermit>>,
}

impl Budget {
    /// A budget of `bytes`; each body counts as `least` or more. `setting` is named to who is told that it is used up.
    pub(crate) fn new(bytes: u64, least: u64, setting: &'static str) -> Self {
        let permits = usize::try_from(bytes).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { left: Arc::new(Semaphore::new(permits)), least: least.min(bytes), setting }
    }

    /// Takes that many bytes.
    ///
    /// # Errors
    /// When so many are not left: whoever sends them shall come back.
    pub(super) fn take(&self, bytes: u64) -> Result<OwnedSemaphorePermit, ApiError> {
        // No piece of a body is as long as that.
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Arc::clone(&self.left).try_acquire_many_owned(bytes).map_err(|_| {
            let message = format!(
                "the worker holds as many bytes of requests as it may: try again later, or raise `{}` in its configuration",
                self.setting
            );
            ApiError::busy(Duration::from_secs(1), message)
        })
    }
}

impl Held {
    pub(super) fn of(taken: Option<OwnedSemaphorePermit>) -> Self {
        Self { _taken: taken.map(Arc::new) }
    }
}
