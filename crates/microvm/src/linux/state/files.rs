//! Descriptors and open files. Plain data: a copy of it is a copy of all their state.

pub(crate) mod inet;
mod lock;
mod saved;

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::sync::Arc;

use rustix::io::Errno;

use crate::linux::abi::flags;
use crate::linux::state::files::inet::InetSocket;
use crate::vfs::NodeId;
pub(crate) use lock::Lock;
pub(crate) use saved::SavedFiles;

/// Descriptors of a process.
pub(crate) const MAX_DESCRIPTORS: usize = 1024;
/// Files of layers that a process has open, each counted once. Each takes a descriptor of the
/// monitor's, whose other machines share the rest.
pub const MAX_LAYER_FILES: usize = 128;
/// Bytes that a pipe holds.
pub(crate) const PIPE_BYTES: usize = 64 << 10;
/// Bytes that are written to a pipe as a whole or not at all: PIPE_BUF, pipe(7).
pub(crate) const ATOMIC_BYTES: usize = 4096;

/// A process's descriptors.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// Descriptors are smaller than this: the process's own limit, or [`MAX_DESCRIPTORS`].
    most: usize,
    slots: Vec<Option<Descriptor>>,
    open: Vec<Option<OpenFile>>,
    pipes: Vec<Option<Pipe>>,
}

/// A descriptor: the index of its open file, and whether exec closes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    open: usize,
    pub(crate) close_on_exec: bool,
}

/// An open file, shared by descriptors that were duplicated from one another.
#[derive(Clone, Debug)]
pub(crate) struct OpenFile {
    pub(crate) object: Object,
    pub(crate) offset: u64,
    /// Of a directory, the place of its last name when a listing began. Without it a program that
    /// makes a file for each name would get an endless listing.
    pub(crate) end: Option<u64>,
    /// `O_*` without the flags of creation.
    pub(crate) flags: u64,
    holders: usize,
    lock: Lock,
}

/// The object behind an open file.
#[derive(Clone, Debug)]
pub(crate) enum Object {
    /// A node of the tree, with the host's file if it is a layer's.
    Node(NodeId, Option<Arc<File>>),
    /// The reading end of a pipe.
    PipeReader(usize),
    /// The writing end of a pipe.
    PipeWriter(usize),
    /// One of a pair of sockets: the pipe that it receives from, and the pipe that it sends into.
    Socket { receives: usize, sends: usize },
    /// A socket of TCP or UDP, which is not connected.
    Inet(InetSocket),
    /// The channel to the worker.
    Channel,
    /// A standard stream, which the monitor collects.
    Output(Stream),
}

/// A standard stream for output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, descriptor 1.
    Stdout,
    /// Standard error, descriptor 2.
    Stderr,
}

/// A pipe's contents and ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pipe {
    pub(crate) bytes: VecDeque<u8>,
    pub(crate) readers: usize,
    pub(crate) writers: usize,
    /// Between sockets: one side has shut it down.
    pub(crate) shut: bool,
    /// Between sockets: the sender's socket was closed with unread bytes. The receiver gets
    /// ECONNRESET once.
    pub(crate) reset: bool,
}

impl Pipe {
    /// Whether no further bytes can come.
    pub(crate) fn ends(&self) -> bool {
        self.shut || self.writers == 0
    }

    /// Whether bytes that are written to it cannot be read any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.shut || self.readers == 0
    }

    /// Bytes of free room.
    pub(crate) fn room(&self) -> usize {
        PIPE_BYTES.saturating_sub(self.bytes.len())
    }

    /// Whether a writer that waits can go on: there is room for one atomic write.
    pub(crate) fn takes(&self) -> bool {
        self.room() >= ATOMIC_BYTES
    }
}

impl Object {
    /// The pipe that the object reads from, and the one that it writes into.
    fn pipes(&self) -> [Option<usize>; 2] {
        match *self {
            Self::PipeReader(pipe) => [Some(pipe), None],
            Self::PipeWriter(pipe) => [None, Some(pipe)],
            Self::Socket { receives, sends } => [Some(receives), Some(sends)],
            Self::Node(..) | Self::Inet(_) | Self::Channel | Self::Output(_) => [None, None],
        }
    }
}

impl Default for Files {
    fn default() -> Self {
        Self { most: MAX_DESCRIPTORS, slots: Vec::new(), open: Vec::new(), pipes: Vec::new() }
    }
}

impl Files {
    /// Sets the limit of new descriptors; larger ones that are open stay.
    pub(crate) fn set_most(&mut self, most: usize) {
        self.most = most.min(MAX_DESCRIPTORS);
    }

