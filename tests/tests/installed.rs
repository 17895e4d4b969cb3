//! Installed packages over their life: listed, checked and mended, removed when nobody uses them.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use e2e::{Site, Value, Worker, can_run, eventually, json};

/// A function that says which `six` it finds, once it was let go.
fn of_six(version: &str, seconds: u32) -> String {
    format!(
        "# /// script\n# dependencies = [\"six=={version}\"]\n# ///\nimport time\n\
         def handler(event, context):\n    time.sleep({seconds})\n    import six\n    return six.__version__\n"
    )
}

/// Without zygotes that hold packages: those would be in use as long as they are kept.
const PLAIN: [(&str, &str); 1] = [("WOOL_ZYGOTES", "root")];

/// A worker that can fetch packages, if there is one here. A skip is printed, and is a failure where
/// `LAMBSWOOL_REQUIRE` names `network`.
fn worker(settings: &[(&str, &str)]) -> Option<Worker> {
    if !can_run() {
        return None;
    }
    let worker = Site::new().up_with(settings);
    let reply = worker.deploy("probe", &of_six("1.15.0", 0));
    if reply.status != 503 {
        drop(reply.expect(201));
        drop(worker.delete("/v1/functions/probe").expect(204));
        return Some(worker);
    }
    e2e::machine::skip("network", &format!("needs network: {}", reply.error()));
    None
}

/// Versions of six that are installed, each with the functions that use it.
fn listed(worker: &Worker) -> Vec<(String, Value)> {
    let list = worker.site().wool(&["packages", "--json"]).json();
    let packages = list["packages"].as_array().unwrap();
    let ours = packages.iter().filter(|package| package["name"] == "six");
    ours.map(|p| (p["version"].as_str().unwrap().to_owned(), p["functions"].clone())).collect()
}

fn wheel(state: &Path, start: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(state.join("layers/wheels")).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    paths.find(|path| {
        path.is_dir() && path.file_name().unwrap().to_str().unwrap().starts_with(start)
    })
}

fn count(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
}

#[test]
fn packages_are_listed_with_their_users_and_removed_when_they_have_none() {
    let Some(worker) = worker(&PLAIN) else { return };
    for (name, version) in [("old", "1.16.0"), ("new", "1.17.0")] {
        drop(worker.deploy(name, &of_six(version, 0)).expect(201));
        assert_eq!(worker.run(name, &json!({})).expect(200).json(), version);
    }
    let both = [("1.16.0".to_owned(), json!(["old"])), ("1.17.0".to_owned(), json!(["new"]))];
    eventually("what the probe needed is removed, and nothing else", || {
        drop(worker.site().wool(&["packages", "prune"]).ok());
        listed(&worker) == both
    });
    let shown = worker.site().wool(&["packages"]).ok();
    assert!(
        shown.starts_with("NAME ") && shown.contains("1.16.0") && shown.contains("old"),
        "{shown}"
    );

    let layers = worker.site().state().join("layers");
    drop(worker.delete("/v1/functions/old").expect(204));
    eventually("the removed function's package goes", || {
        drop(worker.site().wool(&["packages", "prune", "--json"]).json());
        listed(&worker).len() == 1
    });
    assert_eq!(wheel(&worker.site().state(), "six-1.16.0"), None);
    assert_eq!((count(&layers.join("packages")), count(&layers.join("code"))), (1, 1));
    // What is left serves a cold start, and what went comes back.
    let worker = worker.stop().up_with(&PLAIN);
    assert_eq!(worker.run("new", &json!({})).expect(200).json(), "1.17.0");
    assert_eq!(worker.try_out("old", &of_six("1.16.0", 0)).expect(200).json(), "1.16.0");
    worker.assert_well();
}

#[test]
fn a_call_of_a_removed_function_finds_its_packages_to_its_end() {
    let Some(worker) = worker(&PLAIN) else { return };
    drop(worker.deploy("slow", &of_six("1.16.0", 16)).expect(201));
    thread::scope(|scope| {
        let call = scope.spawn(|| worker.run("slow", &json!({})));
        eventually("the call is under way", || worker.status()["engine"]["instances"]["busy"] == 1);
        drop(worker.delete("/v1/functions/slow").expect(204));
        // Longer than anything is spared that no call holds.
        thread::sleep(Duration::from_secs(11));
        drop(worker.site().wool(&["packages", "prune"]).ok());
        assert!(wheel(&worker.site().state(), "six-1.16.0").is_some());
        // It imports only now.
        assert_eq!(call.join().unwrap().expect(200).json(), "1.16.0");
    });
    eventually("then they go", || {
        drop(worker.site().wool(&["packages", "prune"]).ok());
        wheel(&worker.site().state(), "six-1.16.0").is_none()
    });
    worker.assert_well();
}

