//! Locks and package layers with the real uv and real wheels.

use std::fs;
use std::process::Command;
use std::time::Instant;

use layers::python::PythonRequest;
use layers::{Silent, base};
use packages::InstallError;
use packages::installer::Installer;
use packages::lock::{self, Lock, LockError};
use packages::sources::Sources;

use crate::indexes::limited;
use crate::machine::{BASE, Heard, STORE, again, child_state, holds, is_root, skip, tag, told};
use crate::uv::uv_or_skip;

const PILLOW: &str = "Pillow==11.0.0";

fn resolve(uv: &Installer, wanted: &[&str]) -> Result<Lock, LockError> {
    let wanted: Vec<String> = wanted.iter().map(|&text| text.to_owned()).collect();
    lock::resolve(&STORE, uv, &BASE, &wanted, &Sources::default(), &Silent)
        .map(|lock| lock.expect("something was wanted"))
}

#[test]
fn a_hash_that_was_given_counts_beside_requirements_without_one() {
    let test = "a_hash_that_was_given_counts_beside_requirements_without_one";
    let Some(uv) = uv_or_skip(test) else { return };
    let six = "sha256:8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254";
    let given = format!("six==1.16.0 --hash={six}");
    let lock = resolve(uv, &[&given, "idna==3.10"]).unwrap();
    let lines = lock.requirements();
    assert!(lines.contains(&given), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("idna==3.10 --hash=")), "{lines:?}");
    let wrong = given.replace("8abb", "0000");
    let error = resolve(uv, &[&wrong, "idna==3.10"]).unwrap_err();
    assert!(matches!(&error, LockError::Hash { name } if name == "six"), "{error}");
}

#[test]
fn a_marker_that_uv_cannot_read_is_named() {
    let Some(uv) = uv_or_skip("a_marker_that_uv_cannot_read_is_named") else { return };
    let odd = "six==1.16.0 ; python_version > 3";
    let error = resolve(uv, &[odd, "idna"]).unwrap_err();
    assert!(error.to_string().contains(odd), "{error}");
}

#[test]
fn pillow_is_locked_installed_compiled_and_works() {
    let Some(uv) = uv_or_skip("pillow_is_locked_installed_compiled_and_works") else { return };
    let lock = resolve(uv, &[PILLOW, "python-dateutil==2.9.0.post0"]).unwrap();
    let names: Vec<&str> = lock.distributions.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["pillow", "python-dateutil", "six"]);
    assert!(lock.text.contains("--hash=sha256:"));
    assert_eq!(lock.direct, ["pillow", "python-dateutil"]);
    let started = Instant::now();
    let packages =
        packages::install(&STORE, uv, &BASE, &lock, &Sources::default(), &Silent).unwrap();
    eprintln!("install: {} ms", started.elapsed().as_millis());
    assert_eq!(packages.imports, ["PIL", "dateutil"]);

    let root = STORE.layer_path(&packages.layer);
    let script = format!(
        "import sys; sys.path.insert(0, {:?})\n\
         import io, PIL.Image as I\n\
         b = io.BytesIO(); I.new('RGB', (64, 48), 'teal').resize((32, 24)).save(b, 'JPEG')\n\
         print(I.open(io.BytesIO(b.getvalue())).size)",
        root.display().to_string()
    );
    let output = told(&BASE.command(&STORE).command().args(["-c", &script]).output().unwrap());
    assert_eq!(output, "(32, 24)\n");
    let compiled = root.join(format!("PIL/__pycache__/Image.{}.pyc", tag()));
    assert!(holds(&compiled, "/opt/python/PIL/Image.py"));
    assert_eq!(fs::read(compiled).unwrap()[4..8], [1, 0, 0, 0]);
    assert!(!root.join(".lock").exists());
}

#[test]
fn the_same_lock_is_installed_once_and_needs_no_network_the_second_time() {
    let test = "the_same_lock_is_installed_once_and_needs_no_network_the_second_time";
    let heard = Heard::default();
    let wanted = [PILLOW.to_owned()];
    let Some(uv) = uv_or_skip(test) else { return };
    let lock =
        lock::resolve(&STORE, uv, &BASE, &wanted, &Sources::default(), &heard).unwrap().unwrap();
    if child_state().is_some() {
        let packages =
            packages::install(&STORE, uv, &BASE, &lock, &Sources::default(), &heard).unwrap();
        eprintln!("offline {} {}", lock.id, packages.layer);
        return;
    }
    let packages =
        packages::install(&STORE, uv, &BASE, &lock, &Sources::default(), &heard).unwrap();
    let steps = heard.steps.lock().unwrap().len();
    let second = packages::install(&STORE, uv, &BASE, &lock, &Sources::default(), &heard).unwrap();
    assert!(!second.fetched);
    assert_eq!(second, packages::Packages { fetched: false, ..packages.clone() });
    assert_eq!(heard.steps.lock().unwrap().len(), steps);
    if !is_root() {
        return skip(test, "root", "only root can go without a network");
    }
    fs::remove_dir_all(STORE.layer_path(&packages.layer)).unwrap();
    let started = Instant::now();
    let output = again(&["unshare", "-n"], &format!("installs::{test}"), STORE.layers().as_path());
    told(&output);
    let output = String::from_utf8(output.stderr).unwrap();
    assert!(output.contains(&format!("offline {} {}", lock.id, packages.layer)), "{output}");
    assert!(started.elapsed().as_secs() < 8, "took {:?}", started.elapsed());
}

