//! A worker whose cgroups were delegated to it, as by a systemd unit with `Delegate=yes`: here the group is made by hand
//! and marked as systemd marks it.

use std::fs;
use std::path::{Path, PathBuf};

use e2e::machine::skip;
use e2e::{Site, Worker, can_run, json};
use rustix::fs::XattrFlags;
use rustix::process::{Pid, Signal, kill_process};

const TOP: &str = "/sys/fs/cgroup";

#[test]
fn a_worker_makes_its_groups_below_the_group_that_was_delegated_to_it() {
    let Some(unit) = Unit::make() else { return };
    // We stand for the shell that the worker is started from: whoever is in the group is moved into its leaf.
    let worker = Site::new().up();
    assert!(worker.log().contains("below the delegated group"), "{}", worker.log());
    let doctor = worker.site().wool(&["doctor"]).stdout;
    let below = format!("version 2, delegated: below {}", unit.path().display());
    assert!(doctor.contains(&below), "{doctor}");
    let leaf = unit.path().join("supervisor");
    for pid in [worker.pid(), worker.warden(), std::process::id()] {
        assert_eq!(group_of(pid), leaf, "{pid}");
    }
    assert_eq!(worker.try_out("f", "def handler(event, context):\n    return 1\n").text(), "1");
    for pid in worker.site().sandboxed() {
        let group = group_of(pid);
        assert!(group.starts_with(unit.path()) && !group.starts_with(&leaf), "{}", group.display());
    }
    assert_eq!(worker.site().cgroups().len(), 1);
    assert_limits_hold(&worker);

    // A crash in one unit is cleared by a start in another.
    e2e::eventually("an instance is kept", || worker.status()["engine"]["instances"]["idle"] != 0);
    let before = worker.site().cgroups();
    signal(worker.pid(), Signal::STOP);
    signal(worker.warden(), Signal::KILL);
    let site = worker.crash();
    assert_eq!(site.cgroups(), before);
    unit.leave();
    let worker = site.up();
    assert!(worker.log().contains("at the top of the hierarchy"), "{}", worker.log());
    assert!(worker.site().cgroups().iter().all(|dir| dir.parent() == Some(Path::new(TOP))));
    worker.assert_well();
    drop(worker.stop());
    unit.assert_empty();
}

fn assert_limits_hold(worker: &Worker) {
    let greedy = |name: &str, setting: &str, body: &str| {
        let source = format!(
            "# /// script\n# [tool.lambswool]\n# {setting}\n# ///\nimport os, signal\ndef handler(event, context):\n    {body}\n"
        );
        worker.try_out(name, &source)
    };
    let error = greedy("memory", "memory = \"64MB\"", "return len(b'x' * (1 << 30))");
    assert_eq!(
        error.expect(502).error(),
        "died: the handler died: it reached its memory limit: the setting `memory` in [tool.lambswool] allows more"
    );
    let forks = "
    made = 0
    try:
        while os.fork():
            made += 1
        signal.pause()
    except BlockingIOError:
        return made";
    let made = greedy("processes", "pids = 16", forks).expect(200).json();
    assert!(made.as_u64().is_some_and(|made| (1..16).contains(&made)), "{made}");
    assert_eq!(worker.run("f", &json!({})).expect(200).json(), 1);
}

/// A group that is delegated to whoever is in it, with this process in it. Dropping it leaves and removes it.
struct Unit {
    dir: PathBuf,
    before: PathBuf,
}

impl Unit {
    fn make() -> Option<Self> {
        if !can_run() {
            return None;
        }
        let controllers = fs::read_to_string(format!("{TOP}/cgroup.controllers"));
        if !controllers.is_ok_and(|names| names.contains("memory") && names.contains("pids")) {
            skip("cgroup2", "needs cgroups of version 2 alone");
            return None;
        }
        let dir = Path::new(TOP).join(format!("e2e-unit-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        rustix::fs::setxattr(&dir, "trusted.delegate", b"1", XattrFlags::empty()).unwrap();
        let unit = Self { dir, before: group_of(std::process::id()) };
        move_to(&unit.dir);
        Some(unit)
    }

    /// As `/proc/<pid>/cgroup` has it.
    fn path(&self) -> PathBuf {
        Path::new("/").join(self.dir.file_name().unwrap())
    }

    fn leave(&self) {
        move_to(&Path::new(TOP).join(self.before.strip_prefix("/").unwrap()));
    }

    fn assert_empty(&self) {
        let below = fs::read_dir(&self.dir).unwrap().flatten();
        let groups: Vec<_> = below.filter(|e| e.path().is_dir()).map(|e| e.file_name()).collect();
        assert_eq!(groups, ["supervisor"]);
        let left = fs::read_to_string(self.dir.join("supervisor/cgroup.procs")).unwrap();
        assert_eq!(left, "", "processes are left");
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        self.leave();
        drop(fs::remove_dir(self.dir.join("supervisor")));
        drop(fs::remove_dir(&self.dir));
    }
}

fn move_to(group: &Path) {
    fs::write(group.join("cgroup.procs"), "0").unwrap();
}

fn group_of(pid: u32) -> PathBuf {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap().into()
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}
