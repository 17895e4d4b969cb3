//! The read-only part of a tree, which all guests share.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::layer::Layer;
use super::node::{Node, NodeId};

/// Nodes that cannot be written, and the layers that they come from.
#[derive(Debug)]
pub(super) struct ReadOnlyPart {
    pub(super) nodes: Vec<Node>,
    layers: Vec<Layer>,
    /// Files that a guest has open: all guests share one descriptor of the host's.
    opened: Mutex<HashMap<NodeId, Weak<File>>>,
}

impl ReadOnlyPart {
    /// Entries that are kept, including those of closed files.
    const MAX_STALE: usize = 1024;

    pub(super) fn new(nodes: Vec<Node>, layers: Vec<Layer>) -> Self {
        Self { nodes, layers, opened: Mutex::default() }
    }

    /// Opens a file of a layer, or shares the descriptor of one that is open.
    pub(super) fn open(&self, id: NodeId, layer: usize, path: &Path) -> io::Result<Arc<File>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = opened.get(&id).and_then(Weak::upgrade) {
            return Ok(file);
        }
        let layer = self.layers.get(layer).ok_or(io::ErrorKind::NotFound)?;
        let file = Arc::new(layer.file(path)?);
        if opened.len() >= Self::MAX_STALE {
            opened.retain(|_, file| file.strong_count() > 0);
        }
        opened.insert(id, Arc::downgrade(&file));
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Tree, TreeBuilder};
    use super::*;

    #[test]
    fn opening_an_open_file_shares_the_hosts_descriptor() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a"), "a").unwrap();
        let tree = TreeBuilder::default().layer("/", directory.path()).unwrap().build(0, 0);
        let other = tree.clone();
        let node = tree.existing(Tree::ROOT, b"/a", true).unwrap();
        let file = tree.open(node).unwrap().unwrap();
        assert!(Arc::ptr_eq(&file, &other.open(node).unwrap().unwrap()));
        let before = Arc::downgrade(&file);
        drop(file);
        assert_eq!(before.strong_count(), 0, "only the open file keeps it");
        drop(tree.open(node).unwrap().unwrap());
    }
}
