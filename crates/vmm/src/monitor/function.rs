//! A machine in which a function's code is loaded, and the key by which clones find it.

use microvm::linux::Template;
use sandbox::Limits;

use crate::message::Place;

/// A frozen machine in which a function's code is loaded.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) template: Template,
    /// Bytes that its guest sent while the code was loaded: each clone sends them again.
    pub(super) said: Vec<u8>,
}

/// The code, the load message and the limits: equal ones lead to equal machines. Only the message's
/// hash is kept, because its environment may hold secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoadKey {
    layers: Vec<Place>,
    message: blake3::Hash,
    /// Bytes of memory, bytes of scratch, and files of scratch.
    limits: (u64, u64, u32),
}

impl LoadKey {
    pub(super) fn new(layers: Vec<Place>, message: &[u8], limits: Limits) -> Self {
        let limits = (limits.memory_bytes, limits.scratch_bytes, limits.scratch_inodes);
        Self { layers, message: blake3::hash(message), limits }
    }
}
