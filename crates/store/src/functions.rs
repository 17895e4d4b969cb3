//! Functions and the records of their versions.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::SystemTime;

use function::{VersionId, VersionRecord, WholeName};

use crate::StoreError;

/// Versions of one function that a store keeps at most: the newest, and the current one.
pub const MAX_VERSIONS: u32 = 100;

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
    /// Made by `wool run`: not listed unless asked for, and removed when the worker starts again or
    /// when its tenant has no more room.
    pub hidden: bool,
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

/// Keeps functions. The record of the current version says which function a row is of.
pub trait Functions: Send + Debug {
    /// Adds the row's version, or finds it there, and makes it the function's current one. A version
    /// that is there keeps the time of its first deploy and gets the row's warnings. More than
    /// [`MAX_VERSIONS`] versions of the function: the oldest go, never the current one.
    ///
    /// # Errors
    /// When the row cannot be written.
    fn put(&mut self, function: &FunctionRow) -> Result<(), StoreError>;

    /// Removes a function with all its versions. Returns whether it was there.
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
}
