//! A file, directory or link of the tree.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The root of a tree.
pub(super) const ROOT: NodeId = NodeId(0);
/// Numbers from here on are scratch; those below are the same for all machines of a tree.
pub(super) const SCRATCH: u32 = 1 << 31;
/// Nodes of a tree, or of one branch. The bits above say which branch a node belongs to.
pub(super) const MAX_NODES: u32 = 1 << 24;

/// A node's number inside the monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// Its inode number. Never 0: C libraries take that for a name that is gone.
    #[must_use]
    pub fn inode(self) -> u64 {
        u64::from(self.0) + 1
    }

    /// Whether the machine itself made the node, and may write to it.
    pub(crate) fn is_scratch(self) -> bool {
        self.0 >= SCRATCH
    }
}

/// A name of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The node that the name stands for.
    pub node: NodeId,
    /// Place of the name in a listing. A place is never used again in its directory, and a name
    /// that is renamed within the directory keeps its place: so a listing tells each name once,
    /// whatever changes meanwhile.
    pub place: u64,
}

impl DirectoryEntry {
    /// A name of a tree that is being built, the only one of its node.
    pub(super) fn built(node: NodeId) -> Self {
        Self { node, place: u64::from(node.0) }
    }
}

/// A point in time, counted from 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moment {
    /// Whole seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds beyond them, less than a second.
    pub nanoseconds: u32,
}

/// The times that `stat` tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// When the node was made, or what `utimensat` set: reading does not change it.
    pub accessed: Moment,
    /// When it was last written.
    pub modified: Moment,
}

impl Times {
    /// The times of a node that was made at `moment`.
    #[must_use]
    pub fn of(moment: Moment) -> Self {
        Self { accessed: moment, modified: moment }
    }
}

/// The kind of node that `stat` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory of names.
    Directory,
    /// A file with contents.
    File,
    /// A symbolic link.
    Link,
    /// A character device.
    Device,
}

/// Devices that a guest finds below `/dev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Reads nothing, swallows everything.
    Null,
    /// Reads zeros, swallows everything.
    Zero,
    /// Reads zeros, has no room.
    Full,
    /// Reads random bytes of the host's.
    Random,
}

/// Files below `/proc` and the cgroup whose text is made at each reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeneratedFile {
    /// `self/limits`, as the process set them.
    Limits,
    /// `self/comm`, its name.
    Name,
    /// `self/maps`, its mappings.
    Maps,
    /// `self/stat`, in one line.
    Stat,
    /// `self/statm`, in pages.
    StatMemory,
    /// `self/status`, field by field.
    Status,
    /// `loadavg`, always without load.
    Load,
    /// `meminfo`, of the machine.
    Memory,
    /// `stat`, of the machine.
    System,
    /// `uptime`, of the host.
    Uptime,
    /// `memory.max` of the cgroup, and version 1's `memory.limit_in_bytes`.
    MemoryLimit,
    /// `memory.current`, and `memory.usage_in_bytes`.
    MemoryUse,
}

/// The contents of a node.
#[derive(Clone, Debug)]
pub enum Contents {
    /// Names, each with its node.
    Directory(BTreeMap<Vec<u8>, DirectoryEntry>),
    /// A file of a read-only layer.
    Sealed {
        /// The layer's number in the tree.
        layer: usize,
        /// The path in the layer.
        path: std::path::PathBuf,
        /// Length in bytes.
        size: u64,
    },
    /// A file of scratch, or a fixed text of the monitor's.
    Bytes(Vec<u8>),
    /// A symbolic link, with its target.
    Link(Vec<u8>),
    /// A device of the monitor's.
    Device(Device),
    /// A text that is made at each reading.
    Generated(GeneratedFile),
    /// `/proc/self/fd`: its names are the process's descriptors, which the tree does not know.
    Descriptors,
}

/// A node and what `stat` says about it.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) contents: Contents,
    pub(crate) parent: NodeId,
    /// Permission bits.
    pub(crate) mode: u32,
    pub(crate) times: Times,
    /// Names that lead to the node. It may be open for longer than it has one.
    pub(crate) links: u32,
}

impl Contents {
    /// Its kind, as `stat` tells it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Directory(_) | Self::Descriptors => Kind::Directory,
            Self::Sealed { .. } | Self::Bytes(_) | Self::Generated(_) => Kind::File,
            Self::Link(_) => Kind::Link,
            Self::Device(_) => Kind::Device,
        }
    }

    /// Its size in bytes, as `stat` tells it.
    #[must_use]
    pub fn size(&self) -> u64 {
        match self {
            Self::Directory(_) => 4096,
            Self::Sealed { size, .. } => *size,
            Self::Bytes(bytes) | Self::Link(bytes) => bytes.len() as u64,
            Self::Device(_) | Self::Generated(_) | Self::Descriptors => 0,
        }
    }
}