#[test]
fn an_exact_list_with_hashes_is_kept_as_it_is() {
    let Some(uv) = uv_or_skip("an_exact_list_with_hashes_is_kept_as_it_is") else { return };
    let lock = resolve(uv, &["six==1.16.0"]).unwrap();
    let joined = lock.text.replace("\\\n", " ");
    let line = joined.split_whitespace().collect::<Vec<_>>().join(" ");
    let kept = resolve(uv, &[&line]).unwrap();
    assert_eq!((kept.requirements(), kept.direct.len()), (vec![line.clone()], 0));
    assert_eq!(kept.distributions, [("six".to_owned(), "1.16.0".to_owned())]);
    let locked = lock::keep(uv, &BASE, &[line], &Sources::default()).unwrap().unwrap();
    assert_eq!(locked.requirements(), kept.requirements());
    assert_eq!(
        packages::install(&STORE, uv, &BASE, &kept, &Sources::default(), &Silent).unwrap().imports,
        ["six"]
    );
}

#[test]
fn a_list_with_hashes_is_resolved_and_must_have_all_that_it_needs() {
    let test = "a_list_with_hashes_is_resolved_and_must_have_all_that_it_needs";
    let Some(uv) = uv_or_skip(test) else { return };
    let whole = resolve(uv, &["python-dateutil==2.9.0.post0"]).unwrap();
    let lines = whole.requirements();
    let [dateutil, six] = lines.iter().map(String::as_str).collect::<Vec<_>>()[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(resolve(uv, &[six, dateutil]).unwrap().requirements(), lines);
    if child_state().is_some() {
        return;
    }
    let unhashed = |wanted: &[&str]| match resolve(uv, wanted).unwrap_err() {
        LockError::Unhashed { names } => names,
        error => panic!("{error}"),
    };
    assert_eq!(unhashed(&[dateutil]), ["six"]);
    let requests = resolve(uv, &["requests==2.31.0"]).unwrap().requirements();
    let extra = requests.iter().map(|line| line.replace("requests==", "requests[socks]=="));
    let extra: Vec<String> = extra.collect();
    assert_eq!(unhashed(&extra.iter().map(String::as_str).collect::<Vec<_>>()), ["pysocks"]);
    // One without a hash leaves it open what else comes.
    let open = resolve(uv, &[dateutil, "idna==3.10"]).unwrap();
    assert_eq!((open.distributions.len(), open.direct.len()), (3, 2));
    let old = resolve(uv, &["idna==2.4"]).unwrap().requirements();
    let requests = requests.iter().find(|line| line.starts_with("requests==")).unwrap();
    let error = resolve(uv, &[requests, &old[0]]).unwrap_err();
    assert!(matches!(error, LockError::Unsatisfiable { .. }), "{error}");
    // Constraints limit it, and their hashes count.
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("requirements.txt", &format!("-c limits.txt\n{dateutil}\n")),
        ("limits.txt", &format!("{six}\n")),
    ] {
        fs::write(folder.path().join(file), text).unwrap();
    }
    let of_folder = || {
        let wanted = [dateutil.to_owned()];
        lock::resolve(&STORE, uv, &BASE, &wanted, &limited(folder.path()), &Silent)
    };
    assert_eq!(of_folder().unwrap().unwrap().requirements(), lines);
    fs::write(folder.path().join("limits.txt"), "python-dateutil<2.9\n").unwrap();
    let error = of_folder().unwrap_err();
    assert!(matches!(error, LockError::Unsatisfiable { .. }), "{error}");
    if !is_root() {
        return skip(test, "root", "only root can go without a network");
    }
    told(&again(&["unshare", "-n"], &format!("installs::{test}"), &STORE.layers()));
}

#[test]
fn what_cannot_be_resolved_is_told_in_the_installers_own_words() {
    let Some(uv) = uv_or_skip("what_cannot_be_resolved_is_told_in_the_installers_own_words") else {
        return;
    };
    let error = resolve(uv, &["lambswool-no-such-package-at-all"]).unwrap_err();
    assert!(matches!(error, LockError::Unsatisfiable { .. }), "{error}");
    assert!(
        error.to_string().contains("lambswool-no-such-package-at-all was not found"),
        "{error}"
    );
    let error = resolve(uv, &["Pillow==99.0"]).unwrap_err();
    assert!(error.to_string().contains("no version of pillow==99.0"), "{error}");
    let error = resolve(uv, &["six>=1.16", "six<1.10"]).unwrap_err();
    assert!(matches!(error, LockError::Unsatisfiable { .. }), "{error}");
}

