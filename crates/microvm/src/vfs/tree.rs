//! The tree of names: built once, then looked up; only scratch changes.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use rustix::io::Errno;

use super::branch::Branch;
use super::layer::Layer;
use super::node::{Contents, Node, NodeId};
use super::sealed::Sealed;

pub(super) const ROOT: NodeId = NodeId(0);
/// Nodes from here on are scratch; those before are the same for all machines of a tree.
pub(super) const SCRATCH: u32 = 1 << 31;
/// Nodes of a tree, or of a branch, at most: the bits above say which branch.
pub(super) const MOST_NODES: u32 = 1 << 24;
const MOST_LINKS: usize = 40;
const PATH_MAX: usize = 4096;
const NAME_MAX: usize = 255;
/// Bytes that a name takes in its directory beyond its own.
const NAME_BYTES: usize = size_of::<(Vec<u8>, NodeId)>();

/// The files of one guest. Cloning copies its scratch and shares the rest.
#[derive(Clone, Debug)]
pub struct Tree {
    pub(super) sealed: Arc<Sealed>,
    /// By number, from 1 on: the directory whose place the branch takes, and the branch.
    pub(super) branches: Vec<Option<(NodeId, Arc<Branch>)>>,
    scratch: Vec<Option<Node>>,
    room: Room,
    /// Bytes of scratch that are taken: contents, targets of links, and names.
    used: u64,
}

