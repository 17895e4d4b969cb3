//! Zygotes that are there, and what they are for.

use std::sync::atomic::{AtomicU64, Ordering};

use sandbox::{Layer, Network, PythonSpec, Zygote};

use crate::call::Handler;

/// What a zygote is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) python: PythonSpec,
    pub(super) network: Network,
    /// None: the root.
    pub(super) packages: Option<Layer>,
}

/// A zygote in the cache.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(super) key: Key,
    pub(crate) zygote: Box<dyn Zygote>,
    pub(super) used: AtomicU64,
    pub(super) forks: AtomicU64,
    pub(super) bytes: AtomicU64,
}

impl Kept {
    /// Counts a fork.
    pub(crate) fn forked(&self) {
        self.forks.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn root(&self) -> bool {
        self.key.packages.is_none()
    }
}

pub(super) fn root_of(handler: &Handler) -> Key {
    Key { python: handler.python.clone(), network: handler.network, packages: None }
}

/// The zygote of the handler's own package set; none when that would have imported nothing that the root has not.
pub(super) fn own_of(handler: &Handler) -> Option<Key> {
    let packages = handler.packages.clone().filter(|_| !handler.imports.is_empty())?;
    Some(Key { packages: Some(packages), ..root_of(handler) })
}
