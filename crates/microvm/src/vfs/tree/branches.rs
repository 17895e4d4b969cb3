//! Attaching branches to a tree, and finding the branch that a node belongs to.

use std::sync::Arc;

use rustix::io::Errno;

use super::super::branch::Branch;
use super::super::node::{MAX_NODES, NodeId, ROOT};
use super::super::sealed::ReadOnlyPart;
use super::Tree;

impl Tree {
    /// Covers the directory at an absolute path by a branch, whatever the directory holds. A branch
    /// with a higher number hides one with a lower number.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR; EBUSY when the tree has a branch of this number.
    pub fn attach(&mut self, at: &str, branch: Arc<Branch>) -> Result<(), Errno> {
        let node = self.find(ROOT, at.as_bytes(), true)?.node.ok_or(Errno::NOENT)?;
        let node = self.uncovered(node);
        self.entries(node)?;
        let index = usize::from(branch.number);
        if self.branches.len() <= index {
            self.branches.resize(index + 1, None);
        }
        match &mut self.branches[index] {
            Some(_) => Err(Errno::BUSY),
            free => {
                *free = Some((node, branch));
                Ok(())
            }
        }
    }

    /// The root of the branch that covers a directory, or the directory.
    pub(super) fn covered(&self, id: NodeId) -> NodeId {
        let branches = self.branches.iter().rev().flatten();
        branches.into_iter().find(|(at, _)| *at == id).map_or(id, |(_, branch)| branch.top())
    }

    /// The directory that a branch covers, if this is the branch's root; else the node itself.
    pub(super) fn uncovered(&self, id: NodeId) -> NodeId {
        let branches = self.branches.iter().flatten();
        branches.into_iter().find(|(_, branch)| branch.top() == id).map_or(id, |(at, _)| *at)
    }

    /// The read-only part to which a node belongs: the tree's own, or a branch's.
    pub(super) fn part(&self, id: NodeId) -> Option<&ReadOnlyPart> {
        match (id.0 / MAX_NODES) as usize {
            0 => Some(&self.sealed),
            number => self.branches.get(number)?.as_ref().map(|(_, branch)| &branch.sealed),
        }
    }
}
