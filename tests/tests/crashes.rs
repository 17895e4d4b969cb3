//! What a crash leaves: every acknowledged deploy, and nothing that runs.

use std::fs;
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use e2e::traces::uid;
use e2e::{Site, Value, Worker, can_run, has_fault_points, json};
use rustix::process::{Pid, Signal, kill_process};

/// Kernel uids of sandboxes start here.
const FIRST_UID: u32 = 0x7000_0000;

#[test]
fn a_killed_worker_loses_no_deploy_and_its_sandboxes_die_with_it() {
    if !can_run() {
        return;
    }
    let mut site = Site::new();
    let mut known: Vec<Known> = Vec::new();
    for round in 0..3 {
        let worker = site.up();
        for (name, version) in &known {
            let current = worker.get(&format!("/v1/functions/{name}")).expect(200).json();
            assert_eq!(&current["version"], version, "{name}");
            assert_eq!(worker.run(name, &json!({})).expect(200).json(), name.as_str());
        }
        (site, known) = crash_while_deploying(worker, round, known);
        site.wait_until_quiet();
    }
    let worker = site.up();
    for (name, _) in &known {
        assert_eq!(worker.run(name, &json!({})).expect(200).json(), name.as_str());
    }
    worker.assert_well();
}

/// A deploy that was acknowledged: name and version.
type Known = (String, Value);

/// Kills the worker with paused and running instances while deploys are under way; returns what was acknowledged.
fn crash_while_deploying(worker: Worker, round: usize, known: Vec<Known>) -> (Site, Vec<Known>) {
    let paused = format!("paused-{round}");
    drop(worker.try_out(&paused, &returns(&paused)).expect(200));
    // It runs until the crash, however long the deploys take.
    let slow = "# /// script\n# [tool.lambswool]\n# timeout = 600\n# ///\nimport time\ndef handler(e, c):\n    time.sleep(600)\n";
    drop(worker.deploy("slow", slow).expect(201));
    let acknowledged = Mutex::new(known);
    let over = AtomicBool::new(false);
    let client = (*worker).clone();
    let site = std::thread::scope(|scope| {
        // Its answer never comes.
        let slow = client.clone();
        scope
            .spawn(move || assert!(slow.try_post("/run/slow", "application/json", b"{}").is_err()));
        for thread in 0..3 {
            let (client, acknowledged, over) = (client.clone(), &acknowledged, &over);
            scope.spawn(move || {
                for number in 0.. {
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                    let name = format!("f-{round}-{thread}-{number}");
                    let path = format!("/v1/functions/{name}");
                    let Ok(reply) =
                        client.try_put(&path, "text/x-python", returns(&name).as_bytes())
                    else {
                        return;
                    };
                    let version = reply.expect(201).json()["version"].clone();
                    acknowledged.lock().unwrap().push((name, version));
                }
            });
        }
        let before = acknowledged.lock().unwrap().len();
        // Fewer where each takes longer.
        let deploys = 12 / e2e::slow() as usize;
        e2e::eventually("a dozen deploys", || {
            acknowledged.lock().unwrap().len() >= before + deploys
        });
        e2e::eventually("a call runs", || worker.status()["engine"]["instances"]["busy"] == 1);
        let sandboxed = worker.site().sandboxed();
        assert!(
            sandboxed.iter().any(|pid| uid(*pid).is_some_and(|uid| uid >= FIRST_UID)),
            "{sandboxed:?}"
        );
        let site = worker.crash();
        over.store(true, Ordering::SeqCst);
        site
    });
    (site, acknowledged.into_inner().unwrap())
}

#[test]
fn a_killed_warden_ends_the_worker_clearly_and_the_next_one_serves() {
    if !can_run() {
        return;
    }
    let mut worker = Site::new().up();
    drop(worker.try_out("f", &returns("f")).expect(200));
    e2e::eventually("the instance is paused", || {
        worker.status()["engine"]["instances"]["idle_bytes"] != 0
    });
    kill(worker.warden());
    let status = worker.ended();
    assert_eq!(status.code(), Some(1), "{}", worker.log());
    let log = worker.log();
    assert!(log.contains("the warden is gone") && log.contains("start the worker again"), "{log}");
    assert!(!log.contains("panicked"), "{log}");
    // Nobody has to start a worker for it: on version 1 a paused instance outlives its kill until it is thawed.
    let site = worker.stop();
    site.wait_until_quiet();
    let worker = site.up();
    assert_eq!(worker.run("f", &json!({})).expect(200).json(), "f");
    worker.assert_well();
}

#[test]
fn a_call_whose_warden_is_killed_is_told_as_the_workers_failure() {
    if !can_run() {
        return;
    }
    let mut worker = Site::new().up();
    let slow = "import time\ndef handler(event, context):\n    print('began', flush=True)\n    time.sleep(20)\n";
    drop(worker.deploy("slow", slow).expect(201));
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| worker.run("slow", &json!({})));
        e2e::eventually("the call runs", || !worker.logs("slow").is_empty());
        kill(worker.warden());
        let reply = caller.join().unwrap().expect(503);
        let said = reply.text();
        assert!(said.contains("\"stopping\"") && said.contains("may have had effects"), "{said}");
    });
    assert_eq!(worker.ended().code(), Some(1), "{}", worker.log());
    // The next one removes the cgroups.
    worker.stop().up().assert_well();
}

