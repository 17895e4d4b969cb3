//! Where layers live: the state directory's `layers/` and `uv/`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sandbox::Layer;

use crate::FileError;
use crate::staging::{self, Staging};

const KINDS: [&str; 7] = ["base", "packages", "wheels", "built", "code", "opt", "guest"];

/// Where replaced layers are until no sandbox can run from them any more.
const RETIRED: &str = "retired";

/// The layers of one state directory. Any number of processes and threads may hold one.
#[derive(Clone, Debug)]
pub struct Store {
    state: PathBuf,
}

impl Store {
    /// Opens the layers below `state`, makes the directories that are not there yet, and removes
    /// what a crash left.
    ///
    /// # Errors
    /// When the directories cannot be made or read.
    pub fn open(state: &Path) -> Result<Self, FileError> {
        fs::create_dir_all(state).map_err(FileError::at("create", state))?;
        let state = state.canonicalize().map_err(FileError::at("resolve", state))?;
        let store = Self { state };
        for kind in KINDS {
            let directory = store.layers().join(kind);
            fs::create_dir_all(&directory).map_err(FileError::at("create", &directory))?;
            staging::sweep(&directory)?;
        }
        for directory in [store.kind("wheels").join("locked"), store.layers().join(RETIRED)] {
            fs::create_dir_all(&directory).map_err(FileError::at("create", &directory))?;
        }
        let uv = store.uv();
        fs::create_dir_all(uv.join("bin")).map_err(FileError::at("create", &uv))?;
        // What is below must be open to sandboxes, which see it through mounts of the warden's, and
        // not by this path.
        for directory in [store.layers(), uv.clone()] {
            fs::set_permissions(&directory, Permissions::from_mode(0o700))
                .map_err(FileError::at("close", &directory))?;
        }
        staging::sweep(&uv)?;
        Ok(store)
    }

    /// The state directory.
    #[must_use]
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The directory that all layers are relative to.
    #[must_use]
    pub fn layers(&self) -> PathBuf {
        self.state.join("layers")
    }

    /// Where a layer is, or will be.
    #[must_use]
    pub fn layer_path(&self, layer: &Layer) -> PathBuf {
        self.layers().join(layer.as_path())
    }

    /// Whether a layer is there. What is there is complete.
    #[must_use]
    pub fn has(&self, layer: &Layer) -> bool {
        self.layer_path(layer).is_dir()
    }

    /// The installer's own directory: `bin/`, `cache/`, `python/`.
    #[must_use]
    pub fn uv(&self) -> PathBuf {
        self.state.join("uv")
    }

    /// The directory of one kind of layer: `base`, `packages`, `wheels`, `built`, `code`,
    /// `opt` or `guest`.
    #[must_use]
    pub fn kind(&self, kind: &str) -> PathBuf {
        self.layers().join(kind)
    }

