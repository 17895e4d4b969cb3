//! Versions as portable records: one id everywhere, and made again from nothing but what was deployed.

use std::fs;
use std::path::Path;

use e2e::index::Index;
use e2e::{Site, Value, Worker, can_run, can_run_machines, eventually, json};

const SOURCE: &str = "def handler(event, context):\n    return [event, context.function_version]\n";

/// A function whose package comes from an index.
fn packed(index: &Index) -> String {
    format!(
        "# /// script\n# dependencies = [\"tinypkg\"]\n# [tool.uv]\n# index-url = \"{}\"\n# ///\n\
         import tinypkg\ndef handler(event, context):\n    return tinypkg.WORDS\n",
        index.url()
    )
}

fn layers(worker: &Worker, kind: &str) -> std::path::PathBuf {
    worker.site().state().join("layers").join(kind)
}

/// Removes all layers of a kind, as an operator short of disk space would.
fn remove(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        }
    }
}

fn version(worker: &Worker, name: &str) -> Value {
    worker.get(&format!("/v1/functions/{name}")).expect(200).json()["version"].take()
}

#[test]
fn the_same_deploy_has_the_same_version_on_every_worker() {
    if !can_run() {
        return;
    }
    let index = Index::open();
    index.add_wheel("tinypkg", "WORDS = 'from a wheel'\n");
    let ids = || {
        let worker = Site::new().up_with(&[("WOOL_INDEXES", &index.url())]);
        drop(worker.deploy("plain", SOURCE).expect(201));
        drop(worker.deploy("packed", &packed(&index)).expect(201));
        let plain = version(&worker, "plain");
        assert_eq!(worker.run("plain", &json!(1)).expect(200).json(), json!([1, plain]));
        [plain, version(&worker, "packed")]
    };
    let first = ids();
    assert_eq!(first, ids());
    assert_ne!(first[0], first[1]);
}

#[test]
fn a_call_makes_lost_layers_again_without_a_new_deploy() {
    if !can_run() {
        return;
    }
    let index = Index::open();
    index.add_wheel("tinypkg", "WORDS = 'from a wheel'\n");
    let worker =
        Site::new().up_with(&[("WOOL_INDEXES", &index.url()), ("WOOL_HANDLER_CACHE", "false")]);
    drop(worker.deploy("plain", SOURCE).expect(201));
    drop(worker.deploy("packed", &packed(&index)).expect(201));
    let before = version(&worker, "packed");
    // Offline from here on: its wheel is on the disk.
    drop(index);
    for kind in ["code", "packages", "guest", "base"] {
        remove(&layers(&worker, kind));
        assert_eq!(
            worker.run("packed", &json!(1)).expect(200).json(),
            json!("from a wheel"),
            "{kind}"
        );
        assert_eq!(worker.run("plain", &json!(2)).expect(200).json()[0], 2, "{kind}");
    }
    assert_eq!(version(&worker, "packed"), before);
    worker.assert_well();
}

#[test]
fn a_call_of_a_machine_makes_lost_layers_again() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_HANDLER_CACHE", "false")]);
    let source = "# /// script\n# [tool.lambswool]\n# isolation = \"microvm\"\n# ///\n";
    drop(worker.deploy("machine", &format!("{source}{SOURCE}")).expect(201));
    for kind in ["code", "guest", "base"] {
        assert_eq!(worker.run("machine", &json!(1)).expect(200).json()[0], 1, "{kind}");
        remove(&layers(&worker, kind));
        assert_eq!(worker.run("machine", &json!(2)).expect(200).json()[0], 2, "{kind}");
    }
}

#[test]
fn many_calls_wait_for_one_work_that_makes_a_lost_layer_again() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_HANDLER_CACHE", "false")]);
    drop(worker.deploy("plain", SOURCE).expect(201));
    remove(&layers(&worker, "base"));
    std::thread::scope(|scope| {
        let call = || worker.run("plain", &json!(1)).expect(200).json()[0] == 1;
        let calls: Vec<_> = (0..16).map(|_| scope.spawn(call)).collect();
        assert!(calls.into_iter().all(|call| call.join().unwrap()));
    });
    assert_eq!(worker.log().matches("made again from its record").count(), 1, "{}", worker.log());
}

#[test]
fn a_start_makes_lost_layers_and_forgotten_handlers_again() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    drop(worker.deploy("plain", SOURCE).expect(201));
    drop(worker.deploy("other", "def f(event):\n    return 'other'\n").expect(201));
    let site = worker.stop();
    remove(&site.state().join("layers/code"));
    fs::remove_dir_all(site.state().join("handlers")).unwrap();
    let worker = site.up();
    // One before the worker has come to it by itself, perhaps.
    assert_eq!(worker.run("other", &json!(null)).expect(200).json(), "other");
    eventually("the other is made", || {
        fs::read_dir(worker.site().state().join("handlers")).unwrap().count() == 2
    });
    assert_eq!(worker.run("plain", &json!(3)).expect(200).json()[0], 3);
}

