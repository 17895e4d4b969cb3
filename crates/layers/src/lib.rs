//! The read-only directories that root file systems are put together from.
//!
//! ```text
//!   host Python ──► base/<id>      interpreter, library closure, standard library, /etc      becomes /
//!   bundle ───────► code/<id>      the handler's own files                                   becomes /var/task
//!     └► manifest ─► lock ──► wheels/<id>     one directory for each locked wheel
//!                               └► packages/<id>   links to exactly these                    becomes /opt/python
//!   guest files ──► guest/<id>     Lambswool's own Python                                    becomes /opt/lambswool
//! ```
//!
//! Every layer is named by the hash of what it is made from, made beside its place and renamed into it when it is
//! complete ([`Store`]), byte-compiled once with unchecked hashes, and never changed afterwards. Nothing here needs
//! privilege: what root makes is root's, what a user makes is the user's. Nothing here runs a handler's code, nor a
//! package's: wheels are unpacked, and what has none is built in sandboxes that the caller makes ([`build`]).
//!
//! The way of a deployment:
//!
//! ```text
//!   let bundle   = code::Bundle::from_path(&store, path)?;
//!   let settings = manifest::Settings::read(bundle.path(), over)?;    // no interpreter needed yet
//!   let base     = base::default_or_build(&store, &settings.python()?, progress)?;
//!   let manifest = settings.inspect(bundle.path(), &base.command(&store))?;   // parses the source, runs nothing
//!   let uv       = uv::Uv::find_or_fetch(&store, patience, progress)?;
//!   let lock     = lock::resolve(&store, &uv, &base, &manifest.requirements, settings.sources(), progress)?;
//!                                                                     // lock::keep where settings.is_locked()
//!   let packages = packages::install(&store, &uv, &base, &lock, settings.sources(), progress)?;
//!   let code     = bundle.seal(&store, &base)?;
//! ```

#![forbid(unsafe_code)]

mod allowance;
pub mod base;
pub mod build;
mod bytecode;
mod child;
pub mod code;
mod collect;
mod description;
mod elf;
mod extent;
mod file_error;
#[doc(hidden)]
pub mod fuzzed;
pub mod guest;
pub mod indexes;
mod installer;
mod interpreter;
pub mod lock;
pub mod manifest;
pub mod packages;
pub mod patience;
pub mod progress;
mod project;
pub mod python;
mod requirements;
pub mod sources;
mod staging;
mod store;
mod text;
pub mod uv;
mod zips;

pub use collect::{Collected, Scope, collect};
pub use extent::Extent;
pub use file_error::FileError;
pub use indexes::Indexes;
pub use interpreter::{Interpreter, RunError};
pub use patience::Patience;
pub use progress::{Progress, Silent};
pub use store::Store;
