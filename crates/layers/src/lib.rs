//! The read-only directories that root file systems are put together from.
//!
//! ```text
//!   made from        layer           what it holds                                  becomes
//!   host Python ──► base/<id>       interpreter, libraries, standard library, /etc  /
//!   wheels      ──► packages/<id>   links to exactly the wheels of one lock         /opt/python
//!   bundle      ──► code/<id>       a function's own files                          /var/task
//!   guest files ──► guest/<id>      Lambswool's own Python                          /opt/lambswool
//! ```
//!
//! A layer is named by the hash of what it is made from. It is made beside its place and renamed
//! into it when it is complete ([`Store`], [`staging`]), byte-compiled once with unchecked hashes
//! ([`bytecode`]), and never changed afterwards. So equal layers are one directory, a crash leaves
//! none by halves, and any number of sandboxes map the same pages.
//!
//! This crate makes the two layers that functions share, [`base`] and [`guest`], and holds what
//! making any layer takes. Two crates stand on it, each on the one before:
//!
//! ```text
//!   bundle      a function's files: what they say, and their layer
//!      │
//!   packages    what a function needs: locks, wheels, package sets
//!      │
//!   layers      ◄── here
//!      ├── sandbox   names of layers
//!      └── sys       limits and signals of processes
//! ```
//!
//! | a task outside a sandbox | its rooms |
//! | --- | --- |
//! | make a layer | [`store`], [`staging`], [`description`], [`bytecode`], [`Extent`], [`FileError`] |
//! | run a program | [`Interpreter`], [`child`], [`Patience`], [`Progress`] |
//! | read what a stranger wrote | [`text`], [`zips`], [`allowance`] |
//!
//! Nothing here needs privilege: what root makes is root's, what a user makes is the user's.
//! Nothing here runs a function's code or a package's.

#![forbid(unsafe_code)]

pub mod allowance;
pub mod base;
pub mod bytecode;
pub mod child;
pub mod description;
mod elf;
mod extent;
mod file_error;
#[doc(hidden)]
pub mod fuzzed;
pub mod guest;
mod interpreter;
pub mod patience;
pub mod progress;
pub mod python;
pub mod staging;
pub mod store;
pub mod text;
pub mod zips;

pub use extent::Extent;
pub use file_error::FileError;
pub use interpreter::{Interpreter, RunError};
pub use patience::Patience;
pub use progress::{Progress, Silent};
pub use store::Store;
