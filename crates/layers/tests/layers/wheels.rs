//! Wheels in the store and the sets that are linked from them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use layers::lock;
use layers::packages::{self, InstallError, Packages, Set, ViewError, Wheel, view, view_of};
use layers::sources::Sources;
use layers::uv::Uv;
use layers::{Progress, Silent, Store};

use crate::index::{Index, wheel};
use crate::indexes::sources;
use crate::machine::{BASE, Heard, STORE, child_state, told, uv_or_skip};

/// What this test run made up, so that it is in no store yet.
fn fresh(name: &str) -> String {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    format!("{name}{now:x}")
}

fn install(
    uv: &Uv,
    wanted: &[&str],
    sources: &Sources,
    progress: &dyn Progress,
) -> Result<Packages, InstallError> {
    let wanted: Vec<String> = wanted.iter().map(|&text| text.to_owned()).collect();
    let lock = lock::resolve(&STORE, uv, &BASE, &wanted, sources, &Silent).unwrap().unwrap();
    packages::install(&STORE, uv, &BASE, &lock, sources, progress)
}

fn root(packages: &Packages) -> PathBuf {
    STORE.layer_path(&packages.layer)
}

/// Runs a script that sees a package set, as a sandbox's interpreter sees it.
fn python(root: &Path, script: &str) -> String {
    let script =
        format!("import sys; sys.path.insert(0, {:?})\n{script}", root.display().to_string());
    told(&BASE.command(&STORE).command().args(["-c", &script]).output().unwrap())
}

/// Every file below a directory with its content.
fn contents(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read(path).unwrap());
            }
        }
    }
    found
}

/// A listing in which what is knowingly different is made equal: bytecode, which uv does not write; the installer's
/// lock; the first line of commands, and so their hashes.
fn comparable(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let listed = contents(root)
        .into_iter()
        .filter(|(path, _)| path != ".lock" && !path.contains("__pycache__/"));
    let alike = |(path, content): (String, Vec<u8>)| {
        let text = || String::from_utf8_lossy(&content);
        let content = if path.starts_with("bin/") {
            text().split_once('\n').unwrap().1.as_bytes().to_vec()
        } else if path.ends_with(".dist-info/RECORD") {
            let text = text();
            let rows = text.lines().map(|row| match row.strip_prefix("bin/") {
                Some(rest) => format!("bin/{}\n", rest.split(',').next().unwrap()),
                None => format!("{row}\n"),
            });
            rows.collect::<String>().into_bytes()
        } else {
            content
        };
        (path, content)
    };
    listed.map(alike).collect()
}

#[test]
fn a_set_is_byte_for_byte_what_uv_installs_into_one_directory() {
    let Some(uv) = uv_or_skip("a_set_is_byte_for_byte_what_uv_installs_into_one_directory") else {
        return;
    };
    let flats = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for wanted in [
        "pandas==2.2.3",
        "django==5.1.4",
        "boto3==1.35.0",
        "google-cloud-storage==2.18.2",
        "scipy==1.14.1",
        "opencv-python-headless==4.10.0.84",
        "pillow==11.0.0",
    ] {
        let lock =
            lock::resolve(&STORE, uv, &BASE, &[wanted.to_owned()], &Sources::default(), &Silent);
        let lock = lock.unwrap().unwrap();
        let ours =
            packages::install(&STORE, uv, &BASE, &lock, &Sources::default(), &Silent).unwrap();
        let list = flats.path().join("lock.txt");
        fs::write(&list, &lock.text).unwrap();
        let flat = flats.path().join(wanted);
        let mut command = Command::new(&uv.program);
        command
            .args(["pip", "install", "--quiet", "--no-deps", "--require-hashes"])
            .arg("--python");
        command.arg(&BASE.source).arg("--cache-dir").arg(flats.path().join("cache"));
        told(&command.arg("--target").arg(&flat).arg("-r").arg(&list).output().unwrap());
        let (ours_now, theirs) = (comparable(&root(&ours)), comparable(&flat));
        let names = |all: &BTreeMap<String, Vec<u8>>| all.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&ours_now), names(&theirs), "{wanted}");
        for (path, content) in &theirs {
            assert!(ours_now[path] == *content, "{wanted}: {path} differs");
        }
        assert!(theirs.len() > 50 && ours.clashes.is_empty(), "{wanted}: {:?}", ours.clashes);
        fs::remove_dir_all(flat).unwrap();
    }
}

