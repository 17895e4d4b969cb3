//! Branches: read-only parts that a tree gets after it was built. A clone attaches its function's
//! code and packages to the tree of its reference machine.
//!
//! ```text
//!   the tree of a reference machine      a clone's
//!   /var/task     empty                  /var/task     its function's code
//!   /opt/python   what it imported from  /opt/python   its function's own packages
//! ```
//! Nodes of a branch have numbers that no other part of the tree uses, so an open file keeps its
//! number.

use super::node::{MAX_NODES, NodeId};
use super::sealed::ReadOnlyPart;

/// A read-only part of a tree that is put into it late, in the place of an empty directory.
#[derive(Debug)]
pub struct Branch {
    pub(super) number: u8,
    pub(super) sealed: ReadOnlyPart,
}

impl Branch {
    /// Branches that a tree can have.
    pub const MAX: u8 = 8;

    pub(super) fn top(&self) -> NodeId {
        NodeId(u32::from(self.number) * MAX_NODES)
    }
}
