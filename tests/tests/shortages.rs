//! A machine that runs out of something: what does not need it goes on, what does is refused, and when there is some again
//! all goes on as before.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::machine::skip;
use e2e::{Site, Worker, can_run, json};
use rustix::process::{Pid, Signal, kill_process};

const MIB: u64 = 1 << 20;

const HELLO: &str = "def handler(event, context):\n    print('said', event)\n    return event\n";

/// Whether file systems can be mounted here.
fn can_mount() -> bool {
    if !can_run() {
        return false;
    }
    if !rustix::process::geteuid().is_root() {
        skip("root", "needs root to mount a file system");
        return false;
    }
    true
}

/// Asserts that an answer is a good one, or says that the worker could not do its part; whether it is good.
fn good_or_told(what: &str, reply: &e2e::Reply) -> bool {
    let good = (200..300).contains(&reply.status);
    if !good {
        assert!([500, 503].contains(&reply.status), "{what}: {} {}", reply.status, reply.text());
        assert!(!reply.error().is_empty(), "{what}");
    }
    good
}

#[test]
fn a_full_disk_costs_what_has_to_be_written_and_nothing_that_was_acknowledged() {
    if !can_mount() {
        return;
    }
    let mut site = Site::on_its_own_disk();
    let mut kept = vec!["hello".to_owned()];
    let mut gone = Vec::new();
    for (round, (bytes, files)) in [(0, 1000), (64 * MIB, 0)].into_iter().enumerate() {
        site.disk().leave(256 * MIB, 10_000);
        let worker = site.up();
        drop(worker.try_out("hello", HELLO).expect(200));
        drop(worker.deploy(&format!("old-{round}"), HELLO).expect(201));
        worker.site().disk().leave(bytes, files);
        assert_calls_are_served(&worker);
        for number in 0..4 {
            let name = format!("new-{round}-{number}");
            if good_or_told("deploy", &worker.deploy(&name, HELLO)) {
                kept.push(name);
            }
        }
        let old = format!("old-{round}");
        let removed = good_or_told("remove", &worker.delete(&format!("/v1/functions/{old}")));
        let list = if removed { &mut gone } else { &mut kept };
        list.push(old);
        let secret = worker.site().wool_reading(&["secret", "set", "other", "KEY"], b"value");
        assert!(secret.code == 0 || secret.stderr.contains("cannot be written"), "{secret:?}");
        drop(worker.get("/v1/functions").expect(200));
        assert_calls_are_served(&worker);
        // And with it again: without a start in between.
        worker.site().disk().leave(256 * MIB, 10_000);
        drop(worker.try_out("after", HELLO).expect(200));
        assert_eq!(worker.run("hello", &json!("again")).expect(200).json(), "again");
        e2e::eventually("what is printed is kept again", || {
            worker.logs("hello").iter().any(|line| line["text"] == "said again")
        });
        let actions = worker.site().wool(&["audit", "--json"]).json();
        assert!(actions.as_array().unwrap().iter().any(|one| one["function"] == "after"));
        site = worker.stop();
    }
    let worker = site.up();
    for name in &kept {
        assert_eq!(worker.run(name, &json!(1)).expect(200).json(), 1, "{name}");
    }
    for name in &gone {
        drop(worker.get(&format!("/v1/functions/{name}")).expect(404));
    }
    worker.assert_well();
}

/// From a kept instance, and from one of its own.
fn assert_calls_are_served(worker: &Worker) {
    std::thread::scope(|scope| {
        let calls = [0, 1, 2, 3].map(|number| {
            let call = move || worker.run("hello", &json!(number)).expect(200).json();
            (number, scope.spawn(call))
        });
        for (number, call) in calls {
            assert_eq!(call.join().unwrap(), number);
        }
    });
    drop(worker.get("/healthz").expect(200));
    drop(worker.status());
}

