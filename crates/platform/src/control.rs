//! Status of the worker, metrics, zygotes, and stopping it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Engine, EngineStatus, RefusedStatus, ZygoteStatus, ZygoteTree};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;

use crate::access::{Permit, Scope, to};
use crate::functions::Registry;
use crate::logs::Logs;

/// A running worker, for callers with a permit.
#[derive(Debug)]
pub struct Control {
    engine: Arc<Engine>,
    registry: Arc<Registry>,
    logs: Arc<Logs>,
    metrics: PrometheusHandle,
    state: PathBuf,
    began: Instant,
    stop: CancellationToken,
}

/// How a worker is.
#[derive(Clone, Debug)]
pub struct Status {
    /// What only administrators see.
    pub host: Option<Host>,
    /// Since it came up.
    pub uptime: Duration,
    /// Functions of the tenant, hidden ones included.
    pub functions: usize,
    /// Pieces of output that were dropped.
    pub log_pieces_dropped: u64,
    /// Instances, memory and queue. Zygotes are of all tenants: only administrators see them.
    pub engine: EngineStatus,
}

/// Where a worker is on its host.
#[derive(Clone, Debug)]
pub struct Host {
    /// The worker's process.
    pub pid: u32,
    /// Its state directory.
    pub state: PathBuf,
}

/// The import cache.
#[derive(Clone, Debug)]
pub struct Zygotes {
    /// Those that can be forked, oldest first.
    pub zygotes: Vec<ZygoteStatus>,
    /// What is not forked from, and why.
    pub refused: Vec<RefusedStatus>,
    /// The same zygotes as a tree that another worker can start from.
    pub tree: ZygoteTree,
}

impl Control {
    /// A worker that came up now, with its state directory. Cancelling `stop` stops it.
    #[must_use]
    pub fn new(
        engine: Arc<Engine>,
        registry: Arc<Registry>,
        logs: Arc<Logs>,
        metrics: PrometheusHandle,
        state: PathBuf,
        stop: CancellationToken,
    ) -> Self {
        Self { engine, registry, logs, metrics, state, began: Instant::now(), stop }
    }

    /// How the worker is, as far as the caller may know.
    #[must_use]
    pub fn status(&self, permit: &Permit<to::ReadStatus>) -> Status {
        let administers = permit.caller().may(Scope::Admin);
        let mut engine = self.engine.status();
        if !administers {
            engine.zygotes.clear();
            engine.refused.clear();
        }
        let host = || Host { pid: std::process::id(), state: self.state.clone() };
        let functions = self.registry.list();
        Status {
            host: administers.then(host),
            uptime: self.began.elapsed(),
            functions: functions.iter().filter(|one| one.is_of(permit.tenant())).count(),
            log_pieces_dropped: self.logs.dropped(),
            engine,
        }
    }

    /// All metrics, in Prometheus' text format.
    #[must_use]
    pub fn metrics(&self, _: &Permit<to::ReadMetrics>) -> String {
        // Sets the gauges that nothing else sets between calls.
        drop(self.engine.status());
        self.metrics.render()
    }

    /// The import cache.
    #[must_use]
    pub fn zygotes(&self, _: &Permit<to::ListZygotes>) -> Zygotes {
        let EngineStatus { zygotes, refused, .. } = self.engine.status();
        Zygotes { zygotes, refused, tree: self.engine.zygote_tree() }
    }

    /// Stops the worker: running calls may end, then it goes.
    pub fn stop(&self, _: &Permit<to::Stop>) {
        tracing::info!("asked to stop");
        self.stop.cancel();
    }

    /// Whether the worker is stopping.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Returns when the worker is told to stop.
    pub async fn stopping(&self) {
        self.stop.cancelled().await;
    }
}
