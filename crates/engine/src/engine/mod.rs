//! The engine: what it is made of, and what can be asked of it. A call's way through it is in
//! `stages`.

mod promised;
mod stages;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sandbox::wire::LogStream;
use sandbox::{Kind, Layer, Provider};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, info_span};

use crate::budget::{Budget, Pressure};
use crate::call::{Call, CallError, Served};
use crate::config::EngineConfig;
use crate::fault;
use crate::handler::Handler;
use crate::import_cache::ImportCache;
use crate::journey::Journey;
use crate::output::LogSink;
use crate::package::Packages;
use crate::relay::Relay;
use crate::scheduler::Scheduler;
use crate::secrets::{NoSecrets, SecretStore};
use crate::status::{EngineStatus, ImportCost, InstanceStatus, MemoryStatus};
use crate::warm_pool::WarmPool;
use crate::zygote_tree::ZygoteTree;
use function::VersionId;
use promised::Promises;
pub use promised::{Kept, Promise};

/// Time that tasks get to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Time after which a destroyed sandbox has freed what it held.
const RELEASE_DELAY: Duration = Duration::from_millis(20);

/// Serves calls with sandboxes from one provider.
#[derive(Debug)]
pub struct Engine {
    config: Arc<EngineConfig>,
    provider: Arc<dyn Provider>,
    logs: Arc<dyn LogSink>,
    secrets: Arc<dyn SecretStore>,
    budget: Arc<Budget>,
    scheduler: Arc<Scheduler>,
    imports: Arc<ImportCache>,
    calls: TaskTracker,
    background: TaskTracker,
    promises: Promises,
    stopping: AtomicBool,
    /// Ends whatever still runs.
    halt: CancellationToken,
}

impl Engine {
    /// An engine with nothing in its caches. Inside a tokio runtime, on which it does what is off
    /// the calls' path.
    #[must_use]
    pub fn new(
        provider: Arc<dyn Provider>,
        config: EngineConfig,
        logs: Arc<dyn LogSink>,
    ) -> Arc<Self> {
        Self::with_stores(provider, config, logs, Packages::default(), Arc::new(NoSecrets))
    }

    /// An engine whose import cache knows what locks hold, and whose handlers are told their
    /// functions' secrets.
    #[must_use]
    pub fn with_stores(
        provider: Arc<dyn Provider>,
        config: EngineConfig,
        logs: Arc<dyn LogSink>,
        packages: Packages,
        secrets: Arc<dyn SecretStore>,
    ) -> Arc<Self> {
        let config = Arc::new(config);
        let background = TaskTracker::new();
        let halt = CancellationToken::new();
        let budget = Arc::new(Budget::new(config.memory_bytes));
        let scheduler =
            Scheduler::new(Arc::clone(&config), Arc::clone(&budget), background.clone());
        let imports = ImportCache::beside(
            Some(Arc::clone(&scheduler) as Arc<dyn WarmPool>),
            Arc::clone(&budget),
            Arc::clone(&provider),
            Arc::clone(&config),
            packages,
            Arc::clone(&secrets),
            background.clone(),
            halt.clone(),
        );
        let (calls, stopping) = (TaskTracker::new(), AtomicBool::new(false));
        let engine = Arc::new(Self {
            config,
            provider,
            logs,
            secrets,
            budget,
            scheduler,
            imports,
            calls,
            background,
            promises: Promises::default(),
            stopping,
            halt,
        });
        engine.reap_forever();
        engine
    }

    /// Serves one call. Dropping the future ends the call and destroys its sandbox.
    pub async fn serve(self: &Arc<Self>, call: Call) -> Served {
        let mut journey = Journey::default();
        // Before the question whether the engine stops: who stops it waits for those that were told
        // no.
        let _under_way = self.calls.token();
        let _traffic = self.imports.traffic.enter();
        let result = if self.stopping.load(Ordering::SeqCst) {
            Err(CallError::Stopping)
        } else {
            let span = info_span!("invoke", handler = %call.handler.id, invocation = %call.id);
            tokio::select! {
                biased;
                () = self.halt.cancelled() => Err(CallError::Stopping),
                result = self.run(&call, &mut journey).instrument(span) => result,
            }
        };
        journey.publish(&result);
        let Journey { start, stages, tail, .. } = journey;
        Served { result, start, stages, tail }
    }

    /// Writes into a function's log that a call of it failed, and how, if the function did it. Counts
    /// as output of another call would. Of a call as AWS's, the log has it already.
    pub fn log_failure(&self, call: &Call, error: &CallError) {
        if call.handler.lambda.is_some() {
            return;
        }
        let Some(text) = error.log_text() else { return };
        let (logs, handler) = (Arc::clone(&self.logs), Arc::clone(&call.handler));
        let allowed = (self.config.log_bytes, 0);
        let mut relay = Relay::new(logs, handler, call.id.clone(), allowed);
        relay.pass(call.id.to_string(), LogStream::Worker, text.into_bytes(), 0);
    }

    /// Makes the zygotes that the handler will be forked from, so that its first call finds them.
    /// Returns when they are there, or it is known that they cannot be; or, false, when that takes
    /// too long to be waited for.
    pub async fn prepare(&self, handler: &Handler) -> bool {
        self.prepare_telling(handler, || ()).await
    }

    /// The same; `begins` is called before it waits for packages to be imported, and only if there
    /// are any to be imported.
    pub async fn prepare_telling(&self, handler: &Handler, begins: impl FnOnce()) -> bool {
        self.stopping.load(Ordering::SeqCst) || self.imports.prepare(handler, begins).await
    }

