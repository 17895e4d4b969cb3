//! Functions and the records of their versions.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::SystemTime;

use function::{AliasName, BundleDigest, VersionId, VersionRecord, WholeName};

use crate::{Layers, StoreError};

/// Versions of one function that a store keeps at most: the newest. The current version and the
/// published ones are kept beside them.
pub const MAX_VERSIONS: u32 = 20;

/// One immutable version of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    /// The hash of its record.
    pub id: VersionId,
    /// What it is made from.
    pub record: VersionRecord,
    /// When it was first deployed, to the millisecond.
    pub created: SystemTime,
    /// Settings without effect in its files, one sentence each.
    pub warnings: Vec<String>,
}

/// A function with its current version.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionRow {
    /// The current version.
    pub current: Arc<Version>,
    /// When a version was last made current, to the millisecond.
    pub updated: SystemTime,
}

/// A version in a function's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastVersion {
    /// The hash of its record.
    pub id: VersionId,
    /// When it was first deployed, to the millisecond.
    pub created: SystemTime,
}

/// A version under a number that never means another one.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedVersion {
    /// 1 for the function's first.
    pub number: u32,
    /// The version under that number.
    pub version: Arc<Version>,
    /// When it was published, to the millisecond.
    pub published: SystemTime,
    /// What its author says of it.
    pub description: String,
}

/// A name for a version, which can be pointed at another one.
#[derive(Clone, Debug, PartialEq)]
pub struct AliasRow {
    /// The alias's own name.
    pub name: AliasName,
    /// The number of the published version that it points to; none: the current one, whichever that is.
    pub number: Option<u32>,
    /// A second version, and the share of the calls that it gets: above 0, at most 1.
    pub canary: Option<(u32, f64)>,
    /// When it was last pointed somewhere, to the millisecond.
    pub updated: SystemTime,
    /// What its author says of it.
    pub description: String,
}

/// What an API keeps beside a function, such as its tags: a text that the store does not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentRow {
    /// What it is: `tags`.
    pub kind: String,
    /// What of the function it belongs to, such as an alias; empty for the function itself.
    pub key: String,
    /// The text, JSON as a rule.
    pub text: String,
}

/// Keeps functions, and the layers that they share. The record of the current version says which function a row is of.
pub trait Functions: Layers + Send + Debug {
    /// Adds the row's version, or finds it there, and makes it the function's current one. A version
    /// that is there keeps the time of its first deploy and gets the row's warnings. More than
    /// [`MAX_VERSIONS`] versions of the function: the oldest go, never the current one, the one that
    /// was current before, or a published one.
    ///
    /// # Errors
    /// When the row cannot be written.
    fn put(&mut self, function: &FunctionRow) -> Result<(), StoreError>;

    /// Removes a function with all its versions, aliases and attachments. Returns whether it was there. Numbers of
    /// its published versions are not used again if it comes back.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn remove(&mut self, name: &WholeName) -> Result<bool, StoreError>;

    /// All functions, by tenant and name.
    ///
    /// # Errors
    /// When the store, or a record in it, cannot be read.
    fn list(&self) -> Result<Vec<FunctionRow>, StoreError>;

    /// A function's versions, the last deployed first. None of a function that is not there.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn history(&self, name: &WholeName) -> Result<Vec<PastVersion>, StoreError>;

    /// One version of a function, whether or not it is current. None: it is not kept.
    ///
    /// # Errors
    /// When the store, or the record in it, cannot be read.
    fn version(&self, name: &WholeName, id: &VersionId) -> Result<Option<Version>, StoreError>;

    /// The digests of the bundles of all kept versions, their layers' included, and of all kept layers.
    ///
    /// # Errors
    /// When the store, or a record in it, cannot be read.
    fn bundles(&self) -> Result<BTreeSet<BundleDigest>, StoreError>;

    /// Gives a function's current version the next number; where its newest number already means
    /// that version, returns that one as it is. None: there is no such function.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn publish(
        &mut self,
        name: &WholeName,
        published: SystemTime,
        description: &str,
    ) -> Result<Option<PublishedVersion>, StoreError>;

    /// Takes a number back from its version. Returns whether it had one.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn unpublish(&mut self, name: &WholeName, number: u32) -> Result<bool, StoreError>;

    /// All published versions, by tenant, name and number.
    ///
    /// # Errors
    /// When the store, or a record in it, cannot be read.
    fn published(&self) -> Result<Vec<PublishedVersion>, StoreError>;

    /// Adds an alias of a function, or replaces it.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn put_alias(&mut self, name: &WholeName, alias: &AliasRow) -> Result<(), StoreError>;

    /// Removes an alias. Returns whether it was there.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn remove_alias(&mut self, name: &WholeName, alias: &AliasName) -> Result<bool, StoreError>;

    /// All aliases with their functions, by tenant, name and alias.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn aliases(&self) -> Result<Vec<(WholeName, AliasRow)>, StoreError>;

    /// Adds an attachment of a function, or replaces it.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn attach(&mut self, name: &WholeName, attachment: &AttachmentRow) -> Result<(), StoreError>;

    /// Removes an attachment. Returns whether it was there.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn detach(&mut self, name: &WholeName, kind: &str, key: &str) -> Result<bool, StoreError>;

    /// All attachments with their functions, by tenant, name, kind and key.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn attachments(&self) -> Result<Vec<(WholeName, AttachmentRow)>, StoreError>;
}
