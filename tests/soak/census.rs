//! What there is of everything: budgets all along, and at calm points whether anything has stayed that should be gone.
//!
//! At a calm point no call is under way and idle instances have expired: zygotes are left, and what they keep ready.

use std::fs;
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use e2e::{Value, Worker};

use crate::client::Load;
use crate::exchange::Request;
use crate::life::Life;

/// How long a budget may be exceeded: what is new is weighed a moment after it came.
const GRACE: Duration = Duration::from_secs(3);

/// How long it may take until all is calm.
const CALM: Duration = Duration::from_secs(60);

/// Descriptors that a worker and a warden may have more after a thousand calls, and KiB.
const MOST_FDS: f64 = 4.0;
const MOST_KIB: f64 = 2000.0;

/// Calls after which a slope says something.
const ENOUGH: u64 = 1000;

#[derive(Debug, Default)]
pub(crate) struct Census {
    calm: Mutex<Vec<Calm>>,
    peaks: Mutex<Peaks>,
}

/// The most that was seen, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peaks {
    pub(crate) idle: u64,
    pub(crate) zygotes: u64,
    pub(crate) instances: u64,
}

/// A calm point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calm {
    pub(crate) epoch: u32,
    pub(crate) calls: u64,
    pub(crate) zygotes: usize,
    pub(crate) sandboxes: usize,
    pub(crate) worker: Process,
    pub(crate) warden: Process,
}

/// What a process has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    pub(crate) fds: usize,
    pub(crate) kib: u64,
}

impl Process {
    fn look(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib =
            rss.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
        Self { fds: fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count), kib }
    }
}

impl Census {
    /// Looks at the budgets until the load is over.
    pub(crate) fn watch(&self, load: &Load, handler_cache: u64, zygotes: u64) {
        let mut exceeded: [Option<Instant>; 2] = [None, None];
        while !load.gate.over() {
            sleep(Duration::from_millis(200));
            let Some(epoch) = load.gate.now() else { continue };
            let Ok(answer) = epoch.way(true).exchange(&Request::get("/v1/status")) else {
                continue;
            };
            let engine = &answer.json()["engine"];
            let (idle, costs) = (number(&engine["instances"]["idle_bytes"]), costs(engine));
            {
                let mut peaks = self.peaks.lock().unwrap();
                peaks.idle = peaks.idle.max(idle);
                peaks.zygotes = peaks.zygotes.max(costs);
                let instances = &engine["instances"];
                peaks.instances =
                    peaks.instances.max(number(&instances["idle"]) + number(&instances["busy"]));
            }
            for (index, (what, bytes, budget)) in
                [("idle instances", idle, handler_cache), ("zygotes", costs, zygotes)]
                    .into_iter()
                    .enumerate()
            {
                let since = &mut exceeded[index];
                if bytes <= budget {
                    *since = None;
                } else if since.get_or_insert_with(Instant::now).elapsed() > GRACE {
                    load.history
                        .failure(format_args!("{what} cost {bytes} bytes, {budget} is the budget"));
                    *since = None;
                }
            }
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
                load.history.failure(format_args!(
                    "not calm after {} s: {} clients, {sandboxes} sandboxed processes, {engine}",
                    CALM.as_secs(),
                    if load.gate.is_empty() { "no" } else { "some" }
                ));
                break;
            }
            sleep(Duration::from_millis(50));
        }
        let status = worker.status();
        self.calm.lock().unwrap().push(Calm {
            epoch: life.epoch().number,
            calls: load.calls.load(std::sync::atomic::Ordering::Relaxed),
            zygotes: zygotes(&status["engine"]).len(),
            sandboxes: worker.site().sandboxed().len(),
            worker: Process::look(worker.pid()),
            warden: Process::look(worker.warden()),
        });
        load.gate.open(std::sync::Arc::clone(life.epoch()));
    }

    pub(crate) fn points(&self) -> Vec<Calm> {
        self.calm.lock().unwrap().clone()
    }

    pub(crate) fn peaks(&self) -> Peaks {
        *self.peaks.lock().unwrap()
    }

    /// Whether anything grows with the calls, over the calm points of one worker.
    pub(crate) fn check_slopes(&self, epoch: u32, load: &Load) {
        let points: Vec<Calm> =
            self.points().into_iter().filter(|calm| calm.epoch == epoch).collect();
        let calls = points.last().map_or(0, |last| last.calls - points[0].calls);
        if calls < ENOUGH {
            return;
        }
        // A zygote more is some descriptors more: only what is beyond that counts.
        let fds = |of: fn(&Calm) -> usize| {
            move |calm: &Calm| of(calm) as f64 / (1 + calm.sandboxes) as f64
        };
        let lines: [(&str, f64, f64); 4] = [
            (
                "the worker's descriptors per sandbox",
                slope(&points, fds(|calm| calm.worker.fds)),
                MOST_FDS,
            ),
            (
                "the warden's descriptors per sandbox",
                slope(&points, fds(|calm| calm.warden.fds)),
                MOST_FDS,
            ),
            ("the worker's KiB", slope(&points, |calm| calm.worker.kib as f64), MOST_KIB),
            ("the warden's KiB", slope(&points, |calm| calm.warden.kib as f64), MOST_KIB),
        ];
        for (what, slope, most) in lines {
            load.history.event(format_args!("{what}: {slope:.2} more with each thousand calls"));
            if slope > most {
                load.history
                    .failure(format_args!("{what}: {slope:.2} more with each thousand calls"));
            }
        }
    }
}

/// Least squares, per thousand calls.
fn slope(points: &[Calm], of: impl Fn(&Calm) -> f64) -> f64 {
    let count = points.len() as f64;
    let x = |calm: &Calm| calm.calls as f64 / 1000.0;
    let (mean_x, mean_y) =
        (points.iter().map(x).sum::<f64>() / count, points.iter().map(&of).sum::<f64>() / count);
    let covariance: f64 = points.iter().map(|calm| (x(calm) - mean_x) * (of(calm) - mean_y)).sum();
    let variance: f64 = points.iter().map(|calm| (x(calm) - mean_x).powi(2)).sum();
    if variance > 0.0 { covariance / variance } else { 0.0 }
}

fn is_calm(worker: &Worker) -> bool {
    let status = worker.status();
    let engine = &status["engine"];
    let none = |value: &Value| number(value) == 0;
    // A zygote, the copy of it that serves, and two spare forks.
    let most = 4 * zygotes(engine).len();
    none(&engine["instances"]["busy"])
        && none(&engine["instances"]["idle"])
        && none(&engine["calls"])
        && none(&engine["reaping"])
        && none(&engine["handlers"])
        && worker.site().sandboxed().len() <= most
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
