//! The files of bundles, kept by their content.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io::{self, Read, Write};

use function::BundleDigest;

use crate::StoreError;

/// Writes an archive. Called once at most.
pub type Pack<'a> = &'a mut dyn FnMut(&mut dyn Write) -> io::Result<()>;

/// Keeps one archive for each digest. A store does not look into archives: who reads one compares
/// its files with the digest.
pub trait Bundles: Send + Sync + Debug {
    /// Keeps an archive, which `pack` writes if none of this digest is there.
    ///
    /// # Errors
    /// When it cannot be written, or `pack` fails.
    fn put(&self, digest: &BundleDigest, pack: Pack<'_>) -> Result<(), StoreError>;

    /// An archive, from its beginning; none: it is not there.
    ///
    /// # Errors
    /// When it cannot be read.
    fn get(&self, digest: &BundleDigest) -> Result<Option<Box<dyn Read + Send>>, StoreError>;

    /// Removes an archive, if it is there: one that does not have the files of its digest.
    ///
    /// # Errors
    /// When it cannot be removed.
    fn remove(&self, digest: &BundleDigest) -> Result<(), StoreError>;

    /// Removes all other archives, and what an interrupted [`Bundles::put`] left. No `put` may run
    /// meanwhile.
    ///
    /// # Errors
    /// When the store cannot be read, or an archive not be removed.
    fn retain(&self, digests: &BTreeSet<BundleDigest>) -> Result<(), StoreError>;
}
