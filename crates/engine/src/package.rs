//! Where the packages that handlers locked are laid out, and what is known of them from the start.

use std::fmt::Debug;
use std::sync::Arc;

use sandbox::{Layer, Pending, PythonSpec};

use crate::distribution::Distribution;
use crate::zygote_tree::ZygoteTree;

/// Read-only directories of package sets (the install cache).
pub trait PackageStore: Send + Sync + Debug {
    /// The layer that holds exactly `set`; made when it is not there (hard links: milliseconds).
    fn layer<'a>(&'a self, python: &'a PythonSpec, set: &'a [Distribution]) -> Pending<'a, Layer>;

    /// Bytes that the distribution has on disk, as SOCK's eviction weighs it; 0 where that is not
    /// known. Does not wait: it is asked on the path of calls.
    fn disk_bytes(&self, distribution: &Distribution) -> u64;
}

/// What the import cache knows of packages beyond the names of directories.
#[derive(Debug, Default)]
pub struct Packages {
    /// Lays out parts of locks; without it, every lock is one thing.
    pub store: Option<Arc<dyn PackageStore>>,
    /// Zygotes to make as soon as handlers come that they may serve.
    pub seed: Option<ZygoteTree>,
}
