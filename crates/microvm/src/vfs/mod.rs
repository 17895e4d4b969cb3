//! The guest's files: a tree in the monitor.
//!
//! ```text
//!   /            a read-only layer (the base)          an index of its names, made with the tree
//!   ├── opt/…    further read-only layers
//!   ├── proc     texts that are made at each reading
//!   ├── dev      null, zero, full, random, urandom     the monitor's own
//!   └── tmp      scratch: memory of the monitor, with a limit
//!
//!   tree ──► branch ──► sealed ──► layer ──► node        builder and machine put trees together
//! ```
//!
//! **A path of the guest never reaches the host.** It is looked up in the index, links included;
//! the monitor then opens the index's own path, beneath the layer's directory and through no link.
//! What the guest writes stays in the monitor. `/proc` tells about the process itself, and nothing
//! about others or the host.

mod branch;
mod builder;
mod layer;
mod machine;
mod node;
mod sealed;
mod tree;

pub use branch::Branch;
pub use builder::TreeBuilder;
pub use layer::{Layer, LayerError};
pub use node::{Contents, Device, DirectoryEntry, GeneratedFile, Kind, Moment, NodeId, Times};
pub(crate) use tree::SavedScratch;
pub use tree::{Lookup, READ, SEARCH, Tree, WRITE};