#[test]
fn a_worker_that_ends_without_its_warden_keeps_nobody_waiting() {
    if !can_run() || !has_fault_points() {
        return;
    }
    let site = Site::new();
    let faults = site.own().join("faults");
    fs::create_dir(&faults).unwrap();
    let mut worker = site.up_with(&[("LAMBSWOOL_FAULTS", faults.to_str().unwrap())]);
    drop(worker.deploy("f", &returns("f")).expect(201));
    fs::write(faults.join("call"), "").unwrap();
    std::thread::scope(|scope| {
        let client = (*worker).clone();
        let call = scope.spawn(move || client.try_post("/run/f", "application/json", b"{}"));
        let held = faults.join("call.held");
        e2e::eventually("a call is held", || held.exists());
        kill(worker.warden());
        // That call is waited for; whoever comes meanwhile is told at once that nobody serves here.
        let address = worker.url().trim_start_matches("http://").to_owned();
        e2e::eventually("connections are refused", || TcpStream::connect(&address).is_err());
        // They die with their place, a moment after the warden.
        e2e::eventually("no sandbox lives", || worker.site().sandboxed().is_empty());
        fs::remove_file(held).unwrap();
        // Its sandbox ended with the worker's others: that was none of its doing.
        assert!(call.join().unwrap().unwrap().expect(503).error().starts_with("stopping: "));
    });
    assert_eq!(worker.ended().code(), Some(1), "{}", worker.log());
    // The next one removes the cgroups.
    worker.stop().up().assert_well();
}

#[test]
fn the_death_of_the_sandboxes_pid_1_is_seen_though_a_freezer_holds_one_of_them() {
    if !can_run() {
        return;
    }
    let mut worker = Site::new().up();
    drop(worker.try_out("f", &returns("f")).expect(200));
    e2e::eventually("the instance is kept", || worker.status()["engine"]["instances"]["idle"] == 1);
    // It waits for all that it takes along, and on version 1 a paused instance does not die.
    kill(worker.reaper());
    let status = worker.ended();
    assert_eq!(status.code(), Some(1), "{}", worker.log());
    assert!(worker.log().contains("the warden is gone"), "{}", worker.log());
    let worker = worker.stop().up();
    assert_eq!(worker.run("f", &json!({})).expect(200).json(), "f");
    worker.assert_well();
}

#[test]
fn killing_worker_and_warden_together_leaves_only_what_the_next_start_removes() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    drop(worker.try_out("f", &returns("f")).expect(200));
    e2e::eventually("the instance is kept", || worker.status()["engine"]["instances"]["idle"] == 1);
    let before = worker.site().sandboxed();
    // The warden first: nobody is left to clean up. Stopped, so that the worker cannot end before it is killed.
    signal(worker.pid(), Signal::STOP);
    kill(worker.warden());
    let site = worker.crash();
    // Sandboxes die with their pid 1, but for those that a version 1 freezer holds.
    let worker = site.up();
    for pid in &before {
        assert!(!worker.site().sandboxed().contains(pid), "{pid} has outlived its worker");
    }
    assert_eq!(worker.run("f", &json!({})).expect(200).json(), "f");
    worker.assert_well();
}

#[test]
fn clean_removes_what_a_killed_warden_left() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    drop(worker.try_out("f", &returns("f")).expect(200));
    e2e::eventually("the instance is kept", || worker.status()["engine"]["instances"]["idle"] == 1);
    signal(worker.pid(), Signal::STOP);
    kill(worker.warden());
    let site = worker.crash();
    let cgroups = site.cgroups();
    drop(site.wool(&["clean", "--yes"]).ok());
    // With the state directory gone nobody could find them by its name any more.
    for dir in &cgroups {
        assert!(!dir.exists(), "{}", dir.display());
    }
    assert!(!site.state().exists());
}

#[test]
fn a_killed_zygote_or_instance_costs_one_call_at_most() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    drop(worker.try_out("f", &returns("f")).expect(200));
    e2e::eventually("the instance is kept", || worker.status()["engine"]["instances"]["idle"] == 1);
    for pid in worker.site().sandboxed() {
        kill(pid);
    }
    let mut failed = 0;
    e2e::eventually("it answers again", || {
        let reply = worker.run("f", &json!({}));
        assert!([200, 502, 503].contains(&reply.status), "{}", reply.text());
        failed += usize::from(reply.status != 200);
        reply.status == 200
    });
    assert!(failed <= 1, "{failed} calls failed");
    worker.assert_well();
}

fn returns(text: &str) -> String {
    format!("def handler(event, context):\n    return {text:?}\n")
}

fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    // Killing one of them may have ended others.
    let _ = kill_process(pid, signal);
}
