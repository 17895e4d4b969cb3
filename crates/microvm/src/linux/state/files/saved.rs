//! Descriptors in a snapshot on disk.

use serde::{Deserialize, Serialize};

use super::{Descriptor, Files, Lock, MAX_DESCRIPTORS, Object, OpenFile, Stream};
use crate::linux::abi::flags;
use crate::vfs::{Kind, NodeId, Tree};

/// Descriptors and open files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedFiles {
    /// By number: the index of the open file, and whether exec closes the descriptor.
    descriptors: Vec<Option<(usize, bool)>>,
    open: Vec<Option<SavedOpen>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedOpen {
    object: SavedObject,
    offset: u64,
    flags: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SavedObject {
    Stdout,
    Stderr,
    Channel,
    /// A directory, a device, or a file of scratch.
    Node(u32),
}

impl Files {
    /// The files for a snapshot; none if a pipe, a socket or a layer's file is open, or a lock is
    /// held.
    pub(crate) fn to_saved(&self) -> Option<SavedFiles> {
        let Self { most: _, slots, open, pipes } = self;
        if pipes.iter().any(Option::is_some) {
            return None;
        }
        let descriptor = |slot: &Option<Descriptor>| slot.map(|it| (it.open, it.close_on_exec));
        let mut all = Vec::new();
        for open in open {
            let Some(OpenFile { object, offset, end: _, flags, holders: _, lock }) = open else {
                all.push(None);
                continue;
            };
            if *lock != Lock::None {
                return None;
            }
            let object = match object {
                Object::Output(Stream::Stdout) => SavedObject::Stdout,
                Object::Output(Stream::Stderr) => SavedObject::Stderr,
                Object::Channel => SavedObject::Channel,
                Object::Node(node, None) => SavedObject::Node(node.0),
                Object::Node(_, Some(_))
                | Object::PipeReader(_)
                | Object::PipeWriter(_)
                | Object::Inet(_)
                | Object::Socket { .. } => return None,
            };
            all.push(Some(SavedOpen { object, offset: *offset, flags: *flags }));
        }
        Some(SavedFiles { descriptors: slots.iter().map(descriptor).collect(), open: all })
    }

    /// A snapshot's files, in a tree; none if they are impossible.
    pub(crate) fn of_saved(saved: &SavedFiles, tree: &Tree) -> Option<Self> {
        let SavedFiles { descriptors, open: all } = saved;
        if descriptors.len() > MAX_DESCRIPTORS || all.len() > MAX_DESCRIPTORS {
            return None;
        }
        let mut files = Self::default();
        for (index, open) in all.iter().enumerate() {
            let Some(SavedOpen { object, offset, flags }) = open else {
                files.open.push(None);
                continue;
            };
            let holders = descriptors.iter().flatten().filter(|(open, _)| *open == index).count();
            // No offset is larger.
            if holders == 0 || i64::try_from(*offset).is_err() {
                return None;
            }
            let object = object.open(tree, flags & flags::PATH != 0)?;
            // A listing that had begun ends at the directory's end: no name in the directory is a
            // guest's.
            let (offset, end, flags, lock) = (*offset, None, *flags, Lock::None);
            files.open.push(Some(OpenFile { object, offset, end, flags, holders, lock }));
        }
        for descriptor in descriptors {
            let slot = descriptor.map(|(open, close_on_exec)| Descriptor { open, close_on_exec });
            if let Some(Descriptor { open, .. }) = slot {
                files.open.get(open)?.as_ref()?;
            }
            files.slots.push(slot);
        }
        Some(files)
    }
}

impl SavedObject {
    /// Files and links of layers can only be open with O_PATH.
    fn open(self, tree: &Tree, is_place: bool) -> Option<Object> {
        Some(match self {
            Self::Stdout => Object::Output(Stream::Stdout),
            Self::Stderr => Object::Output(Stream::Stderr),
            Self::Channel => Object::Channel,
            Self::Node(number) => {
                let node = NodeId(number);
                let kind = tree.existing_kind(node)?;
                let scratch = tree.status(node).2;
                let readable = matches!(kind, Kind::Directory | Kind::Device) || scratch;
                if !readable && !is_place {
                    return None;
                }
                Object::Node(node, None)
            }
        })
    }
}
