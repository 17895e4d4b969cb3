//! Settings. Every ablation of the figures is a value here, none is a build of its own.

use std::time::Duration;

use sandbox::Limits;
use serde::{Deserialize, Serialize};

/// How long making one sandbox may take unless something else is set: the heaviest imports known
/// take some ten seconds.
pub(crate) const CREATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Which zygotes there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZygotePolicy {
    /// None: each instance starts a fresh interpreter.
    None,
    /// One for each Python, with nothing imported.
    Root,
    /// Beside the roots one for each exact package set that is called, the least recently used
    /// given up first.
    PerLock,
    /// SOCK §4.3 to the letter: a call that finds no exact match has one made from the best match,
    /// and waits for it.
    Paper,
    /// Those that spare the calls of late most import time, as measured; made off the calls' path.
    #[default]
    Utility,
    /// Those of a given tree, and no others.
    Static,
}

/// What the engine may use, and how it behaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// Whether finished instances are kept, paused, for further calls.
    pub handler_cache: bool,
    /// Bytes that idle instances, zygotes and what zygotes left behind may cost together, as
    /// measured; the most recently used root stays in any case. With `utility` it goes where it
    /// saves most, with other policies half to each.
    pub memory_bytes: u64,
    /// Bytes of these that idle instances may have, the least recently used given up first; 0 keeps
    /// none.
    pub handler_cache_bytes: u64,
    /// Most sandboxes over all handlers: instances, idle or busy, and zygotes. Beyond, an idle
    /// instance makes room for a new one; where none is idle, the call is told to come back.
    pub sandboxes: usize,
    /// How many of them a zygote counts as: itself, and what its provider keeps ready below it.
    pub zygote_sandboxes: usize,
    /// Most idle instances, since each also costs pids and file descriptors.
    pub idle_instances: usize,
    /// Instances idle for longer are destroyed.
    pub idle: Duration,
    /// Which zygotes there are.
    pub zygotes: ZygotePolicy,
    /// Bytes of `memory_bytes` that zygotes may have.
    pub zygote_bytes: u64,
    /// Zygotes between a root and the deepest one, that one included. Where each hands a part of
    /// its kernel uids down (`warden::uids`), at a depth of two there are still thousands for
    /// instances, two below hardly any.
    pub zygote_depth: usize,
    /// Zygotes that nothing was made from for longer are destroyed, but the most recently used
    /// root.
    pub zygote_idle: Duration,
    /// Starts after which one counts half as much as a new one, where popularity decides.
    pub zygote_half_life: f64,
    /// The recent interval over which the paper's policy counts uses.
    pub zygote_window: Duration,
    /// A zygote whose interpreter is older is replaced by a new one: all that come from it share
    /// its layout of memory.
    pub zygote_age: Duration,
    /// A zygote that was forked more often is replaced by a new one.
    pub zygote_forks: u64,
    /// Limits of each zygote.
    pub zygote_limits: Limits,
    /// A zygote that could not be made, or was lost, is not tried again before this has passed.
    pub zygote_retry: Duration,
    /// Threads that a handler's numeric libraries may have in a pool, as far as its own limit of
    /// processes allows.
    pub pool_threads: u32,
    /// Sandboxes that calls may be making at once.
    pub creations: usize,
    /// Making one sandbox may take this long.
    pub creation_timeout: Duration,
    /// Calls that may wait, over all handlers; the next is told to come back.
    pub queue: usize,
    /// Longest wait for an instance or a permit; then the call is told to come back.
    pub queue_timeout: Duration,
    /// What a refused call is told to wait.
    pub retry_after: Duration,
    /// Largest body of a reply, in bytes.
    pub reply_bytes: usize,
    /// Output passed on for one call, in bytes, what says whose it is included; the rest is counted
    /// and dropped.
    pub log_bytes: usize,
    /// Messages of its guest that are read for one call; one more, and its answer is not
    /// acceptable.
    pub messages: u64,
}

impl Default for EngineConfig {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            handler_cache: true,
            memory_bytes: 2 << 30,
            handler_cache_bytes: u64::MAX,
            sandboxes: 4096,
            zygote_sandboxes: 1,
            idle_instances: 1024,
            idle: Duration::from_secs(600),
            zygotes: ZygotePolicy::default(),
            zygote_bytes: u64::MAX,
            zygote_depth: 2,
            zygote_idle: Duration::from_secs(3600),
            zygote_half_life: 500.0,
            zygote_window: Duration::from_secs(300),
            zygote_age: Duration::from_secs(3600),
            zygote_forks: 10_000,
            zygote_limits: Limits { memory_bytes: 1 << 30, pids: 512, ..Limits::default() },
            zygote_retry: Duration::from_secs(30),
            pool_threads: u32::try_from(cores).unwrap_or(u32::MAX),
            creations: (2 * cores).max(4),
            creation_timeout: CREATION_TIMEOUT,
            queue: 1024,
            queue_timeout: Duration::from_secs(30),
            retry_after: Duration::from_secs(1),
            reply_bytes: 6 << 20,
            log_bytes: 1 << 20,
            // Four seconds' work or so: no guest of ours prints that many lines within its time.
            messages: 4 << 20,
        }
    }
}
