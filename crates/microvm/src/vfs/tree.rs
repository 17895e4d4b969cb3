//! The tree of names. It is built once; afterwards only scratch changes.

mod branches;
mod saved;
mod scratch;

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use rustix::io::Errno;

use super::branch::Branch;
use super::layer::Layer;
use super::node::{Contents, DirectoryEntry, MAX_NODES, Node, NodeId, ROOT, SCRATCH, Times};
use super::sealed::ReadOnlyPart;
pub(crate) use saved::SavedScratch;

/// The right to read a node: see [`Tree::permit`].
pub const READ: u32 = 4;
/// The right to write to a node; with [`SEARCH`], to add and remove names of a directory.
pub const WRITE: u32 = 2;
/// The right to look up names of a directory, or to execute a file.
pub const SEARCH: u32 = 1;

/// Places in listings from here on belong to names that a guest made, behind all names that the
/// tree was built with.
const FIRST_PLACE: u64 = 1 << 32;
const MAX_LINKS: usize = 40;
const PATH_MAX: usize = 4096;
const NAME_MAX: usize = 255;

/// The files of one guest. Cloning copies its scratch and shares the rest.
#[derive(Clone, Debug)]
pub struct Tree {
    sealed: Arc<ReadOnlyPart>,
    /// By number, from 1 on: the directory that the branch covers, and the branch.
    branches: Vec<Option<(NodeId, Arc<Branch>)>>,
    scratch: Vec<Option<Node>>,
    pub(crate) room: Room,
    /// Bytes of scratch in use: contents, targets of links, and names.
    used: u64,
    /// Names of scratch nodes beyond each node's first.
    further_names: u32,
    /// The place that the next name gets: see [`DirectoryEntry`].
    places: u64,
}

/// Limits of scratch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    bytes: u64,
    nodes: u32,
    /// Bytes that memory may take while no file does, and those that it has taken.
    shared: u64,
    lent: u64,
}

/// The result of looking up a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The directory that holds the last name.
    pub directory: NodeId,
    /// The last name; empty when the path names the directory itself.
    pub name: Vec<u8>,
    /// The node of that name, if it exists.
    pub node: Option<NodeId>,
    /// Whether the path, or the link at its end, ends with a slash.
    pub slash: bool,
}

impl Tree {
    pub(super) fn new(
        nodes: Vec<Node>,
        layers: Vec<Layer>,
        scratch: Vec<Node>,
        (bytes, most): (u64, u32),
    ) -> Self {
        let sealed = Arc::new(ReadOnlyPart::new(nodes, layers));
        let scratch = scratch.into_iter().map(Some).collect();
        Self {
            sealed,
            branches: Vec::new(),
            scratch,
            room: Room { bytes, nodes: most, shared: 0, lent: 0 },
            used: 0,
            further_names: 0,
            places: FIRST_PLACE,
        }
    }

    /// The root of the tree.
    pub const ROOT: NodeId = ROOT;

