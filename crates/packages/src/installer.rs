//! uv under the rules of a worker: which indexes it may ask, how large a package may be, how long a
//! deploy waits, and what builds a package that has no wheel.
//!
//! ```text
//!   Uv (a program) ──► Installer ──► lock::resolve, install, verify
//!                        │ Indexes    what functions may name, and whose credentials uv gets
//!                        │ Bounds     how large a package may be, unpacked
//!                        │ Patience   how long uv is waited for
//!                        └ Builder    builds a wheel; none: what has no wheel is refused
//! ```
//!
//! Resolving and installing build wheels, and building one resolves and installs what the build
//! requires. The trait `Builder` cuts that circle: `lock` and `install` know the trait, and
//! [`crate::sdist`], which stands above both, implements it.

use std::env;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use layers::base::Base;
use layers::child::Unfinished;
use layers::{Extent, FileError, Patience, Progress, Store};
use sandbox::Layer;

use crate::build_error::BuildError;
use crate::indexes::Indexes;
use crate::sources::Sources;
use crate::uv::{Finished, Uv, run, run_watched};
use crate::wheel_file::Metadata;

/// How large a package may be, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Its files' bytes.
    pub bytes: u64,
    /// How many files.
    pub files: u64,
}

impl Default for Bounds {
    /// Twice the largest that are known: 1.9 GB, and some 25 000 files.
    fn default() -> Self {
        Self { bytes: 4 << 30, files: 50_000 }
    }
}

impl Bounds {
    /// Whether that is no more.
    pub(crate) fn hold(self, extent: Extent) -> bool {
        extent.files <= self.files && extent.bytes <= self.bytes
    }
}

/// uv with a worker's rules. Clones share what [`Installer::take_mended`] tells.
#[derive(Clone, Debug)]
pub struct Installer {
    uv: Uv,
    builder: Option<Arc<dyn Builder>>,
    bounds: Bounds,
    patience: Arc<Patience>,
    indexes: Arc<Indexes>,
    mended: Arc<AtomicBool>,
}

impl Installer {
    /// An installer of wheels alone, with the default [`Bounds`], which is waited for without end
    /// and asks the indexes of this process's environment.
    #[must_use]
    pub fn new(uv: Uv) -> Self {
        Self {
            uv,
            builder: None,
            bounds: Bounds::default(),
            patience: Arc::new(Patience::endless()),
            indexes: Arc::new(Indexes::of_environment()),
            mended: Arc::default(),
        }
    }

    /// The same installer, which refuses packages that are larger.
    #[must_use]
    pub fn bounded(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// The same installer, which is waited for no longer than that.
    #[must_use]
    pub fn waiting(self, patience: Arc<Patience>) -> Self {
        Self { patience, ..self }
    }

    /// The same installer, for functions that may name these indexes and no others.
    #[must_use]
    pub fn allowing(self, indexes: Indexes) -> Self {
        Self { indexes: Arc::new(indexes), ..self }
    }

    /// The same installer, which has what has no wheel built.
    pub(crate) fn building_with(self, builder: Arc<dyn Builder>) -> Self {
        Self { builder: Some(builder), ..self }
    }

    /// The same installer, for wheels only.
    pub(crate) fn without_building(&self) -> Self {
        Self { builder: None, ..self.clone() }
    }

    /// The program that it runs.
    #[must_use]
    pub fn uv(&self) -> &Uv {
        &self.uv
    }

    /// Whether an install has mended, or begun to mend, files of a package since this was asked
    /// last, with this installer or a clone of it: a running sandbox may have imported the broken
    /// files.
    #[must_use]
    pub fn take_mended(&self) -> bool {
        self.mended.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn note_mending(&self) {
        self.mended.store(true, Ordering::Release);
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub(crate) fn patience(&self) -> &Patience {
        &self.patience
    }

    pub(crate) fn indexes(&self) -> &Indexes {
        &self.indexes
    }

    /// What builds a wheel; none when only wheels are wanted.
    pub(crate) fn builder(&self) -> Option<&dyn Builder> {
        self.builder.as_deref()
    }

    /// A command of uv that works for a base's Python.
    pub(crate) fn command(
        &self,
        store: &Store,
        base: &Base,
        words: &[&str],
    ) -> Result<Command, FileError> {
        self.command_with(store, base, self.uv.cache(), words)
    }

    /// The same, with another cache.
    pub(crate) fn command_with(
        &self,
        store: &Store,
        base: &Base,
        cache: &Path,
        words: &[&str],
    ) -> Result<Command, FileError> {
        let mut command = self.uv.command(store, base, cache, words)?;
        // A function could give their name to an index of its own.
        for homeless in self.indexes.homeless(env::vars_os().map(|(name, _)| name)) {
            command.env_remove(homeless);
        }
        Ok(command)
    }

    /// Runs a command of [`Installer::command`] to its end. Its standard error is told line by
    /// line.
    pub(crate) fn run(
        &self,
        command: &mut Command,
        progress: &dyn Progress,
    ) -> Result<Finished, Unfinished> {
        run(command, false, &self.patience, progress)
    }

    /// The same, and ends it as soon as `excessive` says so, which is asked again and again.
    pub(crate) fn run_watched(
        &self,
        command: &mut Command,
        progress: &dyn Progress,
        excessive: impl Fn() -> bool,
    ) -> Result<Finished, Unfinished> {
        run_watched(command, false, &self.patience, progress, excessive)
    }
}

/// Makes a wheel of what has none. Implemented by [`crate::sdist`].
pub(crate) trait Builder: Send + Sync + Debug {
    /// The wheel of an exact version, built when it is not there. `hashes` are those of its locked
    /// files; none while nothing is locked yet.
    fn wheel(
        &self,
        site: Site<'_>,
        name: &str,
        version: &str,
        hashes: Option<&[&str]>,
    ) -> Result<BuiltWheel, BuildError>;
}

/// For whom a wheel is built, and with what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site<'a> {
    pub(crate) store: &'a Store,
    pub(crate) installer: &'a Installer,
    pub(crate) base: &'a Base,
    pub(crate) sources: &'a Sources,
    pub(crate) progress: &'a dyn Progress,
}

/// A wheel that was built on this machine.
#[derive(Clone, Debug)]
pub(crate) struct BuiltWheel {
    /// The `.whl` file.
    pub(crate) path: PathBuf,
    /// The layer that keeps it.
    pub(crate) kept: Layer,
    /// What resolving needs of it.
    pub(crate) metadata: Metadata,
}
