//! Builds a tree from layers of the host's and files of the monitor's own.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::branch::Branch;
use super::layer::{Layer, LayerEntry, LayerEntryKind, LayerError};
use super::node::{
    Contents, Device, DirectoryEntry, GeneratedFile, MAX_NODES, Node, NodeId, ROOT, SCRATCH, Times,
};
use super::sealed::ReadOnlyPart;
use super::tree::Tree;

/// A tree, or a branch of one, that is being built.
#[derive(Debug)]
pub struct TreeBuilder {
    /// The number of the first node, which is the root.
    first: u32,
    nodes: Vec<Node>,
    layers: Vec<Layer>,
    scratch: Vec<Node>,
}

impl Default for TreeBuilder {
    fn default() -> Self {
        Self::numbered(ROOT.0)
    }
}

fn directory(parent: NodeId, mode: u32) -> Node {
    let contents = Contents::Directory(BTreeMap::new());
    Node { contents, parent, mode, times: Times::default(), links: 1 }
}

impl TreeBuilder {
    pub(super) fn numbered(first: u32) -> Self {
        let root = directory(NodeId(first), 0o755);
        Self { first, nodes: vec![root], layers: Vec::new(), scratch: Vec::new() }
    }

    /// Puts a read-only layer at an absolute path.
    ///
    /// # Errors
    /// When the host's directory cannot be read.
    pub fn layer(self, at: &str, host: &Path) -> Result<Self, LayerError> {
        Ok(self.add_layer(at, Layer::open(host)?))
    }

    /// As [`TreeBuilder::layer`], of an open directory, when the host's path is out of sight.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn layer_of(self, at: &str, directory: OwnedFd) -> Result<Self, LayerError> {
        Ok(self.add_layer(at, Layer::index(directory)?))
    }

    fn add_layer(mut self, at: &str, (layer, entries): (Layer, Vec<LayerEntry>)) -> Self {
        let number = self.layers.len();
        self.layers.push(layer);
        let top = self.make_directories(at.as_bytes());
        for entry in entries {
            let path = entry.path.as_os_str().as_bytes();
            let (before, name) = match path.iter().rposition(|byte| *byte == b'/') {
                Some(slash) => (&path[..slash], &path[slash + 1..]),
                None => (&path[..0], path),
            };
            let parent = self.descend(top, before);
            let contents = match entry.what {
                LayerEntryKind::Directory => {
                    self.child(parent, name, entry.mode);
                    continue;
                }
                LayerEntryKind::File(size) => {
                    Contents::Sealed { layer: number, path: entry.path.clone(), size }
                }
                LayerEntryKind::Link(target) => Contents::Link(target),
            };
            let (mode, times) = (entry.mode, Times::of(entry.modified));
            self.add(parent, name, Node { contents, parent, mode, times, links: 1 });
        }
        self
    }

    /// Puts an empty writable directory at an absolute path.
    #[must_use]
    pub fn scratch(mut self, at: &str) -> Self {
        let (before, name) = at.trim_end_matches('/').rsplit_once('/').unwrap_or(("", at));
        let parent = self.make_directories(before.as_bytes());
        let id = NodeId(SCRATCH + self.scratch.len().try_into().unwrap_or(0));
        self.scratch.push(directory(parent, 0o700));
        self.link(parent, name.as_bytes(), id);
        self
    }

    /// Puts a read-only file with this text at an absolute path.
    #[must_use]
    pub fn text(self, at: &str, text: impl Into<Vec<u8>>) -> Self {
        self.single(at, Contents::Bytes(text.into()), 0o444)
    }

    /// Puts a symbolic link at an absolute path.
    #[must_use]
    pub fn symlink(self, at: &str, target: &str) -> Self {
        self.single(at, Contents::Link(target.into()), 0o777)
    }

    /// Puts the devices into `/dev`.
    #[must_use]
    pub fn devices(self) -> Self {
        let devices = [
            ("/dev/null", Device::Null),
            ("/dev/zero", Device::Zero),
            ("/dev/full", Device::Full),
            ("/dev/random", Device::Random),
            ("/dev/urandom", Device::Random),
        ];
        let add = |tree: Self, (at, device)| tree.single(at, Contents::Device(device), 0o666);
        devices.into_iter().fold(self, add)
    }

    /// Puts a file at an absolute path whose text is made at each reading.
    pub(super) fn generated(self, at: &str, file: GeneratedFile) -> Self {
        self.single(at, Contents::Generated(file), 0o444)
    }

    /// Puts the directory of the process's descriptors at an absolute path.
    pub(super) fn descriptors(self, at: &str) -> Self {
        self.single(at, Contents::Descriptors, 0o500)
    }

    fn single(mut self, at: &str, contents: Contents, mode: u32) -> Self {
        let (before, name) = at.rsplit_once('/').unwrap_or(("", at));
        let parent = self.make_directories(before.as_bytes());
        self.add(
            parent,
            name.as_bytes(),
            Node { contents, parent, mode, times: Times::default(), links: 1 },
        );
        self
    }

    /// The finished tree. Its scratch directories share this room.
    #[must_use]
    pub fn build(self, scratch_bytes: u64, scratch_nodes: u32) -> Tree {
        Tree::new(self.nodes, self.layers, self.scratch, (scratch_bytes, scratch_nodes))
    }

    fn make_directories(&mut self, path: &[u8]) -> NodeId {
        self.descend(NodeId(self.first), path)
    }

    fn descend(&mut self, from: NodeId, path: &[u8]) -> NodeId {
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        names.fold(from, |at, name| self.child(at, name, 0o755))
    }

    /// The directory of this name, which is made if it does not exist.
    fn child(&mut self, parent: NodeId, name: &[u8], mode: u32) -> NodeId {
        if let Some(Contents::Directory(entries)) = self.contents(parent)
            && let Some(DirectoryEntry { node, .. }) = entries.get(name)
            && matches!(self.contents(*node), Some(Contents::Directory(_)))
        {
            return *node;
        }
        self.add(parent, name, directory(parent, mode))
    }

    fn contents(&self, id: NodeId) -> Option<&Contents> {
        let index = id.0.checked_sub(self.first)?;
        self.nodes.get(index as usize).map(|node| &node.contents)
    }

    fn add(&mut self, parent: NodeId, name: &[u8], node: Node) -> NodeId {
        let index = u32::try_from(self.nodes.len()).unwrap_or(MAX_NODES).min(MAX_NODES - 1);
        let id = NodeId(self.first + index);
        self.nodes.push(node);
        self.link(parent, name, id);
        id
    }

    fn link(&mut self, parent: NodeId, name: &[u8], id: NodeId) {
        let index = parent.0.saturating_sub(self.first) as usize;
        if let Some(Contents::Directory(entries)) =
            self.nodes.get_mut(index).map(|node| &mut node.contents)
        {
            entries.insert(name.to_vec(), DirectoryEntry::built(id));
        }
    }
}

impl Branch {
    /// Reads an open directory. `number`, from 1 to [`Branch::MAX`], says which of a tree's
    /// branches it can be.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn read(number: u8, directory: OwnedFd) -> Result<Self, LayerError> {
        let number = number.clamp(1, Self::MAX);
        let builder = TreeBuilder::numbered(u32::from(number) * MAX_NODES);
        let TreeBuilder { nodes, layers, .. } = builder.layer_of("/", directory)?;
        Ok(Self { number, sealed: ReadOnlyPart::new(nodes, layers) })
    }
}
