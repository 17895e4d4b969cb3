//! A function's own files: what they say about it, and the layer that they become.
//!
//! ```text
//!   .py │ .zip │ .tar[.gz] │ folder
//!        └──► code::Bundle ──────► manifest::Settings ──────► manifest::Manifest
//!             unpacked, counted    header, pyproject.toml,    the entry file parsed, not run:
//!                  │               requirements.txt           the function and its convention
//!                  │                    │ requirements, sources
//!                  └─► seal: code/<id>  └─► packages::lock, packages::install
//! ```
//!
//! Everything in a bundle is a stranger's. Archives are unpacked through a directory handle that
//! leads nowhere else, sizes are counted as the bytes come, and no line of a function runs here:
//! Python sources are parsed by a process with limits of its own.
//!
//! The crate stands on `packages`, which says what a requirement may be, and on `layers`, which makes
//! directories. A deploy uses all three:
//!
//! ```no_run
//! use bundle::{code::Bundle, manifest::{Overrides, Settings}};
//! use layers::{Patience, Silent, Store, base};
//! use packages::{installer::Installer, lock, uv::Uv};
//!
//! # fn deploy(state: &std::path::Path, path: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
//! let store = Store::open(state)?;
//! let code = Bundle::from_path(&store, path)?;
//! // Plain text: no interpreter is needed yet.
//! let settings = Settings::read(code.path(), Overrides::default())?;
//! let base = base::default_or_build(&store, &settings.python()?, &Silent)?;
//! // Parses the entry file, runs nothing.
//! let manifest = settings.inspect(code.path(), &base.command(&store))?.manifest;
//! let installer = Installer::new(Uv::find_or_fetch(&store, &Patience::endless(), &Silent)?);
//! let (wanted, sources) = (&manifest.requirements, settings.sources());
//! let lock = match settings.is_locked() {
//!     true => lock::keep(&installer, &base, wanted, sources)?,
//!     false => lock::resolve(&store, &installer, &base, wanted, sources, &Silent)?,
//! };
//! if let Some(lock) = lock {
//!     packages::install(&store, &installer, &base, &lock, sources, &Silent)?;
//! }
//! let layer = code.seal(&store, &base)?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod code;
pub mod manifest;
