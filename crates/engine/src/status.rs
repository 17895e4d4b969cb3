//! How the engine is, for `wool` and for the metrics.

use sandbox::{Layer, SandboxId};
use serde::{Deserialize, Serialize};

/// A look at the whole engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineStatus {
    /// Instances of all handlers.
    pub instances: InstanceStatus,
    /// The memory budget.
    pub memory: MemoryStatus,
    /// Zygotes that can be forked, oldest first.
    pub zygotes: Vec<ZygoteStatus>,
    /// Package sets that have no zygote, and why.
    pub refused: Vec<RefusedStatus>,
    /// Calls under way, waiting ones included.
    pub calls: usize,
    /// Calls that wait for an instance or a permit.
    pub waiting: usize,
    /// Handlers that have instances or waiting calls.
    pub handlers: usize,
    /// Sandboxes that were dropped and are not yet gone.
    pub reaping: usize,
    /// Whether new calls are refused.
    pub stopping: bool,
}

/// Instances of all handlers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceStatus {
    /// In a call, or being made for one.
    pub busy: usize,
    /// Kept for further calls.
    pub idle: usize,
    /// Calls that hold a permit to make one now.
    pub creating: usize,
    /// Most that there may be now, over all handlers.
    pub most: usize,
    /// Bytes that the idle ones cost.
    pub idle_bytes: u64,
}

/// What is kept in memory, and what may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// Bytes that idle instances, zygotes and what zygotes left behind may cost together.
    pub most_bytes: u64,
    /// Bytes that they may cost now: fewer while the host is short of memory, and for a while
    /// after.
    pub allowed_bytes: u64,
    /// Bytes that they cost, as last measured.
    pub used_bytes: u64,
    /// Of these, what zygotes left behind that are gone, and what came from them still holds.
    pub left_bytes: u64,
}

/// A zygote that can be forked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ZygoteStatus {
    /// The zygote's sandbox id.
    pub id: SandboxId,
    /// The one that it was derived from, or the nearest of its ancestors that is still there; none
    /// for a root.
    pub parent: Option<SandboxId>,
    /// The Python that it runs.
    pub base: Layer,
    /// Whose handlers are forked from it.
    pub tenant: String,
    /// The directory that it imports from; none for a root.
    pub packages: Option<Layer>,
    /// What is in that directory, each as `name==version`; the directory itself where its contents
    /// are not known.
    pub distributions: Vec<String>,
    /// What it was asked to import beyond its parent.
    pub imports: Vec<String>,
    /// Modules that it has imported from its packages, its parent's included.
    pub modules: usize,
    /// What it could not import, with the exception's words.
    pub failed_imports: Vec<(String, String)>,
    /// Environment variables that its imports looked up beyond its parent's; `A_*` for all that
    /// begin with `A_`. It serves no function that sets one of them.
    #[serde(default)]
    pub variables: Vec<String>,
    /// What its imports looked for beyond its parent's, found or not: `module lxml`, `distribution
    /// lxml`, `all distributions`. It serves no function that has one of those that it has not.
    #[serde(default)]
    pub looked_for: Vec<String>,
    /// Milliseconds that its imports took.
    pub import_ms: f64,
    /// Bytes that it costs, as last measured.
    pub memory_bytes: u64,
    /// Instances forked from it.
    pub forks: u64,
    /// Milliseconds of imports that it has spared the calls, by what was measured of the modules.
    pub saved_ms: f64,
}

/// A package set without a zygote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedStatus {
    /// Distributions of the set, each as `name==version` or as the lock's directory; empty for a
    /// root.
    pub distributions: Vec<String>,
    /// The reason of the refusal.
    pub why: String,
    /// Whether it will not be tried again while the worker lives.
    pub for_good: bool,
}

/// What importing a distribution was measured to cost, as far as zygotes have shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImportCost {
    /// Milliseconds that its modules took, all that were seen together; what they imported of
    /// others apart.
    pub milliseconds: Option<f64>,
    /// Bytes that a zygote which imported nothing else weighs beyond the one that it was derived
    /// from.
    pub bytes: Option<u64>,
}

impl EngineStatus {
    /// Tells the metrics.
    pub(crate) fn publish(&self) {
        let sandboxes = [
            ("instance", "busy", self.instances.busy),
            ("instance", "idle", self.instances.idle),
            ("zygote", "ready", self.zygotes.len()),
            ("any", "reaping", self.reaping),
        ];
        for (kind, state, count) in sandboxes {
            metrics::gauge!("lambswool_sandboxes", "kind" => kind, "state" => state)
                .set(gauge(count as u64));
        }
        let zygotes = self.zygotes.iter().map(|zygote| zygote.memory_bytes).sum();
        let kinds = [
            ("idle-instance", self.instances.idle_bytes),
            ("zygote", zygotes),
            ("left-behind", self.memory.left_bytes),
        ];
        for (kind, bytes) in kinds {
            metrics::gauge!("lambswool_memory_bytes", "kind" => kind).set(gauge(bytes));
        }
        metrics::gauge!("lambswool_memory_allowed_bytes").set(gauge(self.memory.allowed_bytes));
        metrics::gauge!("lambswool_instances_most").set(gauge(self.instances.most as u64));
        metrics::gauge!("lambswool_calls_waiting").set(gauge(self.waiting as u64));
    }
}

#[expect(clippy::cast_precision_loss, reason = "gauges are floats; 2^53 bytes are 9 petabytes")]
fn gauge(value: u64) -> f64 {
    value as f64
}
