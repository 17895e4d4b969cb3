//! The directory that a function's layers make together: `/opt`.
//!
//! ```text
//!   layers in their order ─► unpacked one over the other, of two files of one path the later stays ─► compiled ─► opt/<id>
//! ```
//! Functions that have equal layers in an equal order share one such directory.

use std::fs;
use std::io;
use std::path::Path;

use function::BundleDigest;
use layers::base::Base;
use layers::store::{layer, short};
use layers::{FileError, Store, bytecode};
use sandbox::Layer;

use super::{Bundle, CodeError};

/// Where layers are in a sandbox.
const PREFIX: &str = "/opt";

/// The directory below `/opt` where a sandbox has Lambswool's own files: no layer has one of this name.
pub const RESERVED: &str = "lambswool";

/// The directory of these layers, for a base's Python.
#[must_use]
fn opt<'a>(digests: impl IntoIterator<Item = &'a BundleDigest>, base: &Base) -> Layer {
    let mut hasher = blake3::Hasher::new();
    for digest in digests {
        hasher.update(digest.as_str().as_bytes());
    }
    hasher.update(base.minor().as_bytes());
    layer("opt", &short(&hasher.finalize()))
}

/// Makes that directory unless it is there. `unpack` gives the files of one layer.
///
/// # Errors
/// With what `unpack` returns, and when the directory cannot be made, or not be compiled.
pub fn make_opt<E: From<CodeError> + From<FileError>>(
    store: &Store,
    base: &Base,
    digests: &[&BundleDigest],
    unpack: impl Fn(&BundleDigest) -> Result<Bundle, E>,
) -> Result<Layer, E> {
    let made = opt(digests.iter().copied(), base);
    store.make(&made, |directory| {
        for digest in digests {
            let bundle = unpack(digest)?;
            merge(bundle.path(), directory).map_err(FileError::at("merge layers in", directory))?;
        }
        // What is mounted there needs a place.
        let guest = directory.join(RESERVED);
        fs::create_dir(&guest).map_err(FileError::at("create", &guest))?;
        bytecode::compile(&base.command(store), directory, PREFIX).map_err(CodeError::Compile)?;
        Ok::<_, E>(())
    })?;
    Ok(made)
}

/// Moves all that is in one directory into another. What is moved takes the place of what is there, but for directories: they
/// become one.
fn merge(from: &Path, into: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), into.join(entry.file_name()));
        let is_directory = entry.file_type()?.is_dir();
        match target.symlink_metadata() {
            Ok(there) if there.is_dir() && is_directory => {
                merge(&source, &target)?;
                continue;
            }
            Ok(there) if there.is_dir() => fs::remove_dir_all(&target)?,
            Ok(_) => fs::remove_file(&target)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        fs::rename(&source, &target)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_later_file_takes_the_place_of_the_earlier_and_directories_become_one() {
        let into = tree(&[]);
        for files in [
            &[("python/a.py", "1"), ("python/b.py", "1"), ("bin", "1"), ("lib/x/y", "1")][..],
            &[("python/b.py", "2"), ("python/c.py", "2"), ("bin/tool", "2"), ("lib/x", "2")],
        ] {
            merge(tree(files).path(), into.path()).unwrap();
        }
        let read = |name: &str| fs::read_to_string(into.path().join(name)).unwrap();
        let all = ["python/a.py", "python/b.py", "python/c.py", "bin/tool", "lib/x"].map(read);
        assert_eq!(all, ["1", "2", "2", "2", "2"]);
    }
}