#[test]
fn what_cannot_be_made_again_is_told_with_what_to_do() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_HANDLER_CACHE", "false")]);
    drop(worker.deploy("plain", SOURCE).expect(201));
    remove(&layers(&worker, "code"));
    for entry in fs::read_dir(worker.site().state().join("bundles")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let error = worker.run("plain", &json!(1)).expect(503).error();
    assert!(error.contains("code/") && error.contains("deploy the function again"), "{error}");
    assert!(!error.contains(worker.site().state().to_str().unwrap()), "{error}");
    drop(worker.deploy("plain", SOURCE).expect(201));
    assert_eq!(worker.run("plain", &json!(1)).expect(200).json()[0], 1);
}

#[test]
fn only_bundles_of_kept_versions_are_kept() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let file = worker.site().own().join("main.py");
    for number in 0..23 {
        fs::write(&file, format!("def f(event):\n    return {number}\n")).unwrap();
        for name in ["one", "two"] {
            drop(worker.site().wool(&["deploy", file.to_str().unwrap(), "--name", name]).ok());
        }
    }
    let kept = |site: &Site| fs::read_dir(site.state().join("bundles")).unwrap().count();
    drop(worker.site().wool(&["packages", "prune"]).ok());
    assert_eq!(kept(worker.site()), 20, "of each function the newest, and equal files once");
    drop(worker.delete("/v1/functions/one").expect(204));
    drop(worker.site().wool(&["packages", "prune"]).ok());
    assert_eq!(kept(worker.site()), 20);
    drop(worker.delete("/v1/functions/two").expect(204));
    let worker = worker.stop().up();
    assert_eq!(kept(worker.site()), 0);
}

/// A directory that the release before portable records made: four functions of two tenants, one of them with a package,
/// one with a secret, one deployed twice, and a token. Bases, guests and package sets are left out of it.
const VERSION_1: &[u8] = include_bytes!("../fixture/states/version-1.tar.gz");

#[test]
fn a_first_state_directory_whose_version_is_lost_is_upgraded_all_the_same() {
    if !can_run() {
        return;
    }
    for version in [None, Some("2\n")] {
        let site = Site::new();
        let state = site.state();
        tar::Archive::new(flate2::read::GzDecoder::new(VERSION_1)).unpack(&state).unwrap();
        match version {
            None => fs::remove_file(state.join("version")).unwrap(),
            Some(text) => fs::write(state.join("version"), text).unwrap(),
        }
        let worker = site.up_with(&[("WOOL_PYTHON", "3.11")]);
        assert_eq!(worker.site().wool(&["invoke", "counter"]).json(), 2, "{version:?}");
        assert!(!state.join("registry.sqlite").exists());
    }
}

/// When its function `counter` was deployed last.
const UPDATED: &str = "2026-11-26T22:34:29.637Z";

#[test]
fn a_state_directory_of_the_first_version_is_upgraded_once() {
    if !can_run() {
        return;
    }
    let site = Site::new();
    let state = site.state();
    tar::Archive::new(flate2::read::GzDecoder::new(VERSION_1)).unpack(&state).unwrap();
    let worker = site.up_with(&[("WOOL_PYTHON", "3.11")]);
    assert_eq!(fs::read_to_string(state.join("version")).unwrap(), "2\n");
    assert!(!state.join("registry.sqlite").exists());
    // By the socket: a token was made, so calls over TCP take one.
    let wool = |worker: &Worker, arguments: &[&str]| worker.site().wool(arguments).json();
    let check = |worker: &Worker| {
        let plain = json!({
            "event": 1, "note": "kept", "empty": true, "exec": true,
            "greeting": "good day", "secret": "hunter2",
        });
        assert_eq!(wool(worker, &["invoke", "plain", "1"]), plain);
        assert_eq!(wool(worker, &["invoke", "counter"]), 2);
        let greeting = json!({ "words": "from a wheel", "event": 3 });
        assert_eq!(wool(worker, &["invoke", "greeter", "3"]), greeting);
        let odd = wool(worker, &["--tenant", "acme", "invoke", "odd", "4"]);
        assert_eq!(odd, json!({ "tenant": "acme", "event": 4 }));
        let functions = wool(worker, &["ls", "--json"]);
        assert_eq!(functions.as_array().unwrap().len(), 3, "{functions}");
        functions[0].clone()
    };
    let counter = check(&worker);
    assert_eq!((&counter["name"], &counter["updated"]), (&json!("counter"), &json!(UPDATED)));
    assert_eq!(wool(&worker, &["token", "ls", "--json"])[0]["name"], "ci");
    // The record is the one of a deploy today.
    let file = worker.site().own().join("old.py");
    fs::write(&file, "def f(event):\n    return 2\n").unwrap();
    let deploy = ["deploy", file.to_str().unwrap(), "--name", "counter"];
    assert_eq!(
        worker.site().wool(&deploy).ok().split_whitespace().nth(1),
        counter["version"].as_str()
    );
    let worker = worker.stop().up_with(&[("WOOL_PYTHON", "3.11")]);
    assert_eq!(check(&worker)["version"], counter["version"]);
}
