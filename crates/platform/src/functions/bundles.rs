//! The files of bundles, kept by their content.
//!
//! One tar archive for each digest, `<digest>.tar`. It is written whole or not at all, and on the disk when [`Bundles::put`]
//! returns.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use function::BundleDigest;
use tempfile::NamedTempFile;
use thiserror::Error;

/// Keeps bundles in a directory.
#[derive(Clone, Debug)]
pub struct Bundles {
    directory: PathBuf,
}

/// What could not be done with kept bundles.
#[derive(Debug, Error)]
pub enum BundleError {
    /// It is not there.
    #[error("the files of bundle {0} are gone from the state directory: deploy the function again")]
    Gone(BundleDigest),
    /// The disk failed.
    #[error("cannot {doing} the kept bundle {}", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Bundles {
    /// Of a directory, which is made when it is not there, closed to others.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(directory: &Path) -> Result<Self, BundleError> {
        let made = DirBuilder::new().mode(0o700).recursive(true).create(directory);
        made.map_err(failed("make the directory of", directory))?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// Keeps a bundle, which `write` writes when it is not there yet. Durable when it returns.
    ///
    /// # Errors
    /// When it cannot be written; nothing of it is left then.
    pub fn put(
        &self,
        digest: &BundleDigest,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(), BundleError> {
        let path = self.file(digest);
        if path.is_file() {
            return Ok(());
        }
        let keep = || -> io::Result<()> {
            let mut file = NamedTempFile::new_in(&self.directory)?;
            write(file.as_file_mut())?;
            file.as_file().sync_all()?;
            file.persist(&path)?;
            File::open(&self.directory)?.sync_all()
        };
        keep().map_err(failed("write", &path))
    }

    /// The archive of a bundle, from its beginning.
    ///
    /// # Errors
    /// When it is not there, or cannot be opened.
    pub fn get(&self, digest: &BundleDigest) -> Result<File, BundleError> {
        let path = self.file(digest);
        File::open(&path).map_err(|source| match source.kind() {
            ErrorKind::NotFound => BundleError::Gone(digest.clone()),
            _ => failed("open", &path)(source),
        })
    }

    /// Removes all others, and what an interrupted `put` has left. No `put` may run meanwhile.
    ///
    /// # Errors
    /// When the directory cannot be read, or a file not be removed.
    pub fn retain(&self, digests: &BTreeSet<BundleDigest>) -> Result<(), BundleError> {
        let kept: BTreeSet<PathBuf> = digests.iter().map(|digest| self.file(digest)).collect();
        let entries = fs::read_dir(&self.directory).map_err(failed("list", &self.directory))?;
        for entry in entries {
            let path = entry.map_err(failed("list", &self.directory))?.path();
            if !kept.contains(&path) {
                fs::remove_file(&path).map_err(failed("remove", &path))?;
            }
        }
        Ok(())
    }

    fn file(&self, digest: &BundleDigest) -> PathBuf {
        self.directory.join(format!("{digest}.tar"))
    }
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BundleError {
    move |source| BundleError::File { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    fn digest(text: &str) -> BundleDigest {
        blake3::hash(text.as_bytes()).into()
    }

    fn read(bundles: &Bundles, text: &str) -> Result<String, BundleError> {
        let mut read = String::new();
        bundles.get(&digest(text))?.read_to_string(&mut read).unwrap();
        Ok(read)
    }

    #[test]
    fn a_bundle_is_kept_until_it_is_not_among_those_that_stay() {
        let state = tempfile::tempdir().unwrap();
        let bundles = Bundles::open(&state.path().join("bundles")).unwrap();
        for text in ["a", "b"] {
            bundles.put(&digest(text), |file| file.write_all(text.as_bytes())).unwrap();
        }
        bundles.put(&digest("a"), |_| unreachable!("it is there")).unwrap();
        let bundles = Bundles::open(&state.path().join("bundles")).unwrap();
        assert_eq!(read(&bundles, "b").unwrap(), "b");
        bundles.retain(&[digest("a")].into()).unwrap();
        assert_eq!(read(&bundles, "a").unwrap(), "a");
        assert!(matches!(read(&bundles, "b"), Err(BundleError::Gone(_))));
    }

    #[test]
    fn a_bundle_that_could_not_be_written_leaves_nothing() {
        let state = tempfile::tempdir().unwrap();
        let bundles = Bundles::open(state.path()).unwrap();
        let full = |file: &mut File| {
            file.write_all(b"half")?;
            Err(ErrorKind::StorageFull.into())
        };
        assert!(matches!(bundles.put(&digest("a"), full), Err(BundleError::File { .. })));
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0);
    }
}
