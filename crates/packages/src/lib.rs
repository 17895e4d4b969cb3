//! What a function needs, from requirements to one directory that holds exactly these packages.
//!
//! ```text
//!   requirements ──► lock ──────────────► install ──────────────► Packages: one layer of hard links
//!   sources           │ exact versions     │ wheels/<id>     one directory a wheel, for all functions
//!                     │ and hashes         │ packages/<id>   links to exactly the wheels of one lock
//!                     └───── Installer ────┘
//!                              │  uv, under the operator's rules: indexes, bounds, patience
//!                              └─ sdist   builds what has no wheel, in sandboxes that the caller makes
//!
//!   retention   removes wheels, sets and code that no function uses, least recently used first
//! ```
//!
//! The crate knows requirements, not functions: [`requirements`] and [`sources`] check what a
//! function's files ask for, and the crate `bundle` knows in which files that stands. The directories
//! themselves are made with the crate `layers`. The worker uses this crate to deploy a function, to
//! give the engine any part of a package set, and to look after the disk.
//!
//! No code of a package runs outside a sandbox: wheels are unpacked and compiled, and [`sdist`]
//! builds in sandboxes. An address counts only when the operator allows it ([`indexes`]), and a
//! file only when its hash is the locked one.
//!
//! ```text
//!   let uv        = Uv::find_or_fetch(&store, patience, progress)?;
//!   let installer = Installer::new(uv).allowing(indexes).bounded(bounds).building_in(sandboxes);
//!   let lock      = lock::resolve(&store, &installer, &base, &wanted, &sources, progress)?;
//!   let packages  = packages::install(&store, &installer, &base, &lock, &sources, progress)?;
//! ```

#![forbid(unsafe_code)]

mod address;
mod build_error;
#[doc(hidden)]
pub mod fuzzed;
pub mod indexes;
mod install;
pub mod installer;
pub mod lock;
mod project;
pub mod requirements;
pub mod retention;
pub mod sdist;
pub mod sources;
pub mod uv;
mod wheel_file;

pub use build_error::{BuildError, SandboxError};
pub use install::{
    Clash, InstallError, Packages, Set, Verdict, ViewError, Wheel, bundled, install, is_noise,
    verify, view, view_of,
};
pub use wheel_file::WheelError;
