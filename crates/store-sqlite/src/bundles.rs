//! Bundles as files: `<digest>.tar`, written whole or not at all.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use function::BundleDigest;
use store::{Bundles, Pack, StoreError};
use tempfile::NamedTempFile;
use thiserror::Error;

const STORE: &str = "the bundles";

/// Bundles in a directory.
#[derive(Clone, Debug)]
pub struct FileBundles {
    directory: PathBuf,
}

/// What failed on which file.
#[derive(Debug, Error)]
#[error("{}", path.display())]
struct FileFailed {
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl FileBundles {
    /// Opens the directory. Makes it when it is not there, closed to other users.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let made = DirBuilder::new().mode(0o700).recursive(true).create(directory);
        made.map_err(failed("cannot be made", directory))?;
        Ok(Self { directory: directory.to_owned() })
    }

    fn file(&self, digest: &BundleDigest) -> PathBuf {
        self.directory.join(format!("{digest}.tar"))
    }
}

impl Bundles for FileBundles {
    fn put(&self, digest: &BundleDigest, pack: Pack<'_>) -> Result<(), StoreError> {
        let path = self.file(digest);
        if path.is_file() {
            return Ok(());
        }
        let mut keep = || -> io::Result<()> {
            let mut file = NamedTempFile::new_in(&self.directory)?;
            pack(file.as_file_mut())?;
            file.as_file().sync_all()?;
            file.persist(&path)?;
            File::open(&self.directory)?.sync_all()
        };
        keep().map_err(failed("cannot be written", &path))
    }

    fn get(&self, digest: &BundleDigest) -> Result<Option<Box<dyn Read + Send>>, StoreError> {
        let path = self.file(digest);
        match File::open(&path) {
            Ok(file) => Ok(Some(Box::new(file))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("cannot be read", &path)(error)),
        }
    }

    fn remove(&self, digest: &BundleDigest) -> Result<(), StoreError> {
        let path = self.file(digest);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(failed("cannot be removed", &path)(error))
            }
            _ => Ok(()),
        }
    }

    fn retain(&self, digests: &BTreeSet<BundleDigest>) -> Result<(), StoreError> {
        let kept: BTreeSet<PathBuf> = digests.iter().map(|digest| self.file(digest)).collect();
        let unread = || failed("cannot be read", &self.directory);
        for entry in fs::read_dir(&self.directory).map_err(unread())? {
            let path = entry.map_err(unread())?.path();
            if !kept.contains(&path) {
                fs::remove_file(&path).map_err(failed("cannot be removed", &path))?;
            }
        }
        Ok(())
    }
}

fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    move |source| {
        let source = FileFailed { path: path.to_owned(), source };
        StoreError::Database { store: STORE, step, source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_bundle_that_could_not_be_written_leaves_nothing() {
        let state = tempfile::tempdir().unwrap();
        let directory = state.path().join("bundles");
        let bundles = FileBundles::open(&directory).unwrap();
        let mode = directory.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let digest = blake3::hash(b"a").into();
        let full = bundles.put(&digest, &mut |archive| {
            archive.write_all(b"half")?;
            Err(ErrorKind::StorageFull.into())
        });
        assert_eq!(full.unwrap_err().to_string(), "the bundles cannot be written");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        assert!(bundles.get(&digest).unwrap().is_none());
    }
}