#[test]
fn a_broken_package_is_found_and_mended_while_calls_go_on() {
    let Some(worker) = worker(&PLAIN) else { return };
    drop(worker.deploy("f", &of_six("1.16.0", 0)).expect(201));
    assert!(worker.site().wool(&["packages", "verify"]).ok().is_empty());
    let file = wheel(&worker.site().state(), "six-1.16.0").unwrap().join("six.py");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, whole.iter().map(|byte| byte ^ 1).collect::<Vec<_>>()).unwrap();
    let said = worker.site().wool(&["packages", "verify"]).ok();
    assert!(said.contains("six.py was changed; repaired"), "{said}");
    assert_eq!(fs::read(&file).unwrap(), whole);
    assert_eq!(worker.run("f", &json!({})).expect(200).json(), "1.16.0");
    // The next start removes what was replaced.
    let layers = worker.site().state().join("layers");
    assert!(count(&layers.join("retired")) > 0);
    let worker = worker.stop().up_with(&PLAIN);
    assert_eq!(count(&layers.join("retired")), 0);
    assert_eq!(worker.run("f", &json!({})).expect(200).json(), "1.16.0");
}

/// A worker that has begun to run from bytecode of six which says that it is 6.66.6, followed by `more`.
fn running_from_broken(more: &[u8]) -> Option<Worker> {
    let worker = worker(&[])?;
    drop(worker.deploy("f", &of_six("1.16.0", 0)).expect(201));
    let site = worker.stop();
    let cached = wheel(&site.state(), "six-1.16.0").unwrap().join("__pycache__");
    let of_module = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("six.");
    let file = fs::read_dir(cached).unwrap().map(Result::unwrap).find(of_module).unwrap().path();
    let whole = fs::read(&file).unwrap();
    let at = whole.windows(6).position(|bytes| bytes == b"1.16.0").unwrap();
    fs::write(&file, [&whole[..at], b"6.66.6", &whole[at + 6..], more].concat()).unwrap();
    let worker = site.up_with(&[]);
    assert_eq!(version(&worker, "f"), "6.66.6", "bytecode is what runs");
    eventually("there is a zygote that has imported it", || {
        let zygotes = worker.get("/v1/zygotes").expect(200).json();
        let all = zygotes["zygotes"].as_array().unwrap().clone();
        all.iter().any(|zygote| zygote["imports"].as_array().unwrap().contains(&json!("six")))
    });
    Some(worker)
}

fn version(worker: &Worker, name: &str) -> Value {
    worker.run(name, &json!({})).expect(200).json()
}

#[test]
fn nothing_goes_on_from_a_broken_package_once_it_is_mended() {
    let Some(worker) = running_from_broken(b"") else { return };
    let said = worker.site().wool(&["packages", "verify"]).ok();
    assert!(said.contains("was changed; repaired"), "{said}");
    assert_eq!(version(&worker, "f"), "1.16.0", "an instance of before is not resumed");
    drop(worker.deploy("g", &of_six("1.16.0", 1)).expect(201));
    assert_eq!(version(&worker, "g"), "1.16.0", "nor a zygote forked");
    worker.assert_well();
}

#[test]
fn nor_once_a_deploy_has_mended_it() {
    // Which looks at sizes only.
    let Some(worker) = running_from_broken(b"more") else { return };
    drop(worker.deploy("g", &of_six("1.16.0", 1)).expect(201));
    assert_eq!(version(&worker, "g"), "1.16.0");
    assert_eq!(version(&worker, "f"), "1.16.0");
    worker.assert_well();
}

#[test]
fn what_exceeds_the_disk_budget_goes_at_the_start_and_what_is_used_stays() {
    let Some(worker) = worker(&PLAIN) else { return };
    drop(worker.deploy("f", &of_six("1.16.0", 0)).expect(201));
    let versions = |worker: &Worker| -> Vec<String> {
        listed(worker).into_iter().map(|(version, _)| version).collect()
    };
    assert_eq!(versions(&worker), ["1.15.0", "1.16.0"]);
    let tight = [PLAIN[0], ("WOOL_INSTALL_CACHE_BYTES", "1KiB")];
    let worker = worker.stop().up_with(&tight);
    assert_eq!(versions(&worker), ["1.16.0"]);
    assert!(worker.log().contains("more than install_cache_bytes"), "{}", worker.log());
    assert_eq!(worker.run("f", &json!({})).expect(200).json(), "1.16.0");
}

#[test]
fn a_package_set_of_an_earlier_release_goes_on_working() {
    let Some(worker) = worker(&PLAIN) else { return };
    drop(worker.deploy("f", &of_six("1.16.0", 0)).expect(201));
    let site = worker.stop();
    // As it was: one directory for the lock, of which nothing else is known.
    let layers = site.state().join("layers");
    fs::remove_dir_all(layers.join("wheels")).unwrap();
    for entry in fs::read_dir(layers.join("packages")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            fs::remove_file(path).unwrap();
        }
    }
    let worker = site.up_with(&PLAIN);
    drop(worker.site().wool(&["packages", "prune"]).ok());
    assert_eq!(worker.run("f", &json!({})).expect(200).json(), "1.16.0");
    assert_eq!(listed(&worker), []);
    assert_eq!(worker.try_out("f", &of_six("1.16.0", 0)).expect(200).json(), "1.16.0");
    assert_eq!(listed(&worker), [("1.16.0".to_owned(), json!(["f"]))]);
}
