//! Tasks and calls: what touches processes, clocks and the lock, and does what the policies say.

mod create;
mod create_queue;
mod observe;
mod pick;
mod prewarm;
mod rebalance;
mod replace;
mod replan;
mod report;
mod snapshot;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use create_queue::CreationTurns;
use function::VersionId;
use sandbox::Provider;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::model::profile::Profile;
use super::state::cache_state::CacheState;
use super::state::claim::Claims;
use super::state::creation::Node;
use super::state::zygote::{CachedZygote, ZygoteKey};
use crate::budget::Budget;
use crate::config::EngineConfig;
use crate::handler::Handler;
use crate::package::{PackageStore, Packages};
use crate::pages::Ledger;
use crate::secrets::{NoSecrets, SecretStore};
use crate::traffic::Traffic;
use crate::warm_pool::WarmPool;
use crate::zygote_tree::{TreeNode, ZygoteTree};

/// The zygotes of one worker, and the policy that makes, chooses and evicts them.
/// [`Engine`](crate::Engine) holds one; the simulator drives one without calls.
#[derive(Debug)]
pub struct ImportCache {
    provider: Arc<dyn Provider>,
    config: Arc<EngineConfig>,
    store: Option<Arc<dyn PackageStore>>,
    secrets: Arc<dyn SecretStore>,
    seed: Vec<TreeNode>,
    budget: Arc<Budget>,
    /// The idle instances that share the budget.
    idle: Option<Arc<dyn WarmPool>>,
    ledger: Ledger,
    claims: Arc<Claims>,
    background: TaskTracker,
    runtime: Handle,
    halt: CancellationToken,
    /// Imports take a whole core: making one zygote at a time leaves the other cores to calls.
    turns: CreationTurns,
    /// Whether a task waits for a quiet moment to apply observations and to replan.
    replanning: AtomicBool,
    /// Held by the one task that plans and makes zygotes.
    planners: Semaphore,
    /// Whether an outdated zygote is being replaced.
    replacing: AtomicBool,
    /// Number of times that package files have changed: zygotes begun in an earlier epoch are
    /// discarded.
    epoch: AtomicU64,
    /// Calls under way: zygotes are made between them.
    pub(crate) traffic: Traffic,
    state: Mutex<CacheState>,
}

impl ImportCache {
    /// An empty cache. Needs a tokio runtime, on which it makes zygotes. `store` lays out parts of
    /// locks; without it each lock is one unit. `seed`: zygotes to make as soon as handlers arrive
    /// that they may serve.
    pub fn new(
        provider: Arc<dyn Provider>,
        config: Arc<EngineConfig>,
        store: Option<Arc<dyn PackageStore>>,
        seed: Option<&ZygoteTree>,
        background: TaskTracker,
        halt: CancellationToken,
    ) -> Arc<Self> {
        let packages = Packages { store, seed: seed.cloned() };
        let secrets = Arc::new(NoSecrets);
        let budget = Arc::new(Budget::new(config.memory_bytes));
        Self::beside(None, budget, provider, config, packages, secrets, background, halt)
    }

    /// One that shares `budget` with the instances of `idle`.
    #[expect(clippy::too_many_arguments, reason = "what an engine is made of")]
    pub(crate) fn beside(
        idle: Option<Arc<dyn WarmPool>>,
        budget: Arc<Budget>,
        provider: Arc<dyn Provider>,
        config: Arc<EngineConfig>,
        packages: Packages,
        secrets: Arc<dyn SecretStore>,
        background: TaskTracker,
        halt: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            provider,
            config,
            store: packages.store,
            secrets,
            seed: packages.seed.as_ref().map(ZygoteTree::flatten).unwrap_or_default(),
            budget,
            idle,
            ledger: Ledger::default(),
            claims: Arc::default(),
            background,
            runtime: Handle::current(),
            halt,
            turns: CreationTurns::default(),
            replanning: AtomicBool::new(false),
            planners: Semaphore::new(1),
            replacing: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            traffic: Traffic::default(),
            state: Mutex::default(),
        })
    }

    /// The handler's profile, made from its declarations if it is new.
    fn profile(&self, state: &mut CacheState, handler: &Handler) -> Arc<Profile> {
        let secrets = self.secrets.names(handler);
        state.profile(handler, self.store.is_some(), &self.seed, secrets)
    }

    /// Forgets a handler that was deleted.
    pub fn forget(&self, handler: &VersionId) {
        self.state().profiles.remove(handler);
    }

    /// Drops a zygote that died or was impersonated.
    pub(crate) fn lose(&self, lost: &Arc<CachedZygote>, why: &str) {
        {
            let mut state = self.state();
            if !state.remove(lost) {
                return;
            }
            // A root is made again at once: calls need it. Any other might be lost again and again.
            if !lost.key.is_root() {
                state.refuse(lost.key.clone(), why.to_owned(), false);
            }
        }
        tracing::warn!(zygote = %lost.zygote.id(), why, "a zygote was given up");
    }

    /// Drops all zygotes but roots, which have imported no package, and discards those that are
    /// being made.
    pub(crate) fn renew(&self) {
        let gone: Vec<(ZygoteKey, Node)> = {
            let mut state = self.state();
            // Under the lock: a new creation reads the epoch and its possible parents under it.
            self.epoch.fetch_add(1, Ordering::AcqRel);
            state.look_again();
            let stale =
                |key: &ZygoteKey, node: &mut Node| !key.is_root() && matches!(node, Node::Ready(_));
            state.nodes.extract_if(stale).collect()
        };
        drop(gone);
    }

    /// Forgets all zygotes, refusals and creations under way.
    pub fn clear(&self) {
        let gone = {
            let mut state = self.state();
            state.look_again();
            self.budget.note_zygotes(0);
            std::mem::take(&mut state.nodes)
        };
        drop(gone);
    }

    fn state(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A zygote's number; 0 for none.
fn number(cached: Option<&CachedZygote>) -> u64 {
    cached.map_or(0, |cached| cached.zygote.id().0)
}
