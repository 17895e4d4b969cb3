//! Memory that a zygote shares with those derived from it, and that outlives it with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
pub(super) struct Pages {
    bytes: u64,
    /// Its zygote is gone.
    orphaned: AtomicBool,
    parent: Option<Arc<Pages>>,
}

impl Pages {
    pub(super) fn new(bytes: u64, parent: Option<&Arc<Self>>) -> Arc<Self> {
        Arc::new(Self { bytes, orphaned: AtomicBool::new(false), parent: parent.cloned() })
    }

    pub(super) fn orphan(&self) {
        self.orphaned.store(true, Ordering::Relaxed);
    }

    /// Its own bytes, and its share of what ancestors left behind.
    pub(super) fn charged(&self) -> u64 {
        let mut bytes = self.bytes;
        let mut above = self.parent.as_ref();
        while let Some(pages) = above.filter(|pages| pages.orphaned.load(Ordering::Relaxed)) {
            bytes += pages.bytes / Arc::strong_count(pages) as u64;
            above = pages.parent.as_ref();
        }
        bytes
    }
}
