//! Scratch: files that a guest makes, writes, renames and removes, within limits.

use std::collections::BTreeMap;

use rustix::io::Errno;

use super::super::node::{Contents, DirectoryEntry, Moment, Node, NodeId, ROOT, SCRATCH, Times};
use super::{Lookup, Room, SEARCH, Tree, WRITE, scratch_index};

/// Bytes of a directory's entry beside its name.
const NAME_BYTES: usize = size_of::<(Vec<u8>, DirectoryEntry)>();

impl Tree {
    /// Sets the limits of all scratch directories together: bytes of contents, links and names, and
    /// nodes.
    pub fn set_room(&mut self, bytes: u64, nodes: u32) {
        self.room = Room { bytes, nodes, shared: 0, lent: 0 };
    }

    /// Lets memory take `bytes` of the room for scratch while no file does.
    pub(crate) fn share_room(&mut self, bytes: u64) {
        self.room.shared = bytes;
    }

    /// Notes how many bytes memory has taken beyond its limit. Returns how many it may take.
    pub(crate) fn lend(&mut self, taken: u64) -> u64 {
        self.room.lent = taken.min(self.room.shared);
        self.room.shared.saturating_sub(self.used)
    }

    /// Bytes that are free: neither files nor memory have them.
    pub(crate) fn free(&self) -> u64 {
        self.room.bytes.saturating_sub(self.used.saturating_add(self.room.lent))
    }

    /// The limits: bytes, and nodes.
    #[must_use]
    pub fn room(&self) -> (u64, u32) {
        (self.room.bytes, self.room.nodes)
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
        now: Moment,
    ) -> Result<NodeId, Errno> {
        if self.entries(directory)?.contains_key(name) {
            return Err(Errno::EXIST);
        }
        if directory.0 < SCRATCH {
            return Err(Errno::ROFS);
        }
        self.still_linked(directory)?;
        self.permit(directory, WRITE | SEARCH)?;
        let more = name.len() as u64 + taken(&contents);
        self.check_room(more)?;
        let parent = directory;
        let node = Node { contents, parent, mode, times: Times::of(now), links: 1 };
        let free = self.scratch.iter().position(Option::is_none);
        let index = free.unwrap_or(self.scratch.len());
        let most = self.room.nodes.saturating_sub(self.further_names);
        let id = u32::try_from(index).ok().filter(|index| *index < most);
        let id = NodeId(SCRATCH + id.ok_or(Errno::NOSPC)?);
        match free {
            Some(index) => self.scratch[index] = Some(node),
            None => self.scratch.push(Some(node)),
        }
        let named = self.named(id);
        self.scratch_entries(directory)?.insert(name.to_vec(), named);
        self.used += more;
        Ok(id)
    }

    /// A new name for a node, behind all others.
    fn named(&mut self, node: NodeId) -> DirectoryEntry {
        let place = self.places;
        self.places += 1;
        DirectoryEntry { node, place }
    }

    /// ENOSPC where `more` bytes would be too many.
    fn check_room(&self, more: u64) -> Result<(), Errno> {
        if more > self.free() { Err(Errno::NOSPC) } else { Ok(()) }
    }

    /// Bytes of `length` for which a scratch file has room from `at` on; all of them if there is
    /// none, so that the write is refused.
    pub(crate) fn fitting(&self, id: NodeId, at: u64, length: u64) -> u64 {
        let end = self.contents(id).size().saturating_add(self.free());
        match end.saturating_sub(at) {
            0 => length,
            fitting => length.min(fitting),
        }
    }

    /// ENOTDIR or EISDIR for a node that is not of the wanted kind.
    fn check_kind(&self, node: NodeId, wanted_directory: bool) -> Result<(), Errno> {
        match (self.contents(node), wanted_directory) {
            (Contents::Directory(_), false) => Err(Errno::ISDIR),
            (Contents::Directory(_), true) | (_, false) => Ok(()),
            (_, true) => Err(Errno::NOTDIR),
        }
    }