#[test]
fn a_subset_is_linked_in_moments_and_holds_nothing_else() {
    let Some(uv) = uv_or_skip("a_subset_is_linked_in_moments_and_holds_nothing_else") else {
        return;
    };
    let whole =
        install(uv, &["pandas==2.2.3", "six==1.16.0"], &Sources::default(), &Silent).unwrap();
    let part: Vec<Wheel> =
        whole.wheels.iter().filter(|w| ["numpy", "six"].contains(&&*w.name)).cloned().collect();
    let set = view(&STORE, &part).unwrap();
    assert_eq!(view_of(&STORE, part.iter().rev().map(|w| w.id.as_str())).unwrap(), set);
    assert!(matches!(view_of(&STORE, ["six-9-0"]), Err(ViewError::Missing(_))));
    let path = STORE.layer_path(&set.layer);
    let mut infos = file_names(&path);
    infos.retain(|name| name.ends_with(".dist-info"));
    infos.sort();
    assert_eq!(infos.len(), 2, "{infos:?}");
    assert_eq!(python(&path, "import numpy, six; print(numpy.arange(4).sum())"), "6\n");
    let file =
        "numpy/__pycache__/__init__.cpython-311.pyc".replace("311", &BASE.minor().replace('.', ""));
    let inode = |root: &Path| fs::metadata(root.join(&file)).unwrap().ino();
    let wheel = STORE.layers().join("wheels").join(&part[0].id);
    assert_eq!(inode(&path), inode(&root(&whole)));
    assert_eq!(inode(&path), inode(&wheel), "the same file: no bytes, one copy in memory");
}

#[test]
fn data_scripts_headers_and_pth_files_are_where_they_are_known_to_be() {
    let Some(uv) = uv_or_skip("data_scripts_headers_and_pth_files_are_where_they_are_known_to_be")
    else {
        return;
    };
    let (index, name) = (Index::open(), fresh("odd"));
    let data = format!("{name}-1.0.data");
    let (file, bytes) = wheel(
        &name,
        "1.0",
        &[
            ("odd_module.py", "WHERE = __file__\n"),
            ("odd.pth", "import sys; sys.pth_was_run = True\n"),
            (
                &format!("{name}-1.0.dist-info/entry_points.txt"),
                "[console_scripts]\nodd = odd_module:main\n",
            ),
            (&format!("{data}/data/share/odd/table.csv"), "1,2\n"),
            (&format!("{data}/headers/odd.h"), "#define ODD\n"),
            (&format!("{data}/scripts/odd-tool"), "#!python\nprint('tool')\n"),
            (&format!("{data}/platlib/odd_plat.py"), "PLAT = True\n"),
        ],
    );
    index.add(&file, bytes);
    let of = sources(&index, "");
    let set = install(uv, &[&name], &of, &Silent).unwrap();
    let root = root(&set);
    assert_eq!(set.wheels[0].modules, ["odd_module", "odd_plat"]);
    for path in ["odd.pth", "share/odd/table.csv", "odd_plat.py", "bin/odd", "bin/odd-tool"] {
        assert!(root.join(path).is_file(), "{path} in {:?}", contents(&root).keys());
    }
    for script in ["bin/odd", "bin/odd-tool"] {
        let text = fs::read_to_string(root.join(script)).unwrap();
        assert!(text.starts_with("#!/usr/bin/python3\n"), "{text}");
        assert_eq!(fs::metadata(root.join(script)).unwrap().mode() & 0o777, 0o755);
    }
    assert_eq!(
        python(&root, "import odd_plat; print(hasattr(sys, 'pth_was_run'), odd_plat.PLAT)"),
        "False True\n"
    );
    let host = BASE.source.to_str().unwrap();
    for (path, content) in contents(&root) {
        let text = String::from_utf8_lossy(&content);
        assert!(!text.contains(host) && !text.contains(STORE.layers().to_str().unwrap()), "{path}");
    }
}

