//! How this machine runs versions, remembered from one start to the next.
//!
//! One JSON file for each version, beside the layers that it names. A lost file costs time, never a function: the
//! handler is made again from the version's record.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use engine::Handler;
use function::VersionId;
use layers::{FileError, Store, description};
use sandbox::{Layer, chain};
use serde::{Deserialize, Serialize};

/// The format of the files: a release that changes what a handler holds raises it, and makes all handlers again.
const FORMAT: u32 = 1;

/// The content of a file.
#[derive(Deserialize, Serialize)]
struct Remembered {
    format: u32,
    handler: Handler,
}

/// Remembers handlers in a directory.
#[derive(Clone, Debug)]
pub struct Handlers {
    store: Store,
    directory: PathBuf,
}

impl Handlers {
    /// Those of a directory, whose layers are in `store`. The directory is made when it is not there,
    /// closed to others: settings hold variables of environments.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(store: Store, directory: &Path) -> Result<Self, FileError> {
        let made = DirBuilder::new().mode(0o700).recursive(true).create(directory);
        made.map_err(FileError::at("create", directory))?;
        Ok(Self { store, directory: directory.to_owned() })
    }

    /// A layer of the handler that is no longer on the disk, if there is one.
    #[must_use]
    pub fn lost(&self, handler: &Handler) -> Option<Layer> {
        layers_of(handler).find(|layer| !self.store.has(layer)).cloned()
    }

    /// The handler of a version; none when it was never made here, or the file is of another release.
    #[must_use]
    pub fn read(&self, id: &VersionId) -> Option<Handler> {
        let remembered: Remembered = description::read(&self.file(id))?;
        let Remembered { format, handler } = remembered;
        (format == FORMAT && handler.id == *id).then_some(handler)
    }

    /// Remembers a handler, if it can: without that it is made again after the next start.
    pub fn write(&self, handler: &Handler) {
        let remembered = Remembered { format: FORMAT, handler: handler.clone() };
        if let Err(error) = description::write(&self.file(&handler.id), &remembered) {
            tracing::warn!(error = chain(&error), "how a version is run cannot be remembered");
        }
    }

    /// Forgets all others, as far as it can.
    pub fn retain(&self, ids: &BTreeSet<VersionId>) {
        let kept: BTreeSet<PathBuf> = ids.iter().map(|id| self.file(id)).collect();
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            if !kept.contains(&entry.path()) {
                // The next time comes soon enough.
                drop(fs::remove_file(entry.path()));
            }
        }
    }

    /// Where the file of a version is.
    fn file(&self, id: &VersionId) -> PathBuf {
        self.directory.join(format!("{id}.json"))
    }
}

/// The layers that a handler is made of.
pub(crate) fn layers_of(handler: &Handler) -> impl Iterator<Item = &Layer> {
    let python = [&handler.python.base, &handler.python.guest, &handler.code];
    python.into_iter().chain(&handler.packages).chain(&handler.opt)
}