    /// Removes a name. The node itself lives until [`Tree::release`].
    ///
    /// # Errors
    /// EROFS outside scratch; EACCES; ENOTDIR or EISDIR when it is not of the wanted kind;
    /// ENOTEMPTY.
    pub fn remove(&mut self, found: &Lookup, wanted_directory: bool) -> Result<NodeId, Errno> {
        let node = found.node.ok_or(Errno::NOENT)?;
        self.permit(found.directory, WRITE | SEARCH)?;
        self.check_kind(node, wanted_directory)?;
        if self.entries(node).is_ok_and(|entries| !entries.is_empty()) {
            return Err(if node.0 < SCRATCH { Errno::ROFS } else { Errno::NOTEMPTY });
        }
        if node.0 < SCRATCH {
            return Err(Errno::ROFS);
        }
        self.scratch_entries(found.directory)?.remove(&found.name);
        self.used -= found.name.len() as u64;
        if let Some(it) = self.scratch_mut(node) {
            it.links -= 1;
            let others = it.links > 0;
            self.further_names -= u32::from(others);
        }
        Ok(node)
    }

    /// Gives a file or a link a further name. The name counts as a node, because even a short one
    /// takes the monitor's memory.
    ///
    /// # Errors
    /// As [`Tree::create`]; EXDEV for a node outside scratch, EPERM for a directory.
    pub fn link(&mut self, node: NodeId, directory: NodeId, name: &[u8]) -> Result<(), Errno> {
        if self.entries(directory)?.contains_key(name) {
            return Err(Errno::EXIST);
        }
        if directory.0 < SCRATCH {
            return Err(Errno::ROFS);
        }
        if node.0 < SCRATCH {
            return Err(Errno::XDEV);
        }
        self.still_linked(directory)?;
        self.permit(directory, WRITE | SEARCH)?;
        if matches!(self.contents(node), Contents::Directory(_)) {
            return Err(Errno::PERM);
        }
        self.check_room(name.len() as u64)?;
        if self.used().1 >= self.room.nodes as usize {
            return Err(Errno::NOSPC);
        }
        // A node without a name can be freed at any time.
        self.still_linked(node)?;
        let named = self.named(node);
        self.scratch_entries(directory)?.insert(name.to_vec(), named);
        self.used += name.len() as u64;
        self.further_names += 1;
        if let Some(node) = self.scratch_mut(node) {
            node.links += 1;
        }
        Ok(())
    }

    /// Renames a node.
    ///
    /// # Errors
    /// As [`Tree::remove`] and [`Tree::create`]; EINVAL for a directory into itself.
    pub fn rename(&mut self, from: &Lookup, to: &Lookup) -> Result<Option<NodeId>, Errno> {
        let node = from.node.ok_or(Errno::NOENT)?;
        if to.node == Some(node) {
            return Ok(None);
        }
        if node.0 < SCRATCH || to.directory.0 < SCRATCH {
            return Err(Errno::ROFS);
        }
        if self.is_within(to.directory, node) {
            return Err(Errno::INVAL);
        }
        if to.node.is_some_and(|to| self.is_within(from.directory, to)) {
            return Err(Errno::NOTEMPTY);
        }
        self.permit(from.directory, WRITE | SEARCH)?;
        self.still_linked(to.directory)?;
        self.permit(to.directory, WRITE | SEARCH)?;
        let is_directory = matches!(self.contents(node), Contents::Directory(_));
        if let Some(replaced) = to.node {
            self.check_kind(replaced, is_directory)?;
        }
        // Its `..` changes.
        if is_directory && from.directory != to.directory {
            self.permit(node, WRITE)?;
        }
        let (before, after) = (from.name.len() as u64, to.name.len() as u64);
        let replaced = match to.node {
            Some(_) => Some(self.remove(to, is_directory)?),
            None => {
                self.check_room(after.saturating_sub(before))?;
                None
            }
        };
        let was = self.scratch_entries(from.directory)?.remove(&from.name);
        let stays = was.filter(|_| from.directory == to.directory);
        let named = stays.unwrap_or_else(|| self.named(node));
        self.scratch_entries(to.directory)?.insert(to.name.clone(), named);
        self.used = self.used - before + after;
        if let Some(node) = self.scratch_mut(node) {
            node.parent = to.directory;
        }
        Ok(replaced)
    }

    /// Whether a directory is another node, or below it.
    fn is_within(&self, directory: NodeId, node: NodeId) -> bool {
        let mut above = directory;
        while above != ROOT {
            if above == node {
                return true;
            }
            above = self.parent(above);
        }
        false
    }

    /// Frees a node without a name. To be called when nothing has it open.
    pub fn release(&mut self, id: NodeId) {
        if let Some(slot) = scratch_index(id).and_then(|index| self.scratch.get_mut(index))
            && let Some(node) = slot.take_if(|node| node.links == 0)
        {
            self.used -= taken(&node.contents);
        }
    }

