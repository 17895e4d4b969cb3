//! Branches: read-only parts that a tree gets after it was built.
//!
//! ```text
//!   the tree of a reference machine      a clone's
//!   /var/task     empty                  /var/task     its function's code
//!   /opt/python   what it imported from  /opt/python   its function's own packages
//! ```
//! The numbers of a branch's nodes begin where no other's are, so whatever was open before stays what it was.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

use super::builder::TreeBuilder;
use super::layer::LayerError;
use super::node::NodeId;
use super::sealed::Sealed;
use super::tree::{MOST_NODES, ROOT, Tree};

/// A read-only part of a tree that is put into it late, in the place of an empty directory.
#[derive(Debug)]
pub struct Branch {
    number: u8,
    sealed: Sealed,
}

impl Branch {
    /// Branches of a tree at most.
    pub const MOST: u8 = 8;

    /// Reads an open directory. `number`, from 1 to [`Branch::MOST`], says which of a tree's branches it can be.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(number: u8, directory: OwnedFd) -> Result<Self, LayerError> {
        let number = number.clamp(1, Self::MOST);
        let builder = TreeBuilder::numbered(u32::from(number) * MOST_NODES);
        let (nodes, layers) = builder.layer_of("/", directory)?.into_sealed();
        Ok(Self { number, sealed: Sealed::new(nodes, layers) })
    }

    fn top(&self) -> NodeId {
        NodeId(u32::from(self.number) * MOST_NODES)
    }
}

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
        match (id.0 / MOST_NODES) as usize {
            0 => Some(&self.sealed),
            number => self.branches.get(number)?.as_ref().map(|(_, branch)| &branch.sealed),
        }
    }
}
