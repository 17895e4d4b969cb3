//! Attaching branches to a tree, and finding the branch that a node belongs to.

use std::sync::Arc;

use rustix::io::Errno;

use super::super::branch::Branch;
use super::super::node::{MAX_NODES, NodeId, ROOT};
use super::super::sealed::Sealed;
use super::Tree;

impl Tree {
    /// Puts a branch in the place of the directory at an absolute path, whatever is in that. A later one, by number,
    /// hides an earlier one.
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

    /// The top of the branch that stands in a directory's place, if one does.
    pub(super) fn covered(&self, id: NodeId) -> NodeId {
        let branches = self.branches.iter().rev().flatten();
        branches.into_iter().find(|(at, _)| *at == id).map_or(id, |(_, branch)| branch.top())
    }

    /// The directory in whose place a branch stands, if this is the branch's top.
    pub(super) fn uncovered(&self, id: NodeId) -> NodeId {
        let branches = self.branches.iter().flatten();
        branches.into_iter().find(|(_, branch)| branch.top() == id).map_or(id, |(at, _)| *at)
    }

    /// What a node that cannot be written belongs to: the tree itself, or a branch.
    pub(super) fn part(&self, id: NodeId) -> Option<&Sealed> {
        match (id.0 / MAX_NODES) as usize {
            0 => Some(&self.sealed),
            number => self.branches.get(number)?.as_ref().map(|(_, branch)| &branch.sealed),
        }
    }
}