#[test]
fn a_file_of_two_wheels_is_the_later_ones_and_is_told() {
    let Some(uv) = uv_or_skip("a_file_of_two_wheels_is_the_later_ones_and_is_told") else { return };
    let (index, name) = (Index::open(), fresh("twin"));
    let (a, b) = (format!("{name}_a"), format!("{name}_b"));
    for (name, files) in [
        (&a, vec![("twin/__init__.py", "WHO = 'a'\n"), ("twin/a.py", "")]),
        // Of the same size, and without bytecode of its own: what a stale one would do shows.
        (&b, vec![("twin/__init__.py", "WHO = 'b'\n"), ("twin/b.py", "")]),
    ] {
        let (file, bytes) = wheel(name, "1.0", &files);
        index.add(&file, bytes);
    }
    let heard = Heard::default();
    let set = install(uv, &[&b, &a], &sources(&index, ""), &heard).unwrap();
    assert_eq!(set.clashes.len(), 1, "{:?}", set.clashes);
    assert_eq!(set.clashes[0].path, Path::new("twin/__init__.py"));
    assert!(set.clashes[0].kept.ends_with("-b"), "{:?}", set.clashes);
    let lines = heard.lines.lock().unwrap();
    assert!(lines.iter().any(|line| line.contains("twin/__init__.py is of")), "{lines:?}");
    assert_eq!(python(&root(&set), "import twin, twin.a, twin.b; print(twin.WHO)"), "b\n");
    let (file, bytes) = wheel(&format!("{name}_c"), "1.0", &[("twin", "no directory\n")]);
    index.add(&file, bytes);
    let error =
        install(uv, &[&a, &format!("{name}_c")], &sources(&index, ""), &Silent).unwrap_err();
    assert!(error.to_string().contains("twin is a file in one"), "{error}");
}

#[test]
fn a_wheel_that_many_want_at_once_is_fetched_once() {
    let Some(uv) = uv_or_skip("a_wheel_that_many_want_at_once_is_fetched_once") else { return };
    let (index, name) = (Index::open(), fresh("wanted"));
    let names = ["one", "two", "all"].map(|which| format!("{name}_{which}"));
    for name in &names {
        let (file, bytes) = wheel(name, "1.0", &[("m.py", name)]);
        index.add(&file, bytes);
    }
    let of = sources(&index, "");
    let lock = |name: &String| {
        lock::resolve(&STORE, uv, &BASE, std::slice::from_ref(name), &of, &Silent).unwrap().unwrap()
    };
    let fetched = |name: &str| index.asked(&format!("/files/{name}-"));
    let single = lock(&names[0]);
    let before = fetched(&names[0]);
    packages::install(&STORE, uv, &BASE, &single, &of, &Silent).unwrap();
    let once = fetched(&names[0]) - before;
    assert!(once > 0);
    // Two locks, so that it is the wheel that is shared and not the set.
    let both = lock::resolve(&STORE, uv, &BASE, &names[1..], &of, &Silent).unwrap().unwrap();
    let alone = lock(&names[2]);
    let before = fetched(&names[2]);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let lock = if number % 2 == 0 { &both } else { &alone };
            scope.spawn(|| packages::install(&STORE, uv, &BASE, lock, &of, &Silent).unwrap());
        }
    });
    assert_eq!(fetched(&names[2]) - before, once);
}

#[test]
fn a_changed_file_is_found_and_mended_beside_who_runs_from_it() {
    let Some(uv) = uv_or_skip("a_changed_file_is_found_and_mended_beside_who_runs_from_it") else {
        return;
    };
    // A state of its own: verifying looks at everything.
    let state = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = Store::open(state.path()).unwrap();
    copy_base(&store);
    let (index, name) = (Index::open(), fresh("frail"));
    let (file, bytes) = wheel(&name, "1.0", &[("frail.py", "WHO = 'whole'\n")]);
    index.add(&file, bytes);
    let of = sources(&index, "");
    let wanted = [name.clone()];
    let lock = lock::resolve(&store, uv, &BASE, &wanted, &of, &Silent).unwrap().unwrap();
    let set = packages::install(&store, uv, &BASE, &lock, &of, &Silent).unwrap();
    assert!(packages::verify(&store, uv, &Silent).unwrap().is_empty());

    let running = File::open(store.layer_path(&set.layer)).unwrap();
    let seen = PathBuf::from(format!("/proc/self/fd/{}/frail.py", running.as_raw_fd()));
    let path = store.layer_path(&set.layer).join("frail.py");
    fs::write(&path, "WHO = 'harmd'\n").unwrap();
    let verdicts = packages::verify(&store, uv, &Silent).unwrap();
    assert_eq!(verdicts.len(), 1, "{verdicts:?}");
    assert_eq!(verdicts[0].fault, "frail.py was changed");
    verdicts[0].repaired.as_ref().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "WHO = 'whole'\n");
    assert_eq!(fs::read_to_string(&seen).unwrap(), "WHO = 'harmd'\n", "as it was mounted");
    assert!(packages::verify(&store, uv, &Silent).unwrap().is_empty());

    // What is shorter shows at the next deploy, without reading anything.
    fs::write(&path, "").unwrap();
    let again = packages::install(&store, uv, &BASE, &lock, &of, &Silent).unwrap();
    assert_eq!(again, set);
    assert_eq!(fs::read_to_string(&path).unwrap(), "WHO = 'whole'\n");
    // A link that is gone is put back from the wheel.
    fs::remove_file(&path).unwrap();
    packages::install(&store, uv, &BASE, &lock, &of, &Silent).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "WHO = 'whole'\n");
    assert!(seen.exists());
    store.bury().unwrap();
    assert!(!seen.exists(), "once nothing runs, what was replaced goes");
}

