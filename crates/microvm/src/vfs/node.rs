//! One file, directory or link of the tree.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The top of a tree.
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

    /// Whether it is one that a machine made itself, and can write.
    pub(crate) fn is_scratch(self) -> bool {
        self.0 >= SCRATCH
    }
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The node.
    pub node: NodeId,
    /// Where in a listing the name comes. No other name of its directory ever had the place, and a name that is changed within
    /// its directory keeps it: so whoever is told a listing is told each name once, whatever he does with it meanwhile.
    pub place: u64,
}

impl DirectoryEntry {
    /// A name that a tree is built with: of each node there is one.
    pub(super) fn built(node: NodeId) -> Self {
        Self { node, place: u64::from(node.0) }
    }
}

/// A point in time, from 1970 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moment {
    /// Whole seconds.
    pub seconds: i64,
    /// And so many nanoseconds.
    pub nanoseconds: u32,
}

/// What `stat` tells of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// When it was made, or what somebody set: reading does not change it.
    pub accessed: Moment,
    /// When it was written last.
    pub modified: Moment,
}

impl Times {
    /// Of what was made then.
    #[must_use]
    pub fn of(moment: Moment) -> Self {
        Self { accessed: moment, modified: moment }
    }
}

/// What kind of node it is, for `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
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
    /// Reads randomness of the host's.
    Random,
}

/// Texts that a guest finds below `/proc`: what the monitor knows when they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeneratedFile {
    /// `self/limits`.
    Limits,
    /// `self/comm`.
    Name,
    /// `self/maps`.
    Maps,
    /// `self/stat`.
    Stat,
    /// `self/statm`.
    StatMemory,
    /// `self/status`.
    Status,
    /// `loadavg`.
    Load,
    /// `meminfo`.
    Memory,
    /// `stat`.
    System,
    /// `uptime`.
    Uptime,
    /// `memory.max` of the cgroup, and version 1's `memory.limit_in_bytes`.
    MemoryLimit,
    /// `memory.current`, and `memory.usage_in_bytes`.
    MemoryUse,
}

/// What a node holds.
#[derive(Clone, Debug)]
pub enum Contents {
    /// Names and what they stand for.
    Directory(BTreeMap<Vec<u8>, DirectoryEntry>),
    /// A file of a read-only layer: which layer, where in it, and how long it is.
    Sealed {
        /// Its number in the tree.
        layer: usize,
        /// Its path in the layer.
        path: std::path::PathBuf,
        /// Bytes.
        size: u64,
    },
    /// A file of the scratch space, or a text of the monitor's.
    Bytes(Vec<u8>),
    /// A symbolic link.
    Link(Vec<u8>),
    /// A device.
    Device(Device),
    /// A text below `/proc`, or of the machine's cgroup.
    Generated(GeneratedFile),
    /// `/proc/self/fd`: a directory without names of its own.
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
    /// How many names lead to it still: it may be open longer.
    pub(crate) links: u32,
}

impl Contents {
    /// What `stat` calls it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Directory(_) | Self::Descriptors => Kind::Directory,
            Self::Sealed { .. } | Self::Bytes(_) | Self::Generated(_) => Kind::File,
            Self::Link(_) => Kind::Link,
            Self::Device(_) => Kind::Device,
        }
    }

    /// Bytes that it says it has.
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
