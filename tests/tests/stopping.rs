//! The end of a worker that keeps hundreds of paused instances: soon, without a word, and nothing is left.

use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use e2e::{Site, Worker, can_run, json};
use rustix::process::{Pid, Signal, kill_process};

/// As many as are kept; fewer where each takes longer.
fn many() -> u64 {
    240 / u64::from(e2e::slow())
}

/// It takes a second; a worker whose warden does not come to its end gives up after 15.
fn patience() -> Duration {
    Duration::from_secs(12) * e2e::slow()
}

#[test]
fn a_worker_that_keeps_hundreds_of_instances_stops_soon_and_quietly() {
    if !can_run() {
        return;
    }
    let worker = full();
    let log = worker.log().len();
    let began = Instant::now();
    let said = worker.site().wool(&["down"]);
    let took = began.elapsed();
    assert_eq!(said.code, 0, "{said:?}");
    let last_words = worker.log().split_off(log);
    assert!(!last_words.contains("WARN"), "{last_words}");
    assert!(took < patience(), "{took:?}");
    // At once: whoever says that it has stopped has removed everything.
    assert_eq!(worker.site().processes(), Vec::<String>::new());
    assert!(worker.site().cgroups().is_empty());
    drop(worker.stop());
}

#[test]
fn a_connection_that_says_nothing_more_does_not_hold_up_a_stop() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_DRAIN", "1s")]);
    drop(worker.try_out("f", "def handler(event, context):\n    return 1\n").expect(200));
    let mut half = TcpStream::connect(worker.url().trim_start_matches("http://")).unwrap();
    half.write_all(b"GET /hea").unwrap();
    let log = worker.log().len();
    let said = worker.site().wool(&["down"]);
    assert_eq!(said.code, 0, "{said:?}");
    let last_words = worker.log().split_off(log);
    assert!(!last_words.contains("still at work"), "{last_words}");
    assert!(worker.site().cgroups().is_empty());
    drop((half, worker.stop()));
}

#[test]
fn hundreds_of_instances_end_with_a_killed_worker_and_the_next_one_need_not_wait() {
    if !can_run() {
        return;
    }
    let worker = full();
    let before = worker.site().sandboxed();
    let site = worker.crash();
    let began = Instant::now();
    // The killed one's warden may still be at work.
    let worker = site.up();
    let took = began.elapsed();
    assert_gone(&before, &worker);
    assert!(took < patience(), "{took:?}");
    assert_eq!(worker.run("f", &json!({})).expect(200).json(), "slept");
    worker.assert_well();
}

#[test]
fn hundreds_of_instances_that_a_killed_warden_left_are_gone_once_the_next_worker_is_there() {
    if !can_run() {
        return;
    }
    let worker = full();
    let before = worker.site().sandboxed();
    signal(worker.pid(), Signal::STOP);
    signal(worker.warden(), Signal::KILL);
    let site = worker.crash();
    let began = Instant::now();
    let worker = site.up();
    let took = began.elapsed();
    assert_gone(&before, &worker);
    assert!(took < patience(), "{took:?}");
    assert_eq!(worker.run("f", &json!({})).expect(200).json(), "slept");
    worker.assert_well();
}

#[test]
fn a_warden_that_is_killed_while_it_stops_leaves_no_sandbox() {
    if !can_run() {
        return;
    }
    let worker = full();
    let (warden, reaper) = (worker.warden(), worker.reaper());
    let arguments = format!("/proc/{reaper}/cmdline");
    let down = std::thread::scope(|scope| {
        let down = scope.spawn(|| worker.site().wool(&["down"]));
        // The first that goes is the sandboxes' pid 1. It stays until the last of the others is gone, without memory.
        while std::fs::read(&arguments).is_ok_and(|arguments| !arguments.is_empty()) {}
        signal(warden, Signal::KILL);
        down.join().unwrap()
    });
    assert_eq!(down.code, 0, "{down:?}");
    e2e::eventually("every sandbox has ended", || worker.site().sandboxed().is_empty());
    let site = worker.stop();
    // On version 2 nobody has to thaw anything at once: the next worker removes the cgroups.
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        drop(site.up().stop());
    }
}

fn assert_gone(before: &[u32], worker: &Worker) {
    let now = worker.site().sandboxed();
    let left: Vec<_> = before.iter().filter(|pid| now.contains(pid)).collect();
    assert!(left.is_empty(), "{} have outlived their worker", left.len());
}

/// A worker that keeps that many instances, paused.
fn full() -> Worker {
    let worker = Site::new().up();
    let source = "# /// script\n# [tool.lambswool]\n# concurrency = 1000\n# timeout = 600\n# ///\n\
        import time\ndef handler(event, context):\n    time.sleep(event.get('sleep', 0))\n    return 'slept'\n";
    drop(worker.deploy("f", source).expect(201));
    let idle = || worker.status()["engine"]["instances"]["idle"].as_u64().unwrap();
    let event = json!({ "sleep": 2 * e2e::slow() });
    // Those that are there serve first: each round adds some of what is missing.
    while idle() < many() {
        std::thread::scope(|scope| {
            for _ in 0..many() {
                scope.spawn(|| worker.run("f", &event).expect(200));
            }
        });
    }
    worker
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}