    /// Makes a layer unless it is there: `fill` gets an empty directory, and other callers that
    /// want the same layer wait for the outcome. Says whether `fill` ran.
    ///
    /// # Errors
    /// With what `fill` returns, and when the layer cannot be put into its place.
    pub fn make<E: From<FileError>>(
        &self,
        layer: &Layer,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<bool, E> {
        self.make_sealed(layer, fill, Staging::seal)
    }

    /// The same for a layer of hard links into others, whose files are on the disk already.
    ///
    /// # Errors
    /// As [`Store::make`].
    pub fn make_linked<E: From<FileError>>(
        &self,
        layer: &Layer,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<bool, E> {
        self.make_sealed(layer, fill, Staging::seal_links)
    }

    fn make_sealed<E: From<FileError>>(
        &self,
        layer: &Layer,
        fill: impl FnOnce(&Path) -> Result<(), E>,
        seal: impl FnOnce(Staging, &Path) -> Result<(), FileError>,
    ) -> Result<bool, E> {
        let target = self.layer_path(layer);
        if target.is_dir() {
            return Ok(false);
        }
        let (parent, name) = split(&target);
        let staging = Staging::begin(parent, &name)?;
        // Another caller may have finished it while this one waited for the lock.
        if target.is_dir() {
            return Ok(false);
        }
        fill(staging.path())?;
        seal(staging, &target)?;
        Ok(true)
    }

    /// Puts another directory of hard links in a layer's place, in one step. The old one stays, out
    /// of the way, for the sandboxes that run from it: see [`Store::bury`].
    ///
    /// # Errors
    /// With what `fill` returns, and when the directories cannot be exchanged.
    pub fn replace<E: From<FileError>>(
        &self,
        layer: &Layer,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<(), E> {
        let target = self.layer_path(layer);
        let (parent, name) = split(&target);
        let staging = Staging::begin(parent, &name)?;
        fill(staging.path())?;
        if !target.is_dir() {
            return Ok(staging.seal_links(&target)?);
        }
        Ok(staging.exchange(&target, &self.retired(&name))?)
    }

    /// A free path to move a replaced directory to.
    #[must_use]
    pub fn retired(&self, name: &str) -> PathBuf {
        let directory = self.layers().join(RETIRED);
        let free = (0u32..).map(|number| directory.join(format!("{name}.{number}")));
        free.into_iter().find(|path| !path.exists()).unwrap_or(directory)
    }

    /// Removes the directories that were replaced. Only when no sandbox of this state runs: one
    /// that was started from such a directory may open a file of it at any time.
    ///
    /// # Errors
    /// When one cannot be removed.
    pub fn bury(&self) -> Result<(), FileError> {
        let directory = self.layers().join(RETIRED);
        for entry in fs::read_dir(&directory).map_err(FileError::at("list", &directory))?.flatten()
        {
            let path = entry.path();
            fs::remove_dir_all(&path).map_err(FileError::at("remove", &path))?;
        }
        Ok(())
    }
}

fn split(target: &Path) -> (&Path, String) {
    let name = target.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    (target.parent().unwrap_or(target), name)
}

/// The layer `kind/id`. Both are plain names: a kind is one of [`Store::kind`]'s, an id comes from
/// [`short`].
#[must_use]
pub fn layer(kind: &str, id: &str) -> Layer {
    match Layer::from_str(&format!("{kind}/{id}")) {
        Ok(layer) => layer,
        Err(error) => unreachable!("kinds and hex digits are plain names: {error}"),
    }
}

/// A hash as a name, of 32 hexadecimal digits: 128 bits are enough to tell layers apart, and paths
/// stay short.
#[must_use]
pub fn short(hash: &blake3::Hash) -> String {
    hash.to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn layers_are_closed_to_others_at_their_top_and_nowhere_below() {
        let state = tempfile::tempdir().unwrap();
        // As an earlier release has made it.
        fs::create_dir(state.path().join("layers")).unwrap();
        let store = Store::open(state.path()).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&store.layers()), mode(&store.uv())), (0o700, 0o700));
        assert_eq!(mode(&store.kind("code")), 0o755);
    }

    #[test]
    fn a_layer_that_eight_threads_want_is_made_once() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::open(state.path()).unwrap();
        let wanted = layer("code", "abc");
        let made = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let fill = |directory: &Path| {
                        made.fetch_add(1, Ordering::SeqCst);
                        fs::write(directory.join("x"), "1")
                            .map_err(FileError::at("write", directory))
                    };
                    store.make::<FileError>(&wanted, fill).unwrap();
                    assert!(store.layer_path(&wanted).join("x").is_file());
                });
            }
        });
        assert_eq!(made.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_layer_whose_making_fails_is_not_there() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::open(state.path()).unwrap();
        let wanted = layer("code", "abc");
        let failed = store.make::<FileError>(&wanted, |directory| {
            fs::write(directory.join("x"), "1").unwrap();
            fs::read(directory.join("missing")).map(drop).map_err(FileError::at("read", directory))
        });
        assert!(failed.is_err());
        assert!(!store.has(&wanted));
        assert_eq!(fs::read_dir(store.kind("code")).unwrap().count(), 0);
    }
}
