//! What there is of everything: budgets all along, and at calm points whether anything has stayed that should be gone.
//!
//! At a calm point no call is under way and idle instances have expired: zygotes are left, and what they keep ready.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use e2e::{Site, Value, Worker};

use crate::client::Load;
use crate::exchange::Request;
use crate::growth;
use crate::history::History;
use crate::life::{HANDLER_CACHE_BYTES, Life, ZYGOTE_BYTES};
use crate::own;

/// How long a budget may be exceeded: what is new is weighed a moment after it came.
const GRACE: Duration = Duration::from_secs(3);

/// What the kernel charges beside: page cache of layers, and its own.
const SLACK: u64 = 64 << 20;

/// How long it may take until all is calm.
const CALM: Duration = Duration::from_secs(60);

/// Empty cgroups that may be kept for each zygote, and for what none forks, when nobody asks for any: those to be used again, and
/// those of slots.
const EMPTY_GROUPS: usize = 16;

#[derive(Debug)]
pub(crate) struct Census {
    /// What the kernel says that all sandboxes cost; none where it does not count.
    memory: Option<PathBuf>,
    calm: Mutex<Vec<Calm>>,
    peaks: Mutex<Peaks>,
    grown: Mutex<Vec<String>>,
}

/// The most that was seen, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peaks {
    pub(crate) idle: u64,
    pub(crate) zygotes: u64,
    pub(crate) instances: u64,
    pub(crate) sandboxes: u64,
}

/// A calm point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calm {
    pub(crate) epoch: u32,
    pub(crate) calls: u64,
    pub(crate) zygotes: usize,
    pub(crate) sandboxes: usize,
    /// Cgroups of sandboxes, empty ones included.
    pub(crate) groups: usize,
    /// Of all sandboxes, as the kernel says.
    pub(crate) bytes: u64,
    pub(crate) worker: Process,
    pub(crate) warden: Process,
}

/// What a process has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    /// Descriptors, but for those of cgroups that there are: a calm point counts these.
    pub(crate) fds: usize,
    pub(crate) kib: u64,
}

impl Process {
    fn look(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib =
            rss.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let fds = fds.filter(|fd| !fs::read_link(fd.path()).is_ok_and(|to| is_of_a_cgroup(&to)));
        Self { fds: fds.count(), kib }
    }
}

/// Whether there is such a file in a hierarchy of cgroups. That of one that was removed is called ` (deleted)`.
fn is_of_a_cgroup(path: &Path) -> bool {
    path.starts_with("/sys/fs/cgroup") && path.exists()
}

/// Cgroups below ours in the hierarchy that has most.
fn groups(worker: &Worker) -> usize {
    fn below(dir: &Path) -> usize {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        dirs.map(|dir| 1 + below(&dir.path())).sum()
    }
    worker.site().cgroups().iter().map(|top| below(top)).max().unwrap_or(0)
}

/// Bytes that something may cost, and since when it has cost more.
#[derive(Debug)]
struct Budget {
    what: &'static str,
    bytes: u64,
    exceeded: Option<Instant>,
}

impl Budget {
    fn new(what: &'static str, bytes: u64) -> Self {
        Self { what, bytes, exceeded: None }
    }

    fn check(&mut self, cost: u64, history: &History) {
        if cost <= self.bytes {
            self.exceeded = None;
        } else if self.exceeded.get_or_insert_with(Instant::now).elapsed() > GRACE {
            let Self { what, bytes, .. } = self;
            history.failure(format_args!("{what} cost {cost} bytes, {bytes} is the budget"));
            self.exceeded = None;
        }
    }
}

impl Census {
    /// For all workers of a site: their cgroups have one name.
    pub(crate) fn of(site: &Site) -> Self {
        let files = ["memory.usage_in_bytes", "memory.current"];
        let all = site.cgroups().into_iter().flat_map(|dir| files.map(|file| dir.join(file)));
        let memory = all.into_iter().find(|file| file.exists());
        Self { memory, calm: Mutex::default(), peaks: Mutex::default(), grown: Mutex::default() }
    }

