//! The directory that a function's layers make together: `/opt`.
//!
//! ```text
//!   layers in their order ─► unpacked one over the other, of two files of one path the later stays ─► compiled ─► opt/<id>
//! ```
//! Functions that have equal layers in an equal order, and equal packages, share one such directory.
//!
//! Packages that the function has beside its layers are there, too, at the place where every function has them: what a
//! zygote has imported from there is found again. What a layer brings itself hides the package of that name.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
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

/// Where layers have packages, and where a function has its own.
const PYTHON: &str = "python";

/// The directory of these layers and packages, for a base's Python.
fn named(digests: &[&BundleDigest], packages: Option<&Layer>, base: &Base) -> Layer {
    let mut hasher = blake3::Hasher::new();
    for digest in digests {
        hasher.update(digest.as_str().as_bytes());
    }
    if let Some(packages) = packages {
        hasher.update(packages.to_string().as_bytes());
    }
    hasher.update(b"/").update(base.minor().as_bytes());
    layer("opt", &short(&hasher.finalize()))
}

/// The modules that a layer brings, by their names at the top: for any Python, sorted.
#[must_use]
pub fn modules_of_layer(root: &Path) -> Vec<String> {
    let python = root.join(PYTHON);
    let versions = fs::read_dir(python.join("lib")).into_iter().flatten().flatten();
    let versions = versions.map(|entry| entry.path().join("site-packages"));
    let all: BTreeSet<String> =
        versions.chain([python]).flat_map(|directory| super::modules(&directory)).collect();
    all.into_iter().collect()
}

/// Makes the directory of these layers, and of packages if there are any, unless it is there. `unpack` gives the files of one
/// layer.
///
/// # Errors
/// With what `unpack` returns, and when the directory cannot be made, or not be compiled.
pub fn make_opt<E: From<CodeError> + From<FileError>>(
    store: &Store,
    base: &Base,
    digests: &[&BundleDigest],
    packages: Option<&Layer>,
    unpack: impl Fn(&BundleDigest) -> Result<Bundle, E>,
) -> Result<Layer, E> {
    let made = named(digests, packages, base);
    store.make(&made, |directory| {
        for digest in digests {
            let bundle = unpack(digest)?;
            merge(bundle.path(), directory).map_err(FileError::at("merge layers in", directory))?;
        }
        // What is mounted there needs a place.
        let guest = directory.join(RESERVED);
        fs::create_dir(&guest).map_err(FileError::at("create", &guest))?;
        bytecode::compile(&base.command(store), directory, PREFIX).map_err(CodeError::Compile)?;
        if let Some(packages) = packages {
            let python = directory.join(PYTHON);
            link(&store.layer_path(packages), &python)
                .map_err(FileError::at("link to", &python))?;
        }
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

/// Links the files of a package set into a directory, but for what a layer has there.
fn link(from: &Path, into: &Path) -> io::Result<()> {
    match into.symlink_metadata() {
        Ok(there) if !there.is_dir() => return Ok(()),
        Ok(_) => {}
        Err(_) => fs::create_dir(into)?,
    }
    let names = fs::read_dir(into)?.map(|entry| Ok(entry?.file_name()));
    let there: BTreeSet<OsString> = names.collect::<io::Result<_>>()?;
    let projects: BTreeSet<String> = there.iter().filter_map(|name| project(name)).collect();
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (name, source) = (entry.file_name(), entry.path());
        let target = into.join(&name);
        let is_directory = entry.file_type()?.is_dir();
        let is_hidden = project(&name).is_some_and(|project| projects.contains(&project));
        if is_hidden || (there.contains(&name) && !(is_directory && is_shared(&target))) {
            continue;
        }
        match is_directory {
            true => link(&source, &target)?,
            false => match fs::hard_link(&source, &target) {
                // It has as many names as the file system allows.
                Err(error) if error.kind() == io::ErrorKind::TooManyLinks => {
                    fs::copy(&source, &target).map(drop)?;
                }
                linked => linked?,
            },
        }
    }
    Ok(())
}

/// Whether several distributions may have parts of a directory: it is no package of one of them.
fn is_shared(directory: &Path) -> bool {
    directory.is_dir() && !directory.join("__init__.py").exists()
}

/// The project that a directory with metadata is of, as it is compared.
fn project(name: &OsStr) -> Option<String> {
    let (project, rest) = name.to_str()?.split_once('-')?;
    rest.ends_with(".dist-info").then(|| project.to_lowercase().replace(['.', '-'], "_"))
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

    #[test]
    fn what_a_layer_brings_hides_the_package_of_that_name_and_no_other() {
        let into = tree(&[
            ("boto3/__init__.py", "layer"),
            ("boto3-1.0.dist-info/METADATA", "layer"),
            ("space/layer.py", "layer"),
            ("six.py", "layer"),
            ("file", "layer"),
        ]);
        let from = tree(&[
            ("boto3/__init__.py", "package"),
            ("boto3/session.py", "package"),
            ("Boto3-2.0.dist-info/METADATA", "package"),
            ("botocore/__init__.py", "package"),
            ("botocore-2.0.dist-info/METADATA", "package"),
            ("space/package.py", "package"),
            ("six.py", "package"),
            ("file/x", "package"),
        ]);
        link(from.path(), into.path()).unwrap();
        let read = |name: &str| fs::read_to_string(into.path().join(name)).ok();
        for name in ["boto3/__init__.py", "space/layer.py", "six.py", "file"] {
            assert_eq!(read(name).as_deref(), Some("layer"), "{name}");
        }
        for name in ["botocore/__init__.py", "botocore-2.0.dist-info/METADATA", "space/package.py"]
        {
            assert_eq!(read(name).as_deref(), Some("package"), "{name}");
        }
        assert_eq!((read("boto3/session.py"), read("Boto3-2.0.dist-info/METADATA")), (None, None));
    }

    #[test]
    fn a_layers_modules_are_found_in_both_of_its_places() {
        let layer = tree(&[
            ("python/a.py", ""),
            ("python/b/__init__.py", ""),
            ("python/lib/python3.12/site-packages/c.py", ""),
            ("python/lib/python3.11/site-packages/c.py", ""),
            ("bin/d.py", ""),
        ]);
        assert_eq!(modules_of_layer(layer.path()), ["a", "b", "c"]);
        assert_eq!(modules_of_layer(tree(&[("bin/x", "")]).path()), [""; 0]);
    }
}