#[test]
fn a_package_without_wheels_is_not_built_without_sandboxes() {
    let Some(uv) = uv_or_skip("a_package_without_wheels_is_not_built_without_sandboxes") else {
        return;
    };
    let error = resolve(uv, &["docopt==0.6.2"]).unwrap_err();
    assert!(matches!(error, LockError::NoWheel { .. }), "{error}");
    assert!(error.to_string().contains("building from source is off"), "{error}");
}

#[test]
fn a_file_that_is_not_the_locked_one_is_refused_and_leaves_nothing() {
    let Some(uv) = uv_or_skip("a_file_that_is_not_the_locked_one_is_refused_and_leaves_nothing")
    else {
        return;
    };
    let wrong = format!("six==1.16.0 --hash=sha256:{}", "0".repeat(64));
    let error = resolve(uv, &[&wrong]).unwrap_err();
    assert!(matches!(&error, LockError::Hash { name } if name == "six"), "{error}");
    let lock = lock::keep(uv, &BASE, &[wrong], &Sources::default()).unwrap().unwrap();
    let heard = Heard::default();
    let error =
        packages::install(&STORE, uv, &BASE, &lock, &Sources::default(), &heard).unwrap_err();
    assert!(matches!(error, InstallError::Hash { .. }), "{error}");
    assert!(!heard.lines.lock().unwrap().is_empty());
    assert!(!STORE.layers().join("packages").join(&lock.id).exists());
}

#[test]
fn each_python_gets_its_own_set() {
    let Some(uv) = uv_or_skip("each_python_gets_its_own_set") else { return };
    let other = layers::python::discover().find(|python| !python.version.starts_with(BASE.minor()));
    let Some(other) = other else {
        return skip("each_python_gets_its_own_set", "pythons", "there is only one Python here");
    };
    let other = base::build(&STORE, &other, &Silent).unwrap();
    assert_eq!(
        base::find(&STORE, &PythonRequest::parse(other.minor()).unwrap()).unwrap().unwrap(),
        other
    );
    let wanted = ["numpy".to_owned()];
    let of = |base| {
        lock::resolve(&STORE, uv, base, &wanted, &Sources::default(), &Silent).unwrap().unwrap()
    };
    let (mine, others) = (of(&BASE), of(&other));
    assert_ne!(mine.id, others.id);
    for (base, lock) in [(&*BASE, mine), (&other, others)] {
        let packages =
            packages::install(&STORE, uv, base, &lock, &Sources::default(), &Silent).unwrap();
        assert_eq!(packages.imports, ["numpy"]);
        let root = STORE.layer_path(&packages.layer).display().to_string();
        let script = format!(
            "import sys; sys.path.insert(0, {root:?}); import numpy; print(numpy.arange(4).sum())"
        );
        assert_eq!(
            told(&base.command(&STORE).command().args(["-c", &script]).output().unwrap()),
            "6\n"
        );
    }
}

#[test]
fn without_a_network_inexact_requirements_are_resolved_from_the_cache_and_others_say_why_not() {
    let test =
        "without_a_network_inexact_requirements_are_resolved_from_the_cache_and_others_say_why_not";
    let Some(uv) = uv_or_skip(test) else { return };
    if child_state().is_none() {
        resolve(uv, &["six"]).unwrap();
        if !is_root() {
            return skip(test, "root", "only root can go without a network");
        }
        let started = Instant::now();
        told(&again(&["unshare", "-n"], &format!("installs::{test}"), &STORE.layers()));
        return assert!(started.elapsed().as_secs() < 20, "took {:?}", started.elapsed());
    }
    let started = Instant::now();
    let names = resolve(uv, &["six"]).unwrap().distributions;
    eprintln!("offline: {} ms", started.elapsed().as_millis());
    assert_eq!(names[0].0, "six");
    let error = resolve(uv, &["lambswool-never-cached"]).unwrap_err();
    assert!(matches!(error, LockError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("cannot be reached"), "{error}");
}

#[test]
fn a_base_with_packages_mounted_works_as_a_root_directory() {
    let test = "a_base_with_packages_mounted_works_as_a_root_directory";
    let Some(uv) = uv_or_skip(test) else { return };
    if !is_root() {
        return skip(test, "root", "mounting needs root");
    }
    let lock = resolve(uv, &[PILLOW, "numpy==2.1.3"]).unwrap();
    let packages =
        packages::install(&STORE, uv, &BASE, &lock, &Sources::default(), &Silent).unwrap();
    let script = "import sys; sys.path.insert(0, '/opt/python'); import numpy, PIL.Image, PIL._imaging; \
                  print(numpy.linalg.inv(numpy.eye(3)).trace(), PIL._imaging.__file__)";
    // In a mount namespace of its own, so that nothing stays mounted whatever happens.
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", "mount --bind \"$1\" \"$2/opt/python\" && exec chroot \"$2\" /usr/bin/python3 -I -S -c \"$3\""]);
    command
        .arg("sh")
        .arg(STORE.layer_path(&packages.layer))
        .arg(STORE.layer_path(&BASE.layer))
        .arg(script);
    let tag = format!("{}-{}-linux-gnu", tag(), std::env::consts::ARCH);
    let output = command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output().unwrap();
    assert_eq!(told(&output), format!("3.0 /opt/python/PIL/_imaging.{tag}.so\n"));
}