    /// Open descriptors, from the lowest on.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        let open = |(number, slot): (u64, &Option<Descriptor>)| slot.map(|_| number);
        (0..).zip(&self.slots).filter_map(open)
    }

    /// The open file behind a descriptor. EBADF for one of O_PATH.
    pub(crate) fn get(&self, fd: u64) -> Result<&OpenFile, Errno> {
        let open = self.place(fd)?;
        if open.flags & flags::PATH == 0 { Ok(open) } else { Err(Errno::BADF) }
    }

    /// The open file behind a descriptor, of O_PATH, too.
    pub(crate) fn place(&self, fd: u64) -> Result<&OpenFile, Errno> {
        let open = self.descriptor(fd)?.open;
        self.open[open].as_ref().ok_or(Errno::BADF)
    }

    /// The node behind a descriptor, of O_PATH, too; none for pipes, sockets and streams.
    pub(crate) fn node_of(&self, fd: u64) -> Option<NodeId> {
        match self.place(fd).ok()?.object {
            Object::Node(node, _) => Some(node),
            _ => None,
        }
    }

    /// As [`Files::get`], to be changed.
    pub(crate) fn get_mut(&mut self, fd: u64) -> Result<&mut OpenFile, Errno> {
        self.get(fd)?;
        let open = self.descriptor(fd)?.open;
        self.open[open].as_mut().ok_or(Errno::BADF)
    }

    pub(crate) fn descriptor(&self, fd: u64) -> Result<Descriptor, Errno> {
        let slot = usize::try_from(fd).ok().and_then(|fd| self.slots.get(fd).copied().flatten());
        slot.ok_or(Errno::BADF)
    }

    pub(crate) fn set_close_on_exec(&mut self, fd: u64, close: bool) -> Result<(), Errno> {
        self.descriptor(fd)?;
        if let Some(slot) = usize::try_from(fd).ok().and_then(|fd| self.slots[fd].as_mut()) {
            slot.close_on_exec = close;
        }
        Ok(())
    }

    /// Opens an object as the lowest free descriptor.
    pub(crate) fn open(&mut self, object: Object, flags: u64) -> Result<u64, Errno> {
        if let Object::Node(node, Some(_)) = &object
            && !self.has_open(*node)
            && self.layer_files() >= MAX_LAYER_FILES
        {
            return Err(Errno::MFILE);
        }
        let slot = self.free_slot(0)?;
        let [reads, writes] = object.pipes();
        if let Some(pipe) = reads {
            self.pipe_mut(pipe)?.readers += 1;
        }
        if let Some(pipe) = writes {
            self.pipe_mut(pipe)?.writers += 1;
        }
        let flags_kept = flags & !CREATION;
        let (offset, end, lock) = (0, None, Lock::None);
        let open = OpenFile { object, offset, end, flags: flags_kept, holders: 1, lock };
        let index = put(&mut self.open, open);
        let close_on_exec = flags & flags::CLOSE_ON_EXEC != 0;
        self.slots[slot] = Some(Descriptor { open: index, close_on_exec });
        Ok(slot as u64)
    }

    /// Opens two objects as the lowest free descriptors, or neither.
    pub(crate) fn open_both(&mut self, both: [(Object, u64); 2]) -> Result<[u64; 2], Errno> {
        let [(first, flags), (second, more)] = both;
        let opened = self.open(first, flags).and_then(|first| {
            let second = self.open(second, more);
            if second.is_err() {
                self.close(first)?;
            }
            Ok([first, second?])
        });
        // Without this, a program that has no descriptor left would add a pipe at each refusal.
        self.drop_pipes();
        opened
    }

    /// `fcntl(F_DUPFD)`: the lowest free descriptor from `least` on.
    pub(crate) fn duplicate(&mut self, fd: u64, least: u64, close: bool) -> Result<u64, Errno> {
        let from = self.descriptor(fd)?;
        let least =
            usize::try_from(least).ok().filter(|least| *least < self.most).ok_or(Errno::INVAL)?;
        let slot = self.free_slot(least)?;
        self.share(from, slot, close);
        Ok(slot as u64)
    }

    /// `dup2`: closes `to` first. Returns its object if that was the last descriptor of it.
    pub(crate) fn duplicate_to(
        &mut self,
        fd: u64,
        to: u64,
        close: bool,
    ) -> Result<Option<Object>, Errno> {
        let from = self.descriptor(fd)?;
        let slot = usize::try_from(to).ok().filter(|to| *to < self.most).ok_or(Errno::BADF)?;
        let gone = self.close(to).unwrap_or_default();
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
        }
        self.share(from, slot, close);
        Ok(gone)
    }

    fn share(&mut self, from: Descriptor, slot: usize, close_on_exec: bool) {
        if let Some(open) = &mut self.open[from.open] {
            open.holders += 1;
        }
        self.slots[slot] = Some(Descriptor { open: from.open, close_on_exec });
    }

    /// Closes a descriptor. Returns its object if that was the last descriptor of it.
    pub(crate) fn close(&mut self, fd: u64) -> Result<Option<Object>, Errno> {
        let descriptor = self.descriptor(fd)?;
        if let Ok(fd) = usize::try_from(fd) {
            self.slots[fd] = None;
        }
        let Some(open) = &mut self.open[descriptor.open] else { return Ok(None) };
        open.holders -= 1;
        if open.holders > 0 {
            return Ok(None);
        }
        let object = self.open[descriptor.open].take().map(|open| open.object);
        if let Some(object) = &object {
            self.let_go(object)?;
        }
        Ok(object)
    }

    /// The last descriptor of the object was closed.
    fn let_go(&mut self, object: &Object) -> Result<(), Errno> {
        let [reads, writes] = object.pipes();
        if let Some(pipe) = reads {
            self.pipe_mut(pipe)?.readers -= 1;
        }
        if let Some(pipe) = writes {
            self.pipe_mut(pipe)?.writers -= 1;
        }
        if let Object::Socket { receives, sends } = *object {
            let unread = std::mem::take(&mut self.pipe_mut(receives)?.bytes);
            self.pipe_mut(sends)?.reset |= !unread.is_empty();
        }
        self.drop_pipes();
        Ok(())
    }

    /// Drops pipes without an end.
    fn drop_pipes(&mut self) {
        for pipe in &mut self.pipes {
            if pipe.as_ref().is_some_and(|pipe| pipe.readers == 0 && pipe.writers == 0) {
                *pipe = None;
            }
        }
    }

    /// Whether a descriptor is open on the node.
    pub(crate) fn has_open(&self, node: NodeId) -> bool {
        let is = |open: &OpenFile| matches!(open.object, Object::Node(id, _) if id == node);
        self.open.iter().flatten().any(is)
    }

    /// Number of layers' files that are open.
    fn layer_files(&self) -> usize {
        let nodes = self.open.iter().flatten().filter_map(|open| match open.object {
            Object::Node(node, Some(_)) => Some(node),
            _ => None,
        });
        nodes.collect::<BTreeSet<_>>().len()
    }

    /// Bytes of the monitor's memory that descriptors and pipes take.
    pub(crate) fn held(&self) -> u64 {
        let tables = self.slots.capacity() * size_of::<Option<Descriptor>>()
            + self.open.capacity() * size_of::<Option<OpenFile>>()
            + self.pipes.capacity() * size_of::<Option<Pipe>>();
        let pipes = self.pipes.iter().flatten().map(|pipe| pipe.bytes.capacity()).sum::<usize>();
        (tables + pipes) as u64
    }

    /// Makes a pipe without ends.
    pub(crate) fn new_pipe(&mut self) -> usize {
        put(&mut self.pipes, Pipe::default())
    }

    pub(crate) fn pipe_mut(&mut self, pipe: usize) -> Result<&mut Pipe, Errno> {
        self.pipes.get_mut(pipe).and_then(Option::as_mut).ok_or(Errno::BADF)
    }

    pub(crate) fn pipe(&self, pipe: usize) -> Result<&Pipe, Errno> {
        self.pipes.get(pipe).and_then(Option::as_ref).ok_or(Errno::BADF)
    }

    fn free_slot(&mut self, least: usize) -> Result<usize, Errno> {
        let free = (least..self.most).find(|at| self.slots.get(*at).is_none_or(Option::is_none));
        let slot = free.ok_or(Errno::MFILE)?;
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
        }
        Ok(slot)
    }
}

/// Flags that count while opening only.
const CREATION: u64 =
    (libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOCTTY | libc::O_CLOEXEC) as u64;

/// Puts a value at the first free index.
fn put<T>(places: &mut Vec<Option<T>>, value: T) -> usize {
    let free = places.iter().position(Option::is_none);
    let index = free.unwrap_or_else(|| {
        places.push(None);
        places.len() - 1
    });
    places[index] = Some(value);
    index
}