fn file_names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Gives another store the base that all tests share.
fn copy_base(store: &Store) {
    let mut copy = Command::new("cp");
    let base = STORE.layer_path(&BASE.layer);
    copy.args(["--archive", "--link"]).arg(&base).arg(base.with_extension("json"));
    assert!(copy.arg(store.layers().join("base")).status().unwrap().success());
}

#[test]
fn whenever_an_install_is_killed_nothing_half_made_is_left() {
    let test = "whenever_an_install_is_killed_nothing_half_made_is_left";
    let Some(uv) = uv_or_skip(test) else { return };
    if let Some(state) = child_state() {
        let said = fs::read_to_string(state.join("said")).unwrap();
        let (url, names) = said.split_once('\n').unwrap();
        let names: Vec<&str> = names.lines().collect();
        drop(install(uv, &names, &crate::indexes::sources_at(url, ""), &Silent));
        return;
    }
    let (index, name) = (Index::open(), fresh("killed"));
    let names: Vec<String> = (0..6).map(|number| format!("{name}_{number}")).collect();
    for name in &names {
        let modules: Vec<(String, String)> =
            (0..40).map(|n| (format!("{name}/m{n}.py"), format!("X = {n}\n"))).collect();
        let files: Vec<(&str, &str)> =
            modules.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
        let (file, bytes) = wheel(name, "1.0", &files);
        index.add(&file, bytes);
    }
    let told = tempfile::tempdir().unwrap();
    fs::write(told.path().join("said"), format!("{}\n{}", index.url(), names.join("\n"))).unwrap();
    let ours = |file: &String| file.starts_with(&name) && !file.ends_with(".files");
    let appeared = || file_names(&STORE.layers().join("wheels")).into_iter().filter(ours).count();
    for round in 0..8 {
        let before = appeared();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", &format!("wheels::{test}")]).env("LAYERS_CHILD", told.path());
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // When a directory or a description shows, and a little later each time: in the middle of whatever comes next.
        while appeared() == before && child.try_wait().unwrap().is_none() {}
        std::thread::sleep(Duration::from_millis(4 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let ours = |wheel: &&Wheel| wheel.name.starts_with(&name);
        for wheel in Wheel::all(&STORE).unwrap().iter().filter(ours) {
            let files = contents(&STORE.layers().join("wheels").join(&wheel.id));
            assert_eq!(files.len() as u64, wheel.extent.files, "{}", wheel.id);
        }
        for set in Set::all(&STORE).unwrap() {
            let files = contents(&STORE.layer_path(&set.layer));
            assert_eq!(files.len() as u64, set.extent.files, "{}", set.layer);
        }
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let set = install(uv, &names, &sources(&index, ""), &Silent).unwrap();
    assert_eq!(set.wheels.len(), 6);
    assert_eq!(python(&root(&set), &format!("import {name}_3.m7 as m; print(m.X)")), "7\n");
    Store::open(STORE.layers().parent().unwrap()).unwrap();
    let mut left = file_names(&STORE.layers().join("wheels"));
    left.retain(|file| file.starts_with('.') && file.contains(&name));
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_locked_package_that_its_marker_leaves_out_is_left_out() {
    let Some(uv) = uv_or_skip("a_locked_package_that_its_marker_leaves_out_is_left_out") else {
        return;
    };
    let hash = "--hash=sha256:8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254";
    let wanted = [
        format!("six==1.16.0 {hash}"),
        "colorama==0.4.6 ; sys_platform == 'win32' --hash=sha256:00"
            .replace(":00", &format!(":{}", "0".repeat(64))),
    ];
    let lock =
        lock::resolve(&STORE, uv, &BASE, &wanted, &Sources::default(), &Silent).unwrap().unwrap();
    let set = packages::install(&STORE, uv, &BASE, &lock, &Sources::default(), &Silent).unwrap();
    let names: Vec<&str> = set.wheels.iter().map(|wheel| wheel.name.as_str()).collect();
    assert_eq!(names, ["six"]);
}
