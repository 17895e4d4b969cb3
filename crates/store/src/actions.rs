//! Lines of the audit log.

use std::fmt::Debug;

use crate::StoreError;

/// A line that is to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionRow {
    /// The group whose older lines make room for this one, such as a tenant.
    pub group: String,
    /// Whether something was done; what was refused makes room in a group of its own.
    pub done: bool,
    /// The action, as JSON.
    pub line: String,
}

/// Keeps lines in the order in which they come. Survives a kill of the process; a loss of power may
/// take the last lines.
pub trait Actions: Send + Debug {
    /// Adds a line. Of its group and outcome the last `keep` lines stay.
    ///
    /// # Errors
    /// When it cannot be written.
    fn append(&mut self, action: &ActionRow, keep: usize) -> Result<(), StoreError>;

    /// Waits until all lines are on the disk.
    ///
    /// # Errors
    /// When the disk fails.
    fn sync(&mut self) -> Result<(), StoreError>;

    /// The last lines of all groups, the oldest first; at most `most`.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn last(&self, most: usize) -> Result<Vec<String>, StoreError>;
}
