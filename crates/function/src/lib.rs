//! The words in which a function is described: its name and tenant, what it runs in, its limits and
//! network, its settings, and the portable record of one version.
//!
//! ```text
//!   bundle (reads them from files)    store (keeps them)    platform (checks them)    sandbox (is told them)
//!        └──────────────────────────────────┴──────┬───────────────┴─────────────────────────┘
//!                                               function: plain values, no I/O, no clock
//! ```
//!
//! Every type here is a value: it is parsed from text, compared, and written back as the same text. Nothing here knows a
//! directory, a process or a database, so that each of these words means the same on every machine.

#![forbid(unsafe_code)]

mod bundle_digest;
mod cpu;
mod kind;
mod label;
pub mod lambda;
mod layer;
mod limits;
mod manifest;
mod name;
pub mod network;
mod qualifier;
pub mod quantity;
mod told;
mod version;
mod whole_name;

pub use bundle_digest::{BundleDigest, DigestError};
pub use cpu::{Cpu, CpuBounds, NoProcessors, Processors};
pub use kind::{Kind, Reset};
pub use label::{DEFAULT_TENANT, Label, LabelError};
pub use lambda::{Lambda, LogLevel};
pub use layer::{
    AttachedLayer, LayerName, MAX_LAYER_NAME, MAX_LAYERED_BYTES, MAX_LAYERS, WholeLayerName,
};
pub use limits::Limits;
pub use manifest::{Convention, Manifest};
pub use name::{FunctionName, MAX_NAME, NameError};
pub use network::{Destination, Network};
pub use qualifier::{AliasName, LATEST, MAX_ALIAS, Qualifier, QualifierError};
pub use quantity::{Bytes, Cpus, Span};
pub use told::Told;
pub use version::{PackageLock, VersionId, VersionRecord};
pub use whole_name::{WholeName, directory};