    /// Makes the zygotes of a tree that handlers may be forked from, before anybody has called
    /// them, as far as there is room: those of the first handlers first. Returns when they are
    /// there, or it is known that they cannot be.
    pub async fn plant(&self, tree: &ZygoteTree, handlers: &[Arc<Handler>]) {
        if !self.stopping.load(Ordering::SeqCst) {
            self.imports.plant_for(tree, handlers).await;
        }
    }

    /// Destroys the idle instances of a version that was deleted; its busy ones follow when their
    /// calls end.
    pub async fn forget(&self, id: &VersionId) {
        self.scheduler.forget(id);
        self.imports.forget(id);
    }

    /// Destroys the idle instances of a version whose secrets have changed; its busy ones follow
    /// when their calls end.
    pub fn renew(&self, id: &VersionId) {
        self.scheduler.forget(id);
    }

    /// Gives up whatever has imported something, because files of packages have changed below it:
    /// zygotes, idle instances, and what the provider has kept of them; busy instances follow when
    /// their calls end. Blocks for as long as it takes to remove some files.
    pub fn renew_all(&self) {
        self.imports.renew();
        self.scheduler.renew();
        self.provider.renew();
    }

    /// Gives up every zygote, roots included, and whatever else stands on layers, because layers
    /// were removed and made again below it; busy instances follow when their calls end. Blocks for
    /// as long as it takes to remove some files.
    pub fn start_over(&self) {
        self.renew_all();
        self.imports.clear();
    }

    /// Why no handler of that kind can run here, as far as that is known.
    pub fn lacks(&self, kind: Kind) -> Option<String> {
        self.provider.lacks(kind)
    }

    /// The zygotes that are there, in the format that seeds another engine.
    pub fn zygote_tree(&self) -> ZygoteTree {
        self.imports.tree()
    }

    /// Distributions that cannot be forked from, by the wheel's directory, with the first reason
    /// that any source gave.
    pub fn unforkable(&self) -> BTreeMap<String, String> {
        self.imports.unforkable()
    }

    /// Measured import costs, by the wheel's directory and by any source.
    pub fn import_costs(&self) -> BTreeMap<String, ImportCost> {
        self.imports.import_costs()
    }

    /// The directories that zygotes run from, those included that are being made: what must not be
    /// removed.
    pub fn layers(&self) -> BTreeSet<Layer> {
        self.imports.layers()
    }

    /// Notes the host's memory pressure: under pressure the caches shrink at once, and grow again
    /// slowly after it. About once a second, off the path of calls.
    pub fn note_pressure(&self, pressure: Pressure) {
        self.budget.note_pressure(pressure, Instant::now());
    }

    /// Notes the bytes that package builds take now, which caches may not use. About once a second.
    pub fn note_builds(&self, bytes: u64) {
        self.budget.note_builds(bytes);
    }

    /// Most instances that there may be now.
    pub fn room(&self) -> usize {
        self.scheduler.room()
    }

    /// How the engine is.
    pub fn status(&self) -> EngineStatus {
        let load = self.scheduler.load();
        let (zygotes, refused) = self.imports.status();
        self.scheduler.make_way_for_zygotes(zygotes.len());
        let instances = InstanceStatus {
            busy: load.busy,
            idle: load.idle,
            creating: load.creating,
            most: self.scheduler.room(),
            idle_bytes: load.idle_bytes,
        };
        let memory = MemoryStatus {
            most_bytes: self.budget.most(),
            allowed_bytes: self.budget.now(),
            used_bytes: self.budget.used(),
            left_bytes: self.imports.left(),
        };
        let status = EngineStatus {
            instances,
            memory,
            zygotes,
            refused,
            calls: self.calls.len(),
            waiting: load.waiting,
            handlers: load.handlers,
            reaping: self.provider.reaping(),
            stopping: self.stopping.load(Ordering::SeqCst),
        };
        status.publish();
        status
    }

    /// Refuses new calls, waits at most `grace` for those under way, ends what is left, and drops
    /// everything.
    pub async fn stop(&self, grace: Duration) {
        self.stopping.store(true, Ordering::SeqCst);
        self.calls.close();
        if timeout(grace, self.calls.wait()).await.is_err() {
            tracing::warn!(calls = self.calls.len(), "calls are ended because the worker stops");
        }
        self.scheduler.close();
        self.halt.cancel();
        // Bounded, since a caller may hold its future and never look at it again.
        let _ = timeout(STOP_TIMEOUT, self.calls.wait()).await;
        self.background.close();
        let _ = timeout(STOP_TIMEOUT, self.background.wait()).await;
        self.scheduler.clear();
        self.imports.clear();
        self.status();
    }

    /// Gives up what is old, dead or too much, now and then, until the engine is dropped or stops.
    fn reap_forever(self: &Arc<Self>) {
        let engine = Arc::downgrade(self);
        let budget = Arc::clone(&self.budget);
        let halt = self.halt.clone();
        let period =
            (self.config.idle / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
        tokio::spawn(async move {
            let mut tick = interval(period);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    () = halt.cancelled() => return,
                    _ = tick.tick() => {}
                    () = budget.exceeded.notified() => {
                        let Some(engine) = engine.upgrade() else { return };
                        engine.imports.fit_aside().await;
                        drop(engine);
                        // What was given up takes a moment to be gone.
                        sleep(RELEASE_DELAY).await;
                        continue;
                    }
                }
                fault::point("reap").await;
                let Some(engine) = engine.upgrade() else { return };
                engine.scheduler.expire(Instant::now());
                let imports = Arc::clone(&engine.imports);
                // Milliseconds where much is known: more than calls on this thread should wait.
                let _ = engine.background.spawn_blocking(move || imports.tidy()).await;
                engine.status();
            }
        });
    }
}