    fn sandboxes_cost(&self) -> u64 {
        let text = self.memory.as_ref().and_then(|file| fs::read_to_string(file).ok());
        text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    /// Looks at the budgets until the load is over.
    pub(crate) fn watch(&self, load: &Load) {
        let mut instances = Budget::new("idle instances", HANDLER_CACHE_BYTES);
        let mut zygotes = Budget::new("zygotes", ZYGOTE_BYTES);
        while !load.gate.over() {
            sleep(Duration::from_millis(200));
            let Some(epoch) = load.gate.now() else { continue };
            let Ok(answer) = epoch.way(true).exchange(&Request::get("/v1/status")) else {
                continue;
            };
            let engine = &answer.json()["engine"];
            let (counts, costs) = (&engine["instances"], costs(engine));
            let idle = number(&counts["idle_bytes"]);
            instances.check(idle, &load.history);
            zygotes.check(costs, &load.history);
            let mut peaks = self.peaks.lock().unwrap();
            peaks.idle = peaks.idle.max(idle);
            peaks.zygotes = peaks.zygotes.max(costs);
            peaks.instances =
                peaks.instances.max(number(&counts["idle"]) + number(&counts["busy"]));
            peaks.sandboxes = peaks.sandboxes.max(self.sandboxes_cost());
        }
    }

    /// Holds all clients off until everything is calm, and looks.
    pub(crate) fn calm(&self, life: &Life, load: &Load) {
        load.gate.close();
        let begun = Instant::now();
        let worker = life.worker();
        while !(load.gate.is_empty() && is_calm(worker)) {
            if begun.elapsed() > CALM {
                let engine = &worker.status()["engine"];
                let sandboxes = worker.site().sandboxed().len();
                let groups = groups(worker);
                load.history.failure(format_args!(
                    "not calm after {} s: {} clients, {sandboxes} sandboxed processes in {groups} cgroups, {engine}",
                    CALM.as_secs(),
                    if load.gate.is_empty() { "no" } else { "some" }
                ));
                break;
            }
            sleep(Duration::from_millis(50));
        }
        check_logs(life, load);
        let status = worker.status();
        let bytes = self.sandboxes_cost();
        if bytes > ZYGOTE_BYTES + SLACK {
            load.history.failure(format_args!(
                "with zygotes only, sandboxes cost {bytes} bytes; {ZYGOTE_BYTES} is the budget"
            ));
        }
        self.calm.lock().unwrap().push(Calm {
            bytes,
            epoch: life.epoch().number,
            calls: load.calls.load(Ordering::Relaxed),
            zygotes: zygotes(&status["engine"]).len(),
            sandboxes: worker.site().sandboxed().len(),
            groups: groups(worker),
            worker: Process::look(worker.pid()),
            warden: Process::look(worker.warden()),
        });
        load.gate.open(Arc::clone(life.epoch()));
    }

    pub(crate) fn points(&self) -> Vec<Calm> {
        self.calm.lock().unwrap().clone()
    }

    pub(crate) fn peaks(&self) -> Peaks {
        *self.peaks.lock().unwrap()
    }

    /// What was said of growth.
    pub(crate) fn grown(&self) -> Vec<String> {
        self.grown.lock().unwrap().clone()
    }

    /// Whether anything grows with the calls, over the calm points of one worker.
    pub(crate) fn check_growth(&self, epoch: u32, load: &Load) {
        let points: Vec<Calm> =
            self.points().into_iter().filter(|calm| calm.epoch == epoch).collect();
        for said in growth::judge(&points) {
            if !said.well {
                load.history.failure(&said.words);
            }
            self.grown.lock().unwrap().push(said.words);
        }
    }
}

/// Whether each log is that of a function that is there.
fn check_logs(life: &Life, load: &Load) {
    let Some(functions) = own::listed(life.epoch(), &load.history) else { return };
    let logs = fs::read_dir(life.worker().site().state().join("logs")).into_iter().flatten();
    for name in logs.flatten().map(|log| log.file_name().to_string_lossy().into_owned()) {
        if !functions.contains(&name) {
            load.history.failure(format_args!("there is a log of {name}, which is gone"));
        }
    }
}

fn is_calm(worker: &Worker) -> bool {
    let status = worker.status();
    let engine = &status["engine"];
    let none = |value: &Value| number(value) == 0;
    // A zygote, the copy of it that serves, and two spare forks.
    let most = 4 * zygotes(engine).len();
    let most_groups = most + EMPTY_GROUPS * (2 * zygotes(engine).len() + 1);
    none(&engine["instances"]["busy"])
        && none(&engine["instances"]["idle"])
        && none(&engine["calls"])
        && none(&engine["reaping"])
        && none(&engine["handlers"])
        && worker.site().sandboxed().len() <= most
        && groups(worker) <= most_groups
}

fn zygotes(engine: &Value) -> Vec<Value> {
    engine["zygotes"].as_array().cloned().unwrap_or_default()
}

fn costs(engine: &Value) -> u64 {
    zygotes(engine).iter().map(|zygote| number(&zygote["memory_bytes"])).sum()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}
