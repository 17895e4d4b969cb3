//! Planning and making better zygotes, off the path of calls: the shell around [`plan`].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::ImportCache;
use crate::config::ZygotePolicy;
use crate::import_cache::model::set::Set;
use crate::import_cache::policy::evict::{Capacity, Victims};
use crate::import_cache::policy::plan::{Build, Resources, plan};
use crate::import_cache::policy::price::MAKING_MS;
use crate::import_cache::state::cache_state::CacheState;
use crate::import_cache::state::creation::outcome;
use crate::import_cache::state::snapshot::Snapshot;
use crate::import_cache::state::zygote::ZygoteKey;

/// A zygote to make.
#[derive(Debug)]
struct ZygotePlan {
    key: ZygoteKey,
    /// What it is expected to cost.
    milliseconds: f64,
    victims: Victims,
    /// The snapshot that the victims' places refer to.
    snapshot: Snapshot,
}

impl ImportCache {
    /// Applies observations in the next quiet moment, and has better zygotes made if calls miss
    /// any.
    pub(super) fn request_replan(self: &Arc<Self>) {
        if self.replanning.swap(true, Ordering::AcqRel) {
            return;
        }
        let cache = Arc::clone(self);
        let work = async move {
            tokio::select! {
                () = cache.halt.cancelled() => return,
                () = cache.traffic.lull() => {}
            }
            cache.replanning.store(false, Ordering::Release);
            cache.apply_observations();
            let missed = cache.state().missed;
            if cache.config.zygotes == ZygotePolicy::Utility && missed >= MAKING_MS {
                cache.replan().await;
            }
        };
        self.background.spawn_on(work, &self.runtime);
    }

    /// Makes better zygotes until none is worth it or the budget is spent. One task does so at a
    /// time; others do not wait for it, since it checks again before it ends.
    async fn replan(self: &Arc<Self>) {
        loop {
            let Ok(alone) = self.planners.try_acquire() else { return };
            self.plan_and_make().await;
            drop(alone);
            // What calls missed since the last plan began is in no plan yet.
            let missed = self.state().missed;
            if missed < MAKING_MS || self.halt.is_cancelled() {
                return;
            }
        }
    }

    async fn plan_and_make(self: &Arc<Self>) {
        loop {
            tokio::select! {
                () = self.halt.cancelled() => return,
                () = self.traffic.lull() => {}
            }
            let begun = Instant::now();
            let planned = self.next_plan().await;
            self.state().account.spend(begun.elapsed().as_secs_f64() * 1e3);
            let Some(plan) = planned else { return };
            self.give_up(&plan.snapshot, &plan.victims);
            let ZygotePlan { key, milliseconds, snapshot, .. } = plan;
            // So that observations applied meanwhile do not copy the catalog.
            drop(snapshot);
            // After that the next plan goes on without one that fails or seems to hang.
            let limit = self.turn_timeout(&key);
            self.pay_for(&key, milliseconds, limit, |state, cost| state.account.spend(cost)).await;
        }
    }

    /// Has a zygote made, unless it exists or is refused, and waits for at most `limit`. `pay` is
    /// told the processor milliseconds: first the expected ones, then the correction. False: it was
    /// not waited for to the end.
    pub(super) async fn pay_for(
        self: &Arc<Self>,
        key: &ZygoteKey,
        expected: f64,
        limit: Duration,
        pay: impl Fn(&mut CacheState, f64),
    ) -> bool {
        let Some(mut making) = self.ensure(key) else { return true };
        pay(&mut self.state(), expected);
        let begun = Instant::now();
        let made = timeout(limit, outcome(&mut making)).await;
        let took = match &made {
            Ok(Ok(Some(cached))) => cached.zygote.imports().milliseconds,
            // A failure was logged when it happened, and has cost time as well.
            _ => begun.elapsed().as_secs_f64() * 1e3,
        };
        pay(&mut self.state(), MAKING_MS + took - expected);
        made.is_ok()
    }

    async fn next_plan(self: &Arc<Self>) -> Option<ZygotePlan> {
        let budget_ms = {
            let mut state = self.state();
            state.missed = 0.0;
            state.account.balance()
        };
        if budget_ms <= 0.0 {
            return None;
        }
        let cache = Arc::clone(self);
        // Takes about a millisecond: too long for a thread that serves calls.
        spawn_blocking(move || cache.choose_plan(budget_ms)).await.ok().flatten()
    }

