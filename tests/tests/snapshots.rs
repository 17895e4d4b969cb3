//! Micro-VMs that have imported, on disk: what a restart of the worker keeps, and what it refuses.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use e2e::{Site, Worker, can_run, can_run_machines, eventually, json};

const RESTORED: &str = "a reference machine was restored from its snapshot";
const REFUSED: &str = "refused";

/// Draws a number, and says whether what it imports was there before its code was loaded.
fn draws(name: &str, number: &str, dependency: &str) -> String {
    format!(
        "# /// script\n# dependencies = [{dependency}]\n# [tool.lambswool]\n# isolation = \"microvm\"\n# ///\n\
         import os, sys\nhad = '{name}' in sys.modules\nimport {name}\ndef handler(event, context):\n    \
         return [os.uname().nodename, {number}, had]\n"
    )
}

/// The snapshots of a site that are whole.
fn snapshots(site: &Site) -> Vec<PathBuf> {
    let Ok(files) = fs::read_dir(site.state().join("snapshots")) else { return Vec::new() };
    let files = files.map(|entry| entry.unwrap().path());
    let whole = |path: &PathBuf| path.extension().is_none() && !path.ends_with("key");
    files.filter(whole).collect()
}

fn call(worker: &Worker, name: &str) -> (String, bool) {
    let answer = worker.run(name, &json!({})).expect(200).json();
    assert_eq!(answer[0], "microvm");
    (answer[1].to_string(), answer[2] == true)
}

/// How often the site's workers have logged this.
fn logged(worker: &Worker, words: &str) -> usize {
    worker.log().lines().filter(|line| line.contains(words)).count()
}

/// Calls until it is one that has been written down.
fn calls_until_saved(worker: &Worker, name: &str, drawn: &mut BTreeSet<String>) {
    eventually("a snapshot is written", || {
        drawn.insert(call(worker, name).0);
        !snapshots(worker.site()).is_empty()
    });
}

fn restarts_from_its_snapshot(worker: Worker, name: &str) -> Worker {
    let mut drawn = BTreeSet::new();
    calls_until_saved(&worker, name, &mut drawn);
    assert_eq!(logged(&worker, RESTORED), 0);
    let worker = worker.stop().up_with(&[("WOOL_HANDLER_CACHE", "false")]);
    let before = drawn.len();
    for _ in 0..3 {
        drawn.insert(call(&worker, name).0);
    }
    assert_eq!(drawn.len(), before + 3, "a number was drawn twice: {drawn:?}");
    eventually("the log says that it was restored", || logged(&worker, RESTORED) > 0);
    assert_eq!(logged(&worker, REFUSED), 0, "{}", worker.log());
    worker
}

#[test]
fn a_machine_goes_on_from_its_snapshot_after_a_restart_and_draws_different_numbers() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_HANDLER_CACHE", "false")]);
    drop(worker.deploy("draws", &draws("random", "random.random()", "")).expect(201));
    let worker = restarts_from_its_snapshot(worker, "draws");
    // A worker that is to keep none removes them.
    let site = worker.stop();
    assert!(!snapshots(&site).is_empty());
    let worker = site.up_with(&[("WOOL_SNAPSHOT_BYTES", "0")]);
    let restored = logged(&worker, RESTORED);
    drop(call(&worker, "draws"));
    assert_eq!((snapshots(worker.site()), logged(&worker, RESTORED)), (Vec::new(), restored));
}

#[test]
fn numpy_is_imported_in_a_machine_that_was_restored() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_HANDLER_CACHE", "false")]);
    if !worker
        .deploys_from_index("draws", &draws("numpy", "numpy.random.rand()", "\"numpy==2.2.6\""))
    {
        return;
    }
    eventually("a snapshot of the machine with numpy is written", || {
        call(&worker, "draws").1
            && snapshots(worker.site())
                .iter()
                .any(|path| fs::metadata(path).unwrap().len() > 20 << 20)
    });
    let worker = restarts_from_its_snapshot(worker, "draws");
    eventually("its clones find numpy imported", || call(&worker, "draws").1);
}

#[test]
fn a_snapshot_on_disk_that_was_changed_is_refused_and_calls_succeed_all_the_same() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up();
    drop(worker.deploy("draws", &draws("random", "random.random()", "")).expect(201));
    calls_until_saved(&worker, "draws", &mut BTreeSet::new());
    let site = worker.stop();
    for path in snapshots(&site) {
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    let worker = site.up();
    drop(call(&worker, "draws"));
    let words = "it is damaged, or this worker did not write it";
    eventually("the log says why", || logged(&worker, words) > 0);
    assert_eq!(logged(&worker, RESTORED), 0);
    // It is written anew, and that one is good.
    calls_until_saved(&worker, "draws", &mut BTreeSet::new());
    let worker = worker.stop().up();
    drop(call(&worker, "draws"));
    eventually("the new one is restored", || logged(&worker, RESTORED) > 0);
    worker.assert_well();
}

#[test]
fn wool_clean_takes_snapshots_along() {
    if !can_run() {
        return;
    }
    let site = Site::new();
    let directory = site.state().join("snapshots");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("key"), [7; 32]).unwrap();
    // A state directory that holds nothing else than what is ours is taken into use.
    let site = site.up().stop();
    drop(site.wool(&["clean", "--yes"]).ok());
    assert!(!site.state().exists());
}
