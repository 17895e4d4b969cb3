//! A machine in which a function's code is loaded, and the key by which clones find it.

use microvm::linux::Template;
use sandbox::Limits;

use crate::message::Place;

/// A machine in which a function's code is loaded, frozen.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) template: Template,
    /// What its guest said while the code was loaded: each clone says it again.
    pub(super) said: Vec<u8>,
}

/// Which code, loaded how and within which limits: equal ones lead to equal machines. The message itself is not kept: its
/// environment may hold secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Loading {
    layers: Vec<Place>,
    message: blake3::Hash,
    /// Bytes of memory, and of scratch, and files of scratch.
    limits: (u64, u64, u32),
}

impl Loading {
    pub(super) fn new(layers: Vec<Place>, message: &[u8], limits: Limits) -> Self {
        let limits = (limits.memory_bytes, limits.scratch_bytes, limits.scratch_inodes);
        Self { layers, message: blake3::hash(message), limits }
    }
}
