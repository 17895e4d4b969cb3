//! The worker: how it starts, how it ends, and what must be there when it is back.

use std::sync::Arc;
use std::time::Duration;

use e2e::{Site, Worker};
use fastrand::Rng;
use rustix::process::Signal;

use crate::client::Load;
use crate::epoch::Epoch;
use crate::hold::{Held, Holds};
use crate::victim::{self, Victim};

/// Ways in which a worker ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// `wool down`: whatever it answered is in its logs.
    Stopped,
    WorkerKilled,
    WardenKilled,
    BothKilled,
    /// The sandboxes' pid 1.
    ReaperKilled,
}

impl End {
    pub(crate) const ALL: [Self; 5] = [
        Self::Stopped,
        Self::WorkerKilled,
        Self::WardenKilled,
        Self::BothKilled,
        Self::ReaperKilled,
    ];
}

/// Small enough that the load exceeds them all the time.
pub(crate) const HANDLER_CACHE_BYTES: u64 = 160 << 20;
pub(crate) const ZYGOTE_BYTES: u64 = 96 << 20;

/// Calls of a new worker before it is anybody's.
const CHECKED: usize = 8;

#[derive(Debug)]
pub(crate) struct Life {
    worker: Option<Worker>,
    epoch: Arc<Epoch>,
    holds: Holds,
    /// Lives that did not end by a kill.
    pub(crate) ended_well: Vec<u32>,
}

impl Life {
    /// Starts the first worker.
    pub(crate) fn begin(holds: Holds) -> Self {
        let worker = up(Site::new(), &holds);
        let epoch = Epoch::of(&worker, 0);
        Self { worker: Some(worker), epoch, holds, ended_well: Vec::new() }
    }

    pub(crate) fn worker(&self) -> &Worker {
        self.worker.as_ref().expect("it is gone only while it is replaced")
    }

    pub(crate) fn epoch(&self) -> &Arc<Epoch> {
        &self.epoch
    }

    pub(crate) fn holds(&self) -> &Holds {
        &self.holds
    }

    /// Ends the worker, starts the next one, and lets clients in when it was found to know all that it must.
    ///
    /// `held` waits at a fault point until the end has begun.
    pub(crate) fn replace(&mut self, end: End, held: Option<Held>, load: &Load, rng: &mut Rng) {
        let before = victim::sandboxes(self.worker().site());
        let site = self.end(end, held, load, rng);
        self.worker = Some(up(site, &self.holds));
        self.epoch = Epoch::of(self.worker(), self.epoch.number + 1);
        for pid in victim::sandboxes(self.worker().site()) {
            if before.contains(&pid) {
                load.history.failure(format_args!("sandbox {pid} has outlived its worker"));
            }
        }
        if self.worker().log().contains("panicked") {
            load.history.failure("a worker panicked: see its log");
        }
        let shared: Vec<&str> = load.functions.iter().map(|function| function.name).collect();
        load.own.check(load, &self.epoch, &shared);
        for _ in 0..CHECKED {
            load.call(load.choose(rng), &self.epoch, true, rng);
        }
        load.gate.open(Arc::clone(&self.epoch));
    }

    /// Ends the worker for good: what it served is judged by its logs.
    pub(crate) fn finish(mut self, load: &Load) {
        self.ended_well.push(self.epoch.number);
        let worker = self.worker.take().expect("it is gone only while it is replaced");
        // It asserts that nobody panicked.
        let site = worker.stop();
        let begun = load.starts.check(&site.state().join("logs"), &self.ended_well, &load.history);
        load.history.event(format_args!("{begun} calls have begun in a handler"));
        drop(site);
    }

    fn end(&mut self, end: End, held: Option<Held>, load: &Load, rng: &mut Rng) -> Site {
        let mut worker = self.worker.take().expect("it is gone only while it is replaced");
        self.epoch.doom();
        let (pid, warden) = (worker.pid(), worker.warden());
        let site = match end {
            End::Stopped => {
                self.ended_well.push(self.epoch.number);
                load.gate.close();
                // It would be waited for.
                drop(held);
                return worker.stop();
            }
            End::WorkerKilled => {
                Victim::of(pid).signal(Signal::KILL);
                load.gate.close();
                worker.crash()
            }
            End::BothKilled => {
                // The worker cannot end by itself before it is killed.
                Victim::of(pid).signal(Signal::STOP);
                Victim::of(warden).signal(Signal::KILL);
                load.gate.close();
                worker.crash()
            }
            End::WardenKilled | End::ReaperKilled => {
                let whom = if end == End::WardenKilled { warden } else { worker.reaper() };
                Victim::of(whom).signal(Signal::KILL);
                load.gate.close();
                drop(held);
                let status = worker.ended();
                if status.code() != Some(1) {
                    load.history
                        .failure(format_args!("without its warden the worker ended with {status}"));
                }
                worker.stop()
            }
        };
        // The next one comes at once, or when the warden of the last has cleaned up.
        std::thread::sleep(Duration::from_millis(rng.u64(0..2) * rng.u64(0..1500)));
        site
    }
}

fn up(site: Site, holds: &Holds) -> Worker {
    let faults = holds.dir().to_str().expect("our paths are text").to_owned();
    site.up_with(&[
        ("LAMBSWOOL_FAULTS", &faults),
        ("WOOL_HANDLER_CACHE_BYTES", &HANDLER_CACHE_BYTES.to_string()),
        ("WOOL_ZYGOTE_BYTES", &ZYGOTE_BYTES.to_string()),
        ("WOOL_IDLE", "2"),
        ("WOOL_EGRESS", "fetches"),
        ("WOOL_EGRESS_ALLOW", "127.0.0.1"),
        ("WOOL_LOG_BYTES", "1TiB"),
    ])
}