    /// Writes to a scratch file, which grows as far as needed.
    ///
    /// # Errors
    /// EROFS, EINVAL for other nodes than files, EFBIG, ENOSPC.
    pub fn write(&mut self, id: NodeId, at: u64, source: &[u8], now: Moment) -> Result<(), Errno> {
        let end = at.checked_add(source.len() as u64).ok_or(Errno::FBIG)?;
        let length = self.bytes(id)?.len() as u64;
        self.check_room(end.saturating_sub(length))?;
        // The limit bounds what fits into memory.
        let (start, stop) = (place(at)?, place(end)?);
        self.used += end.saturating_sub(length);
        let bytes = self.bytes_mut(id, now)?;
        if bytes.len() < stop {
            bytes.resize(stop, 0);
        }
        bytes[start..stop].copy_from_slice(source);
        Ok(())
    }

    /// Copies bytes of a mapping that shows a scratch file into the file, as far as the file
    /// reaches.
    pub(crate) fn take_over(&mut self, id: NodeId, at: u64, source: &[u8], now: Moment) {
        let Ok(bytes) = self.bytes(id) else { return };
        let start = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
        let count = source.len().min(bytes.len() - start);
        if bytes[start..start + count] != source[..count]
            && let Ok(bytes) = self.bytes_mut(id, now)
        {
            bytes[start..start + count].copy_from_slice(&source[..count]);
        }
    }

    /// Sets the length of a scratch file.
    ///
    /// # Errors
    /// As [`Tree::write`].
    pub fn set_length(&mut self, id: NodeId, length: u64, now: Moment) -> Result<(), Errno> {
        let before = self.bytes(id)?.len() as u64;
        self.check_room(length.saturating_sub(before))?;
        let wanted = place(length)?;
        self.used = self.used - before + length;
        let bytes = self.bytes_mut(id, now)?;
        bytes.resize(wanted, 0);
        // Scratch is counted by length, so spare capacity is given back.
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

    fn bytes_mut(&mut self, id: NodeId, now: Moment) -> Result<&mut Vec<u8>, Errno> {
        match self.scratch_mut(id) {
            Some(Node { contents: Contents::Bytes(bytes), times, .. }) => {
                times.modified = now;
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

    /// Sets the times of last access and change.
    ///
    /// # Errors
    /// EROFS.
    pub fn set_times(&mut self, id: NodeId, times: Times) -> Result<(), Errno> {
        self.scratch_mut(id).map(|node| node.times = times).ok_or(Errno::ROFS)
    }

    /// All of scratch, for comparisons.
    pub(crate) fn scratch(&self) -> &impl std::fmt::Debug {
        &self.scratch
    }

    /// Scratch in use: bytes, and nodes with their further names.
    #[must_use]
    pub fn used(&self) -> (u64, usize) {
        (self.used, self.scratch.iter().flatten().count() + self.further_names as usize)
    }

    /// Bytes of the monitor's memory that scratch takes: contents whether written or not, links,
    /// names, and nodes.
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

    fn scratch_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.scratch.get_mut(scratch_index(id)?)?.as_mut()
    }

    /// ENOENT for a scratch directory that was removed and is only held open. It stays empty: a
    /// node made in it could get the number of a directory above it, and the way up would never
    /// end.
    fn still_linked(&mut self, id: NodeId) -> Result<(), Errno> {
        match self.scratch_mut(id) {
            Some(node) if node.links == 0 => Err(Errno::NOENT),
            _ => Ok(()),
        }
    }

    fn scratch_entries(
        &mut self,
        id: NodeId,
    ) -> Result<&mut BTreeMap<Vec<u8>, DirectoryEntry>, Errno> {
        match self.scratch_mut(id) {
            Some(Node { contents: Contents::Directory(entries), .. }) => Ok(entries),
            _ => Err(Errno::ROFS),
        }
    }
}

/// Bytes of scratch that a node takes, beside its name.
fn taken(contents: &Contents) -> u64 {
    match contents {
        Contents::Bytes(bytes) | Contents::Link(bytes) => bytes.len() as u64,
        _ => 0,
    }
}

fn place(offset: u64) -> Result<usize, Errno> {
    usize::try_from(offset).map_err(|_| Errno::FBIG)
}
