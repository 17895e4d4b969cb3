//! Wheels in the store and the sets that are linked from them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use layers::{Progress, Silent};
use packages::installer::{Bounds, Installer};
use packages::sources::Sources;
use packages::{InstallError, Packages, ViewError, Wheel, lock, view, view_of};

use crate::index::{Index, wheel};
use crate::indexes::sources;
use crate::machine::{BASE, Heard, STORE, tag, told};
use crate::uv::uv_or_skip;

/// What this test run made up, so that it is in no store yet.
pub(crate) fn fresh(name: &str) -> String {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    format!("{name}{now:x}")
}

pub(crate) fn install(
    uv: &Installer,
    wanted: &[&str],
    sources: &Sources,
    progress: &dyn Progress,
) -> Result<Packages, InstallError> {
    let wanted: Vec<String> = wanted.iter().map(|&text| text.to_owned()).collect();
    let lock = lock::resolve(&STORE, uv, &BASE, &wanted, sources, &Silent).unwrap().unwrap();
    packages::install(&STORE, uv, &BASE, &lock, sources, progress)
}

pub(crate) fn root(packages: &Packages) -> PathBuf {
    STORE.layer_path(&packages.layer)
}

/// Runs a script that sees a package set, as a sandbox's interpreter sees it.
pub(crate) fn python(root: &Path, script: &str) -> String {
    let script =
        format!("import sys; sys.path.insert(0, {:?})\n{script}", root.display().to_string());
    told(&BASE.command(&STORE).command().args(["-c", &script]).output().unwrap())
}