    /// Looks a path up. The last name is followed through links if `follow`.
    ///
    /// # Errors
    /// Those of path resolution: ENOENT for a missing directory, ENOTDIR, EACCES, ELOOP,
    /// ENAMETOOLONG.
    pub fn find(&self, from: NodeId, path: &[u8], follow: bool) -> Result<Lookup, Errno> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        if path.len() >= PATH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        // Names still to be walked, the next one last.
        let mut rest: Vec<Vec<u8>> = Vec::new();
        let push = |rest: &mut Vec<Vec<u8>>, path: &[u8]| {
            let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
            rest.extend(names.rev().map(<[u8]>::to_vec));
        };
        let mut at = if path[0] == b'/' { ROOT } else { from };
        let mut must_be_directory = path.ends_with(b"/");
        push(&mut rest, path);
        let mut links = 0;
        while let Some(name) = rest.pop() {
            let entries = self.entries(at)?;
            self.permit(at, SEARCH)?;
            if name.len() > NAME_MAX {
                return Err(Errno::NAMETOOLONG);
            }
            let last = rest.is_empty();
            let node = match name.as_slice() {
                b"." => Some(at),
                b".." => Some(self.parent(at)),
                name => entries.get(name).map(|it| self.covered(it.node)),
            };
            let Some(node) = node else {
                return if last {
                    Ok(Lookup { directory: at, name, node: None, slash: must_be_directory })
                } else {
                    Err(Errno::NOENT)
                };
            };
            match self.contents(node) {
                Contents::Link(target) if !last || follow || must_be_directory => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::LOOP);
                    }
                    if target.first() == Some(&b'/') {
                        at = ROOT;
                    }
                    must_be_directory |= last && target.ends_with(b"/");
                    push(&mut rest, target);
                    if rest.is_empty() {
                        return Ok(Lookup {
                            directory: ROOT,
                            name: Vec::new(),
                            node: Some(ROOT),
                            slash: true,
                        });
                    }
                }
                Contents::Directory(_) | Contents::Descriptors if !last => at = node,
                _ if !last => return Err(Errno::NOTDIR),
                Contents::Directory(_) | Contents::Descriptors => {
                    return Ok(Lookup {
                        directory: at,
                        name,
                        node: Some(node),
                        slash: must_be_directory,
                    });
                }
                _ if must_be_directory => return Err(Errno::NOTDIR),
                _ => {
                    return Ok(Lookup {
                        directory: at,
                        name,
                        node: Some(node),
                        slash: must_be_directory,
                    });
                }
            }
        }
        Ok(Lookup { directory: at, name: Vec::new(), node: Some(at), slash: must_be_directory })
    }

    /// As [`Tree::find`], of a name that must exist.
    ///
    /// # Errors
    /// ENOENT besides.
    pub fn existing(&self, from: NodeId, path: &[u8], follow: bool) -> Result<NodeId, Errno> {
        self.find(from, path, follow)?.node.ok_or(Errno::NOENT)
    }

    /// The contents of a node.
    #[must_use]
    pub fn contents(&self, id: NodeId) -> &Contents {
        static NOTHING: Contents = Contents::Bytes(Vec::new());
        self.node(id).map_or(&NOTHING, |node| &node.contents)
    }

    /// A node's permission bits, its times, and whether it is scratch, which can be written.
    #[must_use]
    pub fn status(&self, id: NodeId) -> (u32, Times, bool) {
        self.node(id)
            .map_or((0, Times::default(), false), |node| (node.mode, node.times, id.0 >= SCRATCH))
    }

    /// Whether the owner of scratch may do this with a node: [`READ`], [`WRITE`] and [`SEARCH`].
    /// Every user may read layers and the monitor's own files; that they cannot be written is
    /// another error.
    ///
    /// # Errors
    /// EACCES.
    pub fn permit(&self, id: NodeId, wanted: u32) -> Result<(), Errno> {
        let (bits, _, scratch) = self.status(id);
        if scratch && bits >> 6 & wanted != wanted { Err(Errno::ACCESS) } else { Ok(()) }
    }

    /// Number of names that lead to a node.
    #[must_use]
    pub fn links(&self, id: NodeId) -> u32 {
        self.node(id).map_or(0, |node| node.links)
    }

    /// The names of a directory.
    ///
    /// # Errors
    /// ENOTDIR.
    pub fn entries(&self, id: NodeId) -> Result<&BTreeMap<Vec<u8>, DirectoryEntry>, Errno> {
        static NONE: BTreeMap<Vec<u8>, DirectoryEntry> = BTreeMap::new();
        match self.contents(id) {
            Contents::Directory(entries) => Ok(entries),
            // Its names are the process's descriptors, which the tree does not know.
            Contents::Descriptors => Ok(&NONE),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// The parent of a directory.
    #[must_use]
    pub fn parent(&self, id: NodeId) -> NodeId {
        self.node(self.uncovered(id)).map_or(ROOT, |node| node.parent)
    }

    /// A node's absolute path, as long as it has a name.
    #[must_use]
    pub fn path(&self, id: NodeId) -> Vec<u8> {
        self.path_of_at_most(id, usize::MAX).unwrap_or_default()
    }

    /// As [`Tree::path`]; none if the path is longer than `most` bytes.
    #[must_use]
    pub fn path_of_at_most(&self, mut id: NodeId, most: usize) -> Option<Vec<u8>> {
        let (mut names, mut length) = (Vec::new(), 0);
        while id != ROOT {
            let parent = self.parent(id);
            let there = self.uncovered(id);
            let entries = self.entries(parent).ok();
            let name = entries.and_then(|all| all.iter().find(|(_, it)| it.node == there));
            let Some((name, _)) = name else { break };
            length += name.len() + 1;
            if length > most {
                return None;
            }
            names.push(name);
            id = parent;
        }
        let mut path = Vec::new();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        Some(if path.is_empty() { b"/".to_vec() } else { path })
    }

    /// Opens a file of a layer. Openings of the same file share one descriptor.
    ///
    /// # Errors
    /// EIO when the host no longer has the file.
    pub fn open(&self, id: NodeId) -> Result<Option<Arc<File>>, Errno> {
        let Contents::Sealed { layer, path, .. } = self.contents(id) else { return Ok(None) };
        let part = self.part(id).ok_or(Errno::IO)?;
        part.open(id, *layer, path).map(Some).map_err(|error| {
            tracing::warn!(%error, path = %path.display(), "a file of a layer is gone from the host");
            Errno::IO
        })
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        match scratch_index(id) {
            Some(index) => self.scratch.get(index)?.as_ref(),
            None => self.part(id)?.nodes.get((id.0 & (MAX_NODES - 1)) as usize),
        }
    }
}

fn scratch_index(id: NodeId) -> Option<usize> {
    id.0.checked_sub(SCRATCH).map(|index| index as usize)
}