#[test]
fn a_worker_stops_on_a_full_disk_and_the_next_one_says_why_it_does_not_start() {
    if !can_mount() {
        return;
    }
    let worker = Site::on_its_own_disk().up();
    drop(worker.try_out("hello", HELLO).expect(200));
    worker.site().disk().leave(0, 0);
    let site = worker.stop();
    // The reason finds room in the last block of the log, or none.
    for full in [false, true] {
        if full {
            let log = site.state().join("logs/worker.log");
            let mut log = std::fs::File::options().append(true).open(log).unwrap();
            while log.write_all(b".").is_ok() {}
        }
        let words = site.wool(&["up", "--detach"]).failed(1);
        assert!(words.contains("No space left on device"), "{words}");
        assert!(!words.contains("panicked"), "{words}");
    }
    site.disk().leave(256 * MIB, 10_000);
    let worker = site.up();
    assert_eq!(worker.run("hello", &json!(1)).expect(200).json(), 1);
    worker.assert_well();
}

#[test]
fn a_base_that_is_removed_is_made_again_by_the_next_call() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    drop(worker.try_out("hello", HELLO).expect(200));
    let base = worker.site().state().join("layers/base");
    fs::remove_dir_all(&base).unwrap();
    fs::create_dir(&base).unwrap();
    kill_all(worker.site());
    // An instance that was killed may be found out by its call.
    let reply = worker.run("hello", &json!(1));
    assert!([200, 502].contains(&reply.status), "{} {}", reply.status, reply.text());
    assert_eq!(worker.run("hello", &json!(1)).expect(200).json(), 1);
    assert!(fs::read_dir(&base).unwrap().count() > 0);
    assert!(worker.log().contains("made again from its record"), "{}", worker.log());
    worker.assert_well();
}

fn kill_all(site: &Site) {
    for pid in site.sandboxed() {
        let pid = Pid::from_raw(pid.cast_signed()).unwrap();
        // Killing one of them may have ended others.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// A group of its own for a worker and its warden; the sandboxes are in the warden's. Dropping it removes it.
struct Group(PathBuf);

impl Group {
    fn make() -> Option<Self> {
        let first = Path::new("/sys/fs/cgroup/pids");
        let second = Path::new("/sys/fs/cgroup");
        let offered = fs::read_to_string(second.join("cgroup.subtree_control"));
        let top = match offered {
            _ if first.join("cgroup.procs").exists() => first,
            Ok(controllers) if controllers.contains("pids") => second,
            _ => {
                skip("cgroup", "needs cgroups that limit processes");
                return None;
            }
        };
        let dir = top.join(format!("e2e-processes-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        Some(Self(dir))
    }

    fn limit(&self, most: &str) {
        fs::write(self.0.join("pids.max"), most).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.limit("max");
        drop(fs::remove_dir(&self.0));
    }
}

#[test]
fn a_host_without_a_process_to_spare_costs_what_needs_one_and_only_then() {
    if !can_mount() {
        return;
    }
    let Some(group) = Group::make() else { return };
    let site = Site::new();
    let worker = site.up_after(&format!("echo $$ > {}/cgroup.procs", group.0.display()));
    drop(worker.try_out("hello", HELLO).expect(200));
    e2e::eventually("it is kept", || worker.status()["engine"]["instances"]["idle_bytes"] != 0);
    // Threads of the worker that have had nothing to do for a while end by themselves.
    std::thread::sleep(Duration::from_secs(12));
    group.limit("1");
    for number in 0..3 {
        assert_eq!(worker.run("hello", &json!(number)).expect(200).json(), number);
    }
    // Its source cannot be parsed without a process.
    let known = worker.deploy("new", HELLO).status == 201;
    let _ = good_or_told("logs", &worker.get("/v1/functions/hello/logs"));
    let removed = good_or_told("remove", &worker.delete("/v1/functions/hello"));
    drop(worker.status());
    drop(worker.get("/v1/functions").expect(200));
    group.limit("max");
    assert_eq!(worker.get("/v1/functions/hello").status == 404, removed);
    assert_eq!(worker.get("/v1/functions/new").status == 200, known);
    for name in ["new", "newer"] {
        assert_eq!(worker.try_out(name, HELLO).expect(200).json(), json!({}));
    }
    worker.assert_well();
    drop(worker.stop());
}