/// Every file below a directory with its content.
pub(crate) fn contents(root: &Path) -> BTreeMap<String, Vec<u8>> {
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

pub(crate) fn file_names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// A listing in which what is knowingly different is made equal: bytecode, which uv does not write, and what wheels bring of
/// it; the installer's lock; the first line of commands, and so their hashes.
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
            let rows = text.lines().filter(|row| !row.contains("__pycache__/"));
            let rows = rows.map(|row| match row.strip_prefix("bin/") {
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
        let mut command = Command::new(&uv.uv().program);
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
    let uv = &index.allowed(uv, "");
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
    let uv = &index.allowed(uv, "");
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
fn a_pth_file_that_names_directories_is_told_at_each_install() {
    let test = "a_pth_file_that_names_directories_is_told_at_each_install";
    let Some(uv) = uv_or_skip(test) else { return };
    let (index, name) = (Index::open(), fresh("pathed"));
    let uv = &index.allowed(uv, "");
    let files = [
        ("inner/hidden_module.py", "x = 1\n"),
        ("there.pth", "# where it is\ninner\n"),
        ("starts.pth", "import sys; sys.flag = 1\n"),
    ];
    let (file, bytes) = wheel(&name, "1.0", &files);
    index.add(&file, bytes);
    for round in 0..2 {
        let heard = Heard::default();
        let set = install(uv, &[&name], &sources(&index, ""), &heard).unwrap();
        assert_eq!(set.fetched, round == 0);
        let lines = heard.lines.lock().unwrap();
        let told: Vec<&String> = lines.iter().filter(|line| line.contains(".pth\"")).collect();
        assert_eq!(told.len(), 1, "{lines:?}");
        for word in ["there.pth", "[\"inner\"]", &name.replace('_', "-")] {
            assert!(told[0].contains(word), "{told:?}");
        }
    }
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
    let resolved = lock::resolve(&STORE, uv, &BASE, &wanted, &Sources::default(), &Silent);
    for lock in [resolved, lock::keep(uv, &BASE, &wanted, &Sources::default())] {
        let lock = lock.unwrap().unwrap();
        let set =
            packages::install(&STORE, uv, &BASE, &lock, &Sources::default(), &Silent).unwrap();
        let names: Vec<&str> = set.wheels.iter().map(|wheel| wheel.name.as_str()).collect();
        assert_eq!(names, ["six"]);
    }
}

#[test]
fn a_package_that_unpacks_to_more_than_allowed_is_refused_by_name_and_leaves_nothing() {
    let Some(uv) = uv_or_skip(
        "a_package_that_unpacks_to_more_than_allowed_is_refused_by_name_and_leaves_nothing",
    ) else {
        return;
    };
    let index = Index::open();
    let uv = &index.allowed(uv, "");
    let (large, many) = (fresh("large"), fresh("many"));
    // Forty megabytes of zeros are forty kilobytes in the wheel.
    let zeros = "0".repeat(40 << 20);
    let (file, bytes) = wheel(&large, "1.0", &[("zeros.txt", &zeros)]);
    assert!(bytes.len() < 100 << 10);
    index.add(&file, bytes);
    let names: Vec<String> = (0..300).map(|at| format!("{many}/m{at}.txt")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "x")).collect();
    let (file, bytes) = wheel(&many, "1.0", &files);
    index.add(&file, bytes);
    let bounds = Bounds { bytes: 8 << 20, files: 100 };
    for name in [&large, &many] {
        let refused = install(&uv.clone().bounded(bounds), &[name], &sources(&index, ""), &Silent)
            .unwrap_err();
        assert!(matches!(refused, InstallError::Excessive { .. }), "{refused}");
        let said = refused.to_string();
        assert!(said.contains(&format!("{name} 1.0")) && said.contains("package_bytes"), "{said}");
        let kept = file_names(&STORE.layers().join("wheels"));
        assert!(!kept.iter().any(|kept| kept.contains(name.as_str())), "{kept:?}");
        install(uv, &[name], &sources(&index, ""), &Silent).unwrap();
    }
}

#[test]
fn who_waits_for_packages_is_told_how_much_has_come() {
    let Some(uv) = uv_or_skip("who_waits_for_packages_is_told_how_much_has_come") else { return };
    let (index, heard) = (Index::open(), Heard::default());
    let uv = &index.allowed(uv, "");
    let names = ["one", "two", "three"].map(fresh);
    for name in &names {
        let (file, bytes) = wheel(name, "1.0", &[("zeros.txt", &"0".repeat(10_000_000))]);
        index.add(&file, bytes);
    }
    let wanted = names.each_ref().map(String::as_str);
    install(uv, &wanted, &sources(&index, ""), &heard).unwrap();
    let told = heard.bytes.lock().unwrap();
    let (last, before) = told.split_last().unwrap();
    // What lies in uv's own cache too counts once.
    assert!((30_000_000..31_000_000).contains(&last.0) && last.1 == Some(last.0), "{last:?}");
    assert!(before.iter().all(|(done, total)| *done <= last.0 && total.is_none()), "{before:?}");
    assert!(before.len() >= names.len(), "{before:?}");
}

#[test]
fn a_source_that_takes_too_much_to_compile_is_told_and_installed_without_bytecode() {
    let Some(uv) = uv_or_skip(
        "a_source_that_takes_too_much_to_compile_is_told_and_installed_without_bytecode",
    ) else {
        return;
    };
    let (index, name, heard) = (Index::open(), fresh("bomb"), Heard::default());
    let uv = &index.allowed(uv, "");
    let level = |at: usize| {
        let margin = " ".repeat(at);
        format!("{margin}try:\n{margin} pass\n{margin}finally:\n")
    };
    // Each level doubles what is inside.
    let bomb: String = (0..20).map(level).collect::<String>() + &" ".repeat(20) + "value = 1\n";
    let (file, bytes) =
        wheel(&name, "1.0", &[("bomb_module.py", &bomb), ("good_module.py", "value = 1\n")]);
    index.add(&file, bytes);
    let set = install(uv, &[&name], &sources(&index, ""), &heard).unwrap();
    let lines = heard.lines.lock().unwrap();
    let told = lines.iter().find(|line| line.contains("left as source")).unwrap();
    assert!(told.contains(&name) && told.contains("bomb_module.py"), "{told}");
    let compiled = file_names(&root(&set).join("__pycache__"));
    assert_eq!(compiled, [format!("good_module.{}.pyc", tag())]);
}
