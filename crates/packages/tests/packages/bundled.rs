//! What pip and AWS's tools put into a folder, and what an index gives, are the same wheels.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use layers::{Patience, Silent, Store};
use packages::bundled::{self, Brought};
use packages::installer::Bounds;
use packages::{InstallError, Packages, Wheel, lock};

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

fn install(
    store: &Store,
    folder: &Path,
    brought: &Brought,
    bounds: Bounds,
) -> Result<(Packages, bool), InstallError> {
    let patience = Patience::endless();
    bundled::install(store, &BASE, folder, brought, bounds, &patience, &Silent)
}

fn shelved(store: &Store, folder: &Path) -> Packages {
    let brought = recognised(folder);
    let (packages, mended) = install(store, folder, &brought, Bounds::default()).unwrap();
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
    let (again, mended) = install(&store, &two, &recognised(&two), Bounds::default()).unwrap();
    assert!(mended);
    assert_eq!(again, first);
    assert!(fs::metadata(&path).unwrap().len() > 30_000);
    assert!(packages::verify(&store, uv, &Silent).unwrap().is_empty());
    assert_eq!(Wheel::all(&store).unwrap().len(), WANTED.len());
}

#[test]
fn what_takes_too_much_is_given_up_and_nothing_of_it_stays() {
    let test = "what_takes_too_much_is_given_up_and_nothing_of_it_stays";
    let folders = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = folders.path().join("one");
    if by_pip(test, &folder).is_none() {
        return;
    }
    let (_state, store) = state();
    let brought = recognised(&folder);
    let small = Bounds { files: 1, ..Bounds::default() };
    let refused = install(&store, &folder, &brought, small).unwrap_err();
    assert!(matches!(refused, InstallError::Excessive { .. }) && refused.is_of_content());
    // There is no time to compile any of them.
    let none = Patience::of(std::time::Duration::ZERO, || false);
    let bounds = Bounds::default();
    let late = bundled::install(&store, &BASE, &folder, &brought, bounds, &none, &Silent);
    let late = late.unwrap_err();
    assert!(matches!(late, InstallError::Compile(_)) && late.is_of_content(), "{late}");
    assert!(Wheel::all(&store).unwrap().is_empty());
    let left = fs::read_dir(store.kind("wheels")).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name().into_string().unwrap()).collect();
    assert!(left.iter().all(|name| !name.contains("bundled-")), "{left:?}");
    assert_eq!(shelved(&store, &folder).wheels.len(), WANTED.len());
}

#[test]
fn packages_whose_lists_say_no_sizes_are_bounded_as_well() {
    let test = "packages_whose_lists_say_no_sizes_are_bounded_as_well";
    let folders = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = folders.path().join("one");
    if by_pip(test, &folder).is_none() {
        return;
    }
    let record = folder.join("six-1.16.0.dist-info/RECORD");
    let text = fs::read_to_string(&record).unwrap();
    let unsized_row = |line: &str| format!("{},\n", line.rsplit_once(',').unwrap().0);
    fs::write(&record, text.lines().map(unsized_row).collect::<String>()).unwrap();
    let mut brought = recognised(&folder);
    brought.distributions.retain(|one| one.name == "six");
    let (_state, store) = state();
    let bounds = Bounds { bytes: 20 << 10, files: 100 };
    let endless = Patience::endless();
    let made = bundled::install(&store, &BASE, &folder, &brought, bounds, &endless, &Silent);
    assert!(made.unwrap_err().is_of_content(), "34 KiB are more than 20");
    assert!(Wheel::all(&store).unwrap().is_empty());
}