    /// The zygote most worth making within the budget, if any.
    fn choose_plan(&self, budget_ms: f64) -> Option<ZygotePlan> {
        let snapshot = self.snapshot();
        let barred = self.state().barred(&self.config);
        let (left, cap, zygotes) = (self.left_to(&snapshot), self.room(), self.max_zygotes());
        let refused = |domain, sees: &Set, modules: &Set| {
            barred.contains(&ZygoteKey { domain, sees: sees.clone(), modules: modules.clone() })
        };
        let entries = &snapshot.view.entries;
        let demands = snapshot.demands();
        // Where zygotes have a limit of their own, evicting instances does not help.
        let (idle, bytes) = if cap < left { (&[][..], cap) } else { (&snapshot.idle[..], left) };
        let resources = Resources { room: Capacity { bytes, zygotes }, milliseconds: budget_ms };
        let (catalog, unseen_ratio) = (&snapshot.catalog, snapshot.unseen_ratio);
        let build = plan(entries, idle, &demands, catalog, unseen_ratio, resources, refused)?;
        let Build { domain, sees, modules, milliseconds, evict: victims } = build;
        drop(demands);
        let key = ZygoteKey { domain, sees, modules };
        Some(ZygotePlan { key, milliseconds, victims, snapshot })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::HashMap;

    use function::VersionId;
    use sandbox::fake::{FakeProvider, Operation, Recorded};
    use tokio::task::yield_now;
    use tokio::time::sleep;
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::config::EngineConfig;
    use crate::handler::Handler;
    use crate::handler::tests::handler;
    use crate::import_cache::model::import_time::ImportTime;
    use crate::import_cache::model::profile::Profile;

    pub(crate) fn layer_of(name: &str) -> sandbox::Layer {
        name.parse().unwrap()
    }

    /// A cache that knows locks only by their directories.
    pub(crate) fn cache(provider: &FakeProvider) -> Arc<ImportCache> {
        cache_of(provider, EngineConfig::default())
    }

    pub(crate) fn cache_of(provider: &FakeProvider, config: EngineConfig) -> Arc<ImportCache> {
        ImportCache::new(
            Arc::new(provider.clone()),
            Arc::new(config),
            None,
            None,
            TaskTracker::new(),
            CancellationToken::new(),
        )
    }

    /// A start that imports `module` itself.
    pub(crate) async fn start(
        cache: &Arc<ImportCache>,
        handler: &Handler,
        module: &str,
        milliseconds: f64,
    ) {
        let pick = cache.pick(handler).await.unwrap();
        let modules = vec![module.to_owned()];
        cache.learn(handler, &pick, modules, ImportTime::Load(milliseconds));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_to_plan_while_a_slow_zygote_is_made_and_what_was_missed_is_made_after_it()
    {
        let provider = FakeProvider::default();
        let cost = |milliseconds| Recorded { milliseconds, ..Recorded::default() };
        let costs = [("a".to_owned(), cost(3000.0)), ("b".to_owned(), cost(100.0))];
        provider.record(HashMap::from(costs));
        let cache = cache(&provider);
        cache.state().account.credit(1e6, 500.0);
        let named = |name| Handler { id: VersionId(Arc::from(name)), ..handler() };
        let other = Handler { packages: Some(layer_of("packages/q")), ..named("other") };
        let bare = Handler { packages: None, imports: Vec::new(), ..named("bare") };
        start(&cache, &handler(), "a", 3000.0).await;
        start(&cache, &handler(), "a", 3000.0).await;
        sleep(Duration::from_millis(10)).await;
        assert_eq!(provider.begun(Operation::Derive), 1);
        for _ in 0..20 {
            start(&cache, &other, "b", 100.0).await;
            sleep(Duration::from_millis(50)).await;
        }
        cache.prepare(&bare, || ()).await;
        assert_eq!(provider.census().derived_zygotes, 0, "that one is still being made");
        assert!(cache.background.len() <= 3, "{} wait", cache.background.len());
        sleep(Duration::from_secs(10)).await;
        assert_eq!(provider.census().derived_zygotes, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_missed_while_somebody_plans_is_planned_for_before_he_ends() {
        let (provider, handler) = (FakeProvider::default(), handler());
        let cache = cache(&provider);
        // One start does not repay a zygote.
        start(&cache, &handler, "a", 100.0).await;
        cache.apply_observations();
        // Until a plan has begun. It may be over by then: what is missed next gets a plan of its
        // own.
        while cache.state().missed > 0.0 {
            yield_now().await;
        }
        // No other task is started.
        cache.replanning.store(true, Ordering::Release);
        start(&cache, &handler, "a", 100.0).await;
        cache.apply_observations();
        cache.replan().await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(provider.begun(Operation::Derive), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_snapshot_shows_what_handlers_need_by_the_latest_costs() {
        let (provider, handler) = (FakeProvider::default(), handler());
        let cache = cache(&provider);
        start(&cache, &handler, "a", 100.0).await;
        cache.apply_observations();
        let needed = |profile: &Profile| profile.needed();
        assert_eq!(
            cache.snapshot().demands().iter().map(|d| needed(d.profile)).sum::<f64>(),
            100.0
        );
        {
            let mut state = cache.state();
            let sees = state.profiles[&handler.id].locked.clone();
            let file = sandbox::LoadedFile {
                module: "a".to_owned(),
                milliseconds: 40.0,
                ..sandbox::LoadedFile::default()
            };
            let told = sandbox::Imports { files: vec![file], ..sandbox::Imports::default() };
            Arc::make_mut(&mut state.catalog).measure(&sees, &told);
        }
        assert_eq!(cache.snapshot().demands().iter().map(|d| needed(d.profile)).sum::<f64>(), 40.0);
        assert_eq!(needed(&cache.state().profiles[&handler.id]), 40.0);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_learnt_thought_about_or_made_while_a_call_is_under_way() {
        let (provider, handler) = (FakeProvider::default(), handler());
        let cache = cache(&provider);
        let call = cache.traffic.enter();
        for _ in 0..10 {
            let pick = cache.pick(&handler).await.unwrap();
            cache.learn(&handler, &pick, vec!["a".to_owned()], ImportTime::Load(100.0));
            sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(provider.begun(Operation::Derive), 0);
        assert_eq!(cache.state().observations.len(), 10);
        drop(call);
        sleep(Duration::from_millis(100)).await;
        assert_eq!(provider.begun(Operation::Derive), 1);
        assert_eq!(cache.state().observations.len(), 0);
    }
}
