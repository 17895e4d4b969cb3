//! Wheels that many deploys want, whose installer is killed, or that are no longer as they were.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use layers::{Silent, Store};
use packages::{Set, Wheel, lock};

use crate::index::{Index, allowed, wheel};
use crate::indexes::{sources, sources_at};
use crate::machine::{BASE, STORE, child_state};
use crate::uv::uv_or_skip;
use crate::wheels::{contents, file_names, fresh, install, python, root};

#[test]
fn a_wheel_that_many_want_at_once_is_fetched_once() {
    let Some(uv) = uv_or_skip("a_wheel_that_many_want_at_once_is_fetched_once") else { return };
    let (index, name) = (Index::open(), fresh("wanted"));
    let uv = &index.allowed(uv, "");
    let names = ["one", "two", "all"].map(|which| format!("{name}_{which}"));
    for name in &names {
        let (file, bytes) = wheel(name, "1.0", &[("m.py", name)]);
        index.add(&file, bytes);
    }
    let of = sources(&index, "");
    let lock = |name: &String| {
        lock::resolve(&STORE, uv, &BASE, std::slice::from_ref(name), &of, &Silent).unwrap().unwrap()
    };
    // Its page: how often a file is asked for is the installer's own affair.
    let fetched = |name: &str| index.asked(&format!("/simple/{}/", name.replace('_', "-")));
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
    let uv = &index.allowed(uv, "");
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
    // As an editor saves: another file of the same size under the same name.
    fs::write(path.with_extension("new"), "WHO = 'other'\n").unwrap();
    fs::rename(path.with_extension("new"), &path).unwrap();
    let verdicts = packages::verify(&store, uv, &Silent).unwrap();
    assert_eq!(verdicts[0].fault, "frail.py is not its package's", "{verdicts:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "WHO = 'whole'\n");
    assert!(seen.exists());
    store.bury().unwrap();
    assert!(!seen.exists(), "once nothing runs, what was replaced goes");
}

#[test]
fn sets_are_put_together_again_when_all_of_their_wheels_are_whole() {
    let test = "sets_are_put_together_again_when_all_of_their_wheels_are_whole";
    let Some(uv) = uv_or_skip(test) else { return };
    let state = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = Store::open(state.path()).unwrap();
    copy_base(&store);
    let (index, name) = (Index::open(), fresh("pair"));
    let uv = &index.allowed(uv, "");
    let names = ["a", "b"].map(|which| format!("{name}_{which}"));
    for name in &names {
        let (file, bytes) = wheel(name, "1.0", &[(&format!("{name}.py"), "WHO = 'whole'\n")]);
        index.add(&file, bytes);
    }
    let of = sources(&index, "");
    let lock = lock::resolve(&store, uv, &BASE, &names, &of, &Silent).unwrap().unwrap();
    let set = packages::install(&store, uv, &BASE, &lock, &of, &Silent).unwrap();
    let module = |name: &str| store.layer_path(&set.layer).join(format!("{name}.py"));
    let list = |name: &str| {
        let id = &set.wheels.iter().find(|wheel| wheel.name == name.replace('_', "-")).unwrap().id;
        store.layers().join("wheels").join(format!("{id}.files"))
    };
    // Whichever comes first, the other is still broken then.
    for (changed, lost) in [(&names[0], &names[1]), (&names[1], &names[0])] {
        fs::write(module(changed), "WHO = 'harmd'\n").unwrap();
        fs::remove_file(list(lost)).unwrap();
        let verdicts = packages::verify(&store, uv, &Silent).unwrap();
        assert_eq!(verdicts.len(), 2, "{verdicts:?}");
        assert!(verdicts.iter().all(|verdict| verdict.repaired.is_ok()), "{verdicts:?}");
        assert_eq!(fs::read_to_string(module(changed)).unwrap(), "WHO = 'whole'\n");
        assert!(packages::verify(&store, uv, &Silent).unwrap().is_empty());
    }
    // One that the index has no more. The set has files of it, and so is not well either.
    let (file, bytes) = wheel(&names[1], "1.0", &[("other.py", "")]);
    index.add(&file, bytes);
    fs::write(module(&names[1]), "WHO = 'harmd'\n").unwrap();
    fs::write(module(&names[0]), "").unwrap();
    let verdicts = packages::verify(&store, uv, &Silent).unwrap();
    let said: Vec<_> = verdicts.iter().map(|verdict| verdict.repaired.is_ok()).collect();
    assert_eq!(said, [true, false, false], "{verdicts:?}");
    assert_eq!(verdicts[2].what, set.layer.to_string());
}

/// Gives another store the base that all tests share.
pub(crate) fn copy_base(store: &Store) {
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
        drop(install(&allowed(uv, &[("", url)]), &names, &sources_at(url, ""), &Silent));
        return;
    }
    let (index, name) = (Index::open(), fresh("killed"));
    let uv = &index.allowed(uv, "");
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
        child.args(["--exact", &format!("mending::{test}")]).env("LAYERS_CHILD", told.path());
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