/// How much scratch there may be.
#[derive(Clone, Copy, Debug)]
struct Room {
    bytes: u64,
    nodes: u32,
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The directory that holds the last name.
    pub directory: NodeId,
    /// The last name; empty when the path names the directory itself.
    pub name: Vec<u8>,
    /// What it stands for, if there is such a name.
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
        let sealed = Arc::new(Sealed::new(nodes, layers));
        let scratch = scratch.into_iter().map(Some).collect();
        Self { sealed, branches: Vec::new(), scratch, room: Room { bytes, nodes: most }, used: 0 }
    }

    /// Says how much there may be in the scratch directories together: bytes of contents, links and names, and nodes.
    pub fn set_room(&mut self, bytes: u64, nodes: u32) {
        self.room = Room { bytes, nodes };
    }

    /// How much there may be: bytes, and nodes.
    #[must_use]
    pub fn room(&self) -> (u64, u32) {
        (self.room.bytes, self.room.nodes)
    }

    /// The top of the tree.
    pub const ROOT: NodeId = ROOT;

    /// Looks a path up. The last name is followed through links if `follow`.
    ///
    /// # Errors
    /// Those of path resolution: ENOENT for a directory that is not there, ENOTDIR, ELOOP, ENAMETOOLONG.
    pub fn find(&self, from: NodeId, path: &[u8], follow: bool) -> Result<Found, Errno> {
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
            if name.len() > NAME_MAX {
                return Err(Errno::NAMETOOLONG);
            }
            let entries = self.entries(at)?;
            let last = rest.is_empty();
            let node = match name.as_slice() {
                b"." => Some(at),
                b".." => Some(self.parent(at)),
                name => entries.get(name).map(|node| self.covered(*node)),
            };
            let Some(node) = node else {
                return if last {
                    Ok(Found { directory: at, name, node: None, slash: must_be_directory })
                } else {
                    Err(Errno::NOENT)
                };
            };
            match self.contents(node) {
                Contents::Link(target) if !last || follow || must_be_directory => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(Errno::LOOP);
                    }
                    if target.first() == Some(&b'/') {
                        at = ROOT;
                    }
                    must_be_directory |= last && target.ends_with(b"/");
                    push(&mut rest, target);
                    if rest.is_empty() {
                        return Ok(Found {
                            directory: ROOT,
                            name: Vec::new(),
                            node: Some(ROOT),
                            slash: true,
                        });
                    }
                }
                Contents::Directory(_) if !last => at = node,
                _ if !last => return Err(Errno::NOTDIR),
                Contents::Directory(_) => {
                    return Ok(Found {
                        directory: at,
                        name,
                        node: Some(node),
                        slash: must_be_directory,
                    });
                }
                _ if must_be_directory => return Err(Errno::NOTDIR),
                _ => {
                    return Ok(Found {
                        directory: at,
                        name,
                        node: Some(node),
                        slash: must_be_directory,
                    });
                }
            }
        }
        Ok(Found { directory: at, name: Vec::new(), node: Some(at), slash: must_be_directory })
    }

    /// As [`Tree::find`], of what must be there.
    ///
    /// # Errors
    /// ENOENT besides.
    pub fn existing(&self, from: NodeId, path: &[u8], follow: bool) -> Result<NodeId, Errno> {
        self.find(from, path, follow)?.node.ok_or(Errno::NOENT)
    }

    /// What a node holds.
    #[must_use]
    pub fn contents(&self, id: NodeId) -> &Contents {
        static NOTHING: Contents = Contents::Bytes(Vec::new());
        self.node(id).map_or(&NOTHING, |node| &node.contents)
    }

    /// A node's permission bits, seconds of its last change, and whether it can be written.
    #[must_use]
    pub fn status(&self, id: NodeId) -> (u32, i64, bool) {
        self.node(id).map_or((0, 0, false), |node| (node.mode, node.modified, id.0 >= SCRATCH))
    }

    /// What a directory holds.
    ///
    /// # Errors
    /// ENOTDIR.
    pub fn entries(&self, id: NodeId) -> Result<&BTreeMap<Vec<u8>, NodeId>, Errno> {
        match self.contents(id) {
            Contents::Directory(entries) => Ok(entries),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// The directory that a directory is in.
    #[must_use]
    pub fn parent(&self, id: NodeId) -> NodeId {
        self.node(self.uncovered(id)).map_or(ROOT, |node| node.parent)
    }

    /// A directory's absolute path.
    #[must_use]
    pub fn path(&self, mut id: NodeId) -> Vec<u8> {
        let mut names = Vec::new();
        while id != ROOT {
            let parent = self.parent(id);
            let there = self.uncovered(id);
            let entries = self.entries(parent).ok();
            let name = entries.and_then(|all| all.iter().find(|(_, node)| **node == there));
            let Some((name, _)) = name else { break };
            names.push(name.clone());
            id = parent;
        }
        let mut path = Vec::new();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() { b"/".to_vec() } else { path }
    }

    /// Opens a file of a layer; whoever opens the same one shares it.
    ///
    /// # Errors
    /// EIO when the host no longer has it.
    pub fn open(&self, id: NodeId) -> Result<Option<Arc<File>>, Errno> {
        let Contents::Sealed { layer, path, .. } = self.contents(id) else { return Ok(None) };
        let part = self.part(id).ok_or(Errno::IO)?;
        part.open(id, *layer, path).map(Some).map_err(|error| {
            tracing::warn!(%error, path = %path.display(), "a layer has lost a file");
            Errno::IO
        })
    }

    /// Makes a node in a scratch directory.
    ///
    /// # Errors
    /// EROFS elsewhere, ENOENT in a directory that was removed, EEXIST, ENOSPC.
    pub fn create(
        &mut self,
        directory: NodeId,
        name: &[u8],
        contents: Contents,
        mode: u32,
        now: i64,
    ) -> Result<NodeId, Errno> {
        if self.entries(directory)?.contains_key(name) {
            return Err(Errno::EXIST);
        }
        if directory.0 < SCRATCH {
            return Err(Errno::ROFS);
        }
        self.still_linked(directory)?;
        let more = name.len() as u64 + taken(&contents);
        self.check_room(more)?;
        let parent = directory;
        let node = Node { contents, parent, mode, modified: now, linked: true };
        let free = self.scratch.iter().position(Option::is_none);
        let index = free.unwrap_or(self.scratch.len());
        let id = u32::try_from(index).ok().filter(|index| *index < self.room.nodes);
        let id = NodeId(SCRATCH + id.ok_or(Errno::NOSPC)?);
        match free {
            Some(index) => self.scratch[index] = Some(node),
            None => self.scratch.push(Some(node)),
        }
        self.scratch_entries(directory)?.insert(name.to_vec(), id);
        self.used += more;
        Ok(id)
    }

    /// ENOSPC where `more` bytes would be too many.
    fn check_room(&self, more: u64) -> Result<(), Errno> {
        if more > self.room.bytes.saturating_sub(self.used) { Err(Errno::NOSPC) } else { Ok(()) }
    }

    /// Takes a name away. The node itself lives until [`Tree::release`].
    ///
    /// # Errors
    /// EROFS outside scratch; ENOTDIR or EISDIR when it is not the wanted kind; ENOTEMPTY.
    pub fn remove(&mut self, found: &Found, wanted_directory: bool) -> Result<NodeId, Errno> {
        let node = found.node.ok_or(Errno::NOENT)?;
        match (self.contents(node), wanted_directory) {
            (Contents::Directory(_), false) => return Err(Errno::ISDIR),
            (Contents::Directory(entries), true) if !entries.is_empty() => {
                return Err(if node.0 < SCRATCH { Errno::ROFS } else { Errno::NOTEMPTY });
            }
            (Contents::Directory(_), true) | (_, false) => {}
            (_, true) => return Err(Errno::NOTDIR),
        }
        if node.0 < SCRATCH {
            return Err(Errno::ROFS);
        }
        self.scratch_entries(found.directory)?.remove(&found.name);
        self.used -= found.name.len() as u64;
        if let Some(node) = self.scratch_mut(node) {
            node.linked = false;
        }
        Ok(node)
    }

    /// Moves a name.
    ///
    /// # Errors
    /// As [`Tree::remove`] and [`Tree::create`]; EINVAL for a directory into itself.
    pub fn rename(&mut self, from: &Found, to: &Found) -> Result<Option<NodeId>, Errno> {
        let node = from.node.ok_or(Errno::NOENT)?;
        if to.node == Some(node) {
            return Ok(None);
        }
        if node.0 < SCRATCH || to.directory.0 < SCRATCH {
            return Err(Errno::ROFS);
        }
        self.still_linked(to.directory)?;
        let mut above = to.directory;
        while above != ROOT {
            if above == node {
                return Err(Errno::INVAL);
            }
            above = self.parent(above);
        }
        let is_directory = matches!(self.contents(node), Contents::Directory(_));
        let (before, after) = (from.name.len() as u64, to.name.len() as u64);
        let replaced = match to.node {
            Some(_) => Some(self.remove(to, is_directory)?),
            None => {
                self.check_room(after.saturating_sub(before))?;
                None
            }
        };
        self.scratch_entries(from.directory)?.remove(&from.name);
        self.scratch_entries(to.directory)?.insert(to.name.clone(), node);
        self.used = self.used - before + after;
        if let Some(node) = self.scratch_mut(node) {
            node.parent = to.directory;
        }
        Ok(replaced)
    }

    /// Frees a node that no name leads to. To be called when nothing has it open.
    pub fn release(&mut self, id: NodeId) {
        if let Some(slot) = scratch_index(id).and_then(|index| self.scratch.get_mut(index))
            && let Some(node) = slot.take_if(|node| !node.linked)
        {
            self.used -= taken(&node.contents);
        }
    }

    /// Writes to a scratch file, which becomes as long as that takes.
    ///
    /// # Errors
    /// EROFS, EINVAL for what is no file, EFBIG, ENOSPC.
    pub fn write(&mut self, id: NodeId, at: u64, source: &[u8], now: i64) -> Result<(), Errno> {
        let end = at.checked_add(source.len() as u64).ok_or(Errno::FBIG)?;
        let length = self.bytes(id)?.len() as u64;
        self.check_room(end.saturating_sub(length))?;
        // The room bounds what fits into memory.
        let (start, stop) = (place(at)?, place(end)?);
        self.used += end.saturating_sub(length);
        let bytes = self.bytes_mut(id, now)?;
        if bytes.len() < stop {
            bytes.resize(stop, 0);
        }
        bytes[start..stop].copy_from_slice(source);
        Ok(())
    }

    /// Makes a scratch file as long as this.
    ///
    /// # Errors
    /// As [`Tree::write`].
    pub fn set_length(&mut self, id: NodeId, length: u64, now: i64) -> Result<(), Errno> {
        let before = self.bytes(id)?.len() as u64;
        self.check_room(length.saturating_sub(before))?;
        let wanted = place(length)?;
        self.used = self.used - before + length;
        let bytes = self.bytes_mut(id, now)?;
        bytes.resize(wanted, 0);
        // Scratch is counted by length: what a file no longer has is given back.
        bytes.shrink_to(wanted);
        Ok(())
    }

    fn bytes(&self, id: NodeId) -> Result<&Vec<u8>, Errno> {
        if id.0 < SCRATCH {
            return Err(Errno::ROFS);
        }
        match self.contents(id) {
            Contents::Bytes(bytes) => Ok(bytes),
            _ => Err(Errno::INVAL),
        }
    }

    fn bytes_mut(&mut self, id: NodeId, now: i64) -> Result<&mut Vec<u8>, Errno> {
        match self.scratch_mut(id) {
            Some(Node { contents: Contents::Bytes(bytes), modified, .. }) => {
                *modified = now;
                Ok(bytes)
            }
            _ => Err(Errno::INVAL),
        }
    }

    /// Changes permission bits.
    ///
    /// # Errors
    /// EROFS.
    pub fn set_mode(&mut self, id: NodeId, mode: u32) -> Result<(), Errno> {
        self.scratch_mut(id).map(|node| node.mode = mode & 0o7777).ok_or(Errno::ROFS)
    }

    /// All of scratch, to be compared.
    pub(crate) fn scratch(&self) -> &impl std::fmt::Debug {
        &self.scratch
    }

    /// Scratch in use: bytes, and nodes.
    #[must_use]
    pub fn used(&self) -> (u64, usize) {
        (self.used, self.scratch.iter().flatten().count())
    }

    /// Bytes of the monitor's memory that scratch holds: contents, whether written or not, links, names, and the nodes
    /// themselves.
    #[must_use]
    pub fn held(&self) -> u64 {
        let held = self.scratch.iter().flatten().map(|node| match &node.contents {
            Contents::Bytes(bytes) | Contents::Link(bytes) => bytes.capacity(),
            Contents::Directory(entries) => {
                entries.keys().map(|name| NAME_BYTES + name.len()).sum()
            }
            _ => 0,
        });
        let held: usize = held.sum();
        (held + self.scratch.capacity() * size_of::<Option<Node>>()) as u64
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        match scratch_index(id) {
            Some(index) => self.scratch.get(index)?.as_ref(),
            None => self.part(id)?.nodes.get((id.0 & (MOST_NODES - 1)) as usize),
        }
    }

    fn scratch_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.scratch.get_mut(scratch_index(id)?)?.as_mut()
    }

    /// ENOENT for a scratch directory that was removed and is only held open. It stays empty: were something made in it, the
    /// number of what was above it could be that of what is below it, and the way up would never end.
    fn still_linked(&mut self, id: NodeId) -> Result<(), Errno> {
        match self.scratch_mut(id) {
            Some(node) if !node.linked => Err(Errno::NOENT),
            _ => Ok(()),
        }
    }

    fn scratch_entries(&mut self, id: NodeId) -> Result<&mut BTreeMap<Vec<u8>, NodeId>, Errno> {
        match self.scratch_mut(id) {
            Some(Node { contents: Contents::Directory(entries), .. }) => Ok(entries),
            _ => Err(Errno::ROFS),
        }
    }
}

/// Bytes of scratch that a node takes beside its name.
fn taken(contents: &Contents) -> u64 {
    match contents {
        Contents::Bytes(bytes) | Contents::Link(bytes) => bytes.len() as u64,
        _ => 0,
    }
}

fn place(offset: u64) -> Result<usize, Errno> {
    usize::try_from(offset).map_err(|_| Errno::FBIG)
}

fn scratch_index(id: NodeId) -> Option<usize> {
    id.0.checked_sub(SCRATCH).map(|index| index as usize)
}
