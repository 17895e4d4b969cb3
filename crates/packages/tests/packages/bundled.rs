//! What pip and AWS's tools put into a folder, and what an index gives, are the same wheels.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use layers::{Silent, Store};
use packages::bundled::{self, Brought};
use packages::{Packages, Wheel, lock};

use crate::machine::{BASE, STORE, skip, told};
use crate::mending::copy_base;
use crate::uv::uv_or_skip;
use crate::wheels::{contents, file_names};

/// One with extension modules and a command, one that is pure, and one with a namespace package.
const WANTED: [&str; 3] = ["charset-normalizer==3.4.0", "six==1.16.0", "zope.event==5.0"];

/// Runs pip for the base's Python; none without a network.
fn pip(test: &str, words: &[&str]) -> Option<()> {
    let mut command = Command::new("python3");
    command.args(["-m", "pip"]).args(words).args(["--quiet", "--only-binary", ":all:"]);
    command.args(["--python-version", BASE.minor(), "--no-deps"]).args(WANTED);
    let output = command.output().unwrap();
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        skip(test, "network", &words);
        return None;
    }
    Some(())
}

/// A folder as `pip install -t` leaves it.
fn by_pip(test: &str, folder: &Path) -> Option<()> {
    pip(test, &["install", "--target", folder.to_str().unwrap()])
}

/// A folder as `sam build` leaves it: wheels unpacked without modes, and no commands.
fn by_sam(test: &str, folder: &Path) -> Option<()> {
    let wheels = folder.with_extension("wheels");
    pip(test, &["download", "--dest", wheels.to_str().unwrap()])?;
    let script = "import pathlib, sys, zipfile\n\
        for wheel in pathlib.Path(sys.argv[1]).iterdir():\n    zipfile.ZipFile(wheel).extractall(sys.argv[2])";
    told(&Command::new("python3").args(["-c", script]).arg(wheels).arg(folder).output().unwrap());
    Some(())
}

fn recognised(folder: &Path) -> Brought {
    fs::write(folder.join("app.py"), "import six\n").unwrap();
    let brought = bundled::recognise(folder, "app").unwrap();
    assert_eq!(brought.refused, []);
    brought
}

fn shelved(store: &Store, folder: &Path) -> Packages {
    let brought = recognised(folder);
    let (packages, mended) = bundled::install(store, &BASE, folder, &brought, &Silent).unwrap();
    assert!(!mended);
    packages
}

fn ids(packages: &Packages) -> Vec<&str> {
    packages.wheels.iter().map(|wheel| wheel.id.as_str()).collect()
}

/// A state of its own, on the file system of the folders that are linked from.
fn state() -> (tempfile::TempDir, Store) {
    let state = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = Store::open(state.path()).unwrap();
    copy_base(&store);
    (state, store)
}

fn modes(store: &Store, packages: &Packages) -> BTreeMap<PathBuf, u32> {
    let root = store.layer_path(&packages.layer);
    let mode = |path: &PathBuf| fs::metadata(root.join(path)).unwrap().permissions().mode();
    file_names(&root)
        .into_iter()
        .map(PathBuf::from)
        .map(|path| (path.clone(), mode(&path)))
        .collect()
}

#[test]
fn a_bundles_wheels_are_those_that_an_index_gives() {
    let test = "a_bundles_wheels_are_those_that_an_index_gives";
    let Some(uv) = uv_or_skip(test) else { return };
    let folders = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (pip, sam) = (folders.path().join("pip"), folders.path().join("sam"));
    if by_pip(test, &pip).and_then(|()| by_sam(test, &sam)).is_none() {
        return;
    }
    let (_state, store) = state();
    let first = shelved(&store, &pip);
    assert_eq!(first.imports, ["charset_normalizer", "six", "zope.event"]);
    let second = shelved(&store, &sam);
    assert_eq!(second, first);
    // The same, from the index, into a state that has not seen it.
    let wanted = WANTED.map(str::to_owned);
    let sources = packages::sources::Sources::default();
    let lock = lock::resolve(&STORE, uv, &BASE, &wanted, &sources, &Silent).unwrap().unwrap();
    let (_other, apart) = state();
    let from_index = packages::install(&apart, uv, &BASE, &lock, &sources, &Silent).unwrap();
    let without_needs = |it: &Packages| {
        let wheels = it.wheels.iter().filter(|wheel| wheel.name != "setuptools");
        wheels.map(|wheel| wheel.id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(without_needs(&from_index), ids(&first));
    // What came with a bundle first is what a lock finds, and is then fetched again when it breaks.
    let found = packages::install(&store, uv, &BASE, &lock, &sources, &Silent).unwrap();
    assert_eq!(ids(&found), ids(&from_index));
    assert_eq!(modes(&store, &found), modes(&apart, &from_index));
    assert_eq!(
        contents(&store.layer_path(&found.layer)),
        contents(&apart.layer_path(&from_index.layer))
    );
    let broken = store.layer_path(&found.layer).join("six.py");
    fs::write(&broken, "").unwrap();
    let verdicts = packages::verify(&store, uv, &Silent).unwrap();
    assert!(verdicts.iter().all(|verdict| verdict.repaired.is_ok()), "{verdicts:?}");
    assert!(fs::metadata(&broken).unwrap().len() > 30_000);
}

#[test]
fn a_broken_wheel_of_a_bundle_is_made_again_of_a_bundle() {
    let test = "a_broken_wheel_of_a_bundle_is_made_again_of_a_bundle";
    let Some(uv) = uv_or_skip(test) else { return };
    let folders = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (one, two) = (folders.path().join("one"), folders.path().join("two"));
    if by_pip(test, &one).and_then(|()| by_pip(test, &two)).is_none() {
        return;
    }
    let (_state, store) = state();
    let first = shelved(&store, &one);
    let path = store.layer_path(&first.layer).join("six.py");
    fs::write(&path, "").unwrap();
    let verdicts = packages::verify(&store, uv, &Silent).unwrap();
    let words = verdicts[0].repaired.as_ref().unwrap_err().to_string();
    assert!(words.contains("deploy that function anew"), "{words}");
    let (again, mended) =
        bundled::install(&store, &BASE, &two, &recognised(&two), &Silent).unwrap();
    assert!(mended);
    assert_eq!(again, first);
    assert!(fs::metadata(&path).unwrap().len() > 30_000);
    assert!(packages::verify(&store, uv, &Silent).unwrap().is_empty());
    assert_eq!(Wheel::all(&store).unwrap().len(), WANTED.len());
}
