//! Base layers: the root of a sandbox's file system, made from a Python of the host, without Docker.
//!
//! ```text
//!   /usr/bin/python3 → python3.X        the host's interpreter
//!   /usr/lib/python3.X/                 its standard library, without tests, windows and installed packages
//!   /usr/lib/<where libc was>/          the libraries that they need, those that manylinux wheels expect, iconv's converters
//!   /lib64/ld-linux-x86-64.so.2         the loader, at the path that the interpreter names
//!   /etc/ /usr/share/zoneinfo/          what libraries read; authorities; time zones; locales
//!   /proc /dev /tmp /var/task /opt/…    mount points
//! ```
//!
//! `base/<id>.json` beside the layer describes it.

mod build;
mod cache;
mod choose;
mod etc;
mod finder;
mod plan;
mod stdlib;
mod system;
mod toolchain;
mod verify;

use std::path::{Path, PathBuf};

use sandbox::{Layer, PythonSpec};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use build::build;
pub use choose::{damaged, default_or_build, find, list};
pub use system::lacking;
pub use toolchain::{Lack, with_toolchain};

use crate::elf::ElfError;
use crate::python::PythonError;
use crate::{FileError, Interpreter, RunError, Store, description};

/// A base that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// Hash of what it was made from.
    pub id: String,
    /// Its Python's version: `3.12.1`.
    pub version: String,
    /// The layer with its files.
    pub layer: Layer,
    /// The interpreter's path inside it.
    pub interpreter: String,
    /// The host's interpreter that it was made from.
    pub source: PathBuf,
    /// How large it is.
    pub bytes: u64,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// Modules and other parts that this host's Python does not have, with the reason.
    pub missing: Vec<(String, String)>,
    /// How it was made: what another version of this crate made is not offered.
    format: u32,
    /// Where its shared libraries are, relative to its root.
    libraries: PathBuf,
    /// Its loader's absolute path inside it; none for a static interpreter.
    loader: Option<PathBuf>,
}

/// Why there is no base.
#[derive(Debug, Error)]
pub enum BaseError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// An executable or library could not be read.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// No Python to make it from.
    #[error(transparent)]
    Python(#[from] PythonError),
    /// The interpreter does not run where it was put; a state directory mounted noexec does that.
    #[error("the new base's interpreter does not run; is the state directory mounted noexec?")]
    Run(#[from] RunError),
    /// The interpreter looks outside the base.
    #[error("the new base's interpreter looks for its library in {}, outside the base; try another Python", path.display())]
    Outside {
        /// Where it looks.
        path: PathBuf,
    },
    /// A module that everything needs does not work.
    #[error(
        "the new base cannot import {module} ({reason}); try another Python, or install its full standard library"
    )]
    Broken {
        /// The module's dotted name.
        module: String,
        /// The interpreter's own words.
        reason: String,
    },
}

impl Base {
    /// Its minor version, such as `3.12`.
    #[must_use]
    pub fn minor(&self) -> &str {
        match self.version.match_indices('.').nth(1) {
            Some((end, _)) => &self.version[..end],
            None => &self.version,
        }
    }

    /// How to run its interpreter outside any sandbox.
    #[must_use]
    pub fn command(&self, store: &Store) -> Interpreter {
        self.command_at(&store.layer_path(&self.layer))
    }

    /// What a sandbox with this base and a guest runs.
    #[must_use]
    pub fn python(&self, guest: Layer) -> PythonSpec {
        PythonSpec { base: self.layer.clone(), guest, interpreter: self.interpreter.clone() }
    }

    /// The base of a layer, whichever release made it; none when it is gone, or its description says too little.
    #[must_use]
    pub fn of_layer(store: &Store, layer: &Layer) -> Option<Self> {
        let id = layer.as_path().file_name()?.to_str()?;
        let base: Self = description::read(&Self::description(store, id))?;
        (base.layer == *layer && store.has(layer)).then_some(base)
    }

    /// Whether this crate would make it like that.
    fn is_current(&self) -> bool {
        self.format == build::FORMAT
    }

    /// What no interpreter starts without, relative to the base's root; that first.
    fn parts(&self) -> Vec<PathBuf> {
        let inside = |path: &Path| path.strip_prefix("/").unwrap_or(path).to_owned();
        let mut parts = vec![PathBuf::new(), inside(Path::new(&self.interpreter))];
        parts.extend(self.loader.as_deref().map(inside));
        parts.push(self.libraries.clone());
        parts
    }

    fn description(store: &Store, id: &str) -> PathBuf {
        store.kind("base").join(format!("{id}.json"))
    }

    /// A base that is complete: its layer is there and so is its description, and it is of the present format.
    fn read(store: &Store, id: &str) -> Option<Self> {
        let base: Self = description::read(&Self::description(store, id))?;
        (base.is_current() && store.has(&base.layer)).then_some(base)
    }

    fn write(&self, store: &Store) -> Result<(), BaseError> {
        Ok(description::write(&Self::description(store, &self.id), self)?)
    }
}
