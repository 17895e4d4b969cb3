//! All that changes in the import cache, under its one lock.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use function::VersionId;
use sandbox::{Kind, Network, PythonSpec};
use tokio::time::Instant;

use crate::config::EngineConfig;
use crate::distribution::Distribution;
use crate::handler::Handler;
use crate::import_cache::model::catalog::Catalog;
use crate::import_cache::model::profile::{Profile, Seed};
use crate::import_cache::model::set::Set;
use crate::import_cache::model::spending::{Account, credit_for};
use crate::import_cache::state::backoff::Backoff;
use crate::import_cache::state::creation::{Availability, Node, Origin};
use crate::import_cache::state::observations::{Observation, ObservationQueue};
use crate::import_cache::state::zygote::{CachedZygote, View, ZygoteKey};
use crate::popularity::Rate;
use crate::zygote_tree::TreeNode;

/// Refused package sets that are remembered, at most.
const MAX_REFUSALS: usize = 1024;

/// About the number of starts that `unseen_ratio` averages over.
const UNSEEN_RATIO_STARTS: f64 = 200.0;

/// Handlers that are remembered, at most; those with the fewest recent starts are dropped first.
const MAX_PROFILES: usize = 2048;

/// What a zygote never crosses: it serves only handlers of its own trust domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TrustDomain {
    pub(crate) kind: Kind,
    pub(crate) python: PythonSpec,
    pub(crate) network: Network,
    /// Not even a root is shared between tenants: a zygote has full control over its forks, and a
    /// fork may learn from its zygote (address-space layout, memory contents).
    pub(crate) tenant: String,
}

#[derive(Debug)]
pub(crate) struct CacheState {
    pub(crate) nodes: HashMap<ZygoteKey, Node>,
    /// By trust domain and package set: the same package may hang whichever of its modules are
    /// asked for.
    backoffs: HashMap<(usize, Set), Backoff>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) profiles: BTreeMap<VersionId, Arc<Profile>>,
    domains: Vec<TrustDomain>,
    /// Fraction of recent starts that were of new locks.
    pub(crate) unseen_ratio: f64,
    /// Starts so far: the clock of popularity.
    pub(crate) starts: u64,
    /// Forks and zygotes so far: the clock of recency.
    turns: u64,
    /// Starts in wall-clock time.
    pub(crate) rate: Rate,
    /// What making zygotes may cost.
    pub(crate) account: Account,
    /// Zygotes evicted for others since the last start: no start has asked for them since.
    given_up: HashSet<ZygoteKey>,
    /// Import milliseconds that calls had to spend since the last plan.
    pub(crate) missed: f64,
    /// Observations of calls that are not applied yet.
    pub(crate) observations: ObservationQueue,
    view: Option<Arc<View>>,
}

impl Default for CacheState {
    fn default() -> Self {
        Self {
            nodes: HashMap::new(),
            backoffs: HashMap::new(),
            catalog: Arc::default(),
            profiles: BTreeMap::new(),
            domains: Vec::new(),
            // Unknown at first.
            unseen_ratio: 0.5,
            starts: 0,
            turns: 0,
            rate: Rate::default(),
            account: Account::default(),
            given_up: HashSet::new(),
            missed: 0.0,
            observations: ObservationQueue::default(),
            view: None,
        }
    }
}

impl CacheState {
    /// The handler's profile, made from its own declarations if it is new. `stored`: the install
    /// cache lays out parts of its lock; only then is the lock more than one directory. `secrets`:
    /// names of its current secrets.
    pub(crate) fn profile(
        &mut self,
        handler: &Handler,
        stored: bool,
        seed: &[TreeNode],
        secrets: Vec<String>,
    ) -> Arc<Profile> {
        if let Some(profile) = self.profiles.get_mut(&handler.id) {
            if profile.secrets != secrets {
                Arc::make_mut(profile).sets(handler, secrets, &self.catalog);
            }
            return Arc::clone(profile);
        }
        let domain = self.domain_of(handler);
        let catalog = Arc::make_mut(&mut self.catalog);
        let distributions = handler.imported_ahead();
        let locked: Set = match &handler.packages {
            None => Set::default(),
            Some(_) if !handler.import_cache => Set::default(),
            Some(_) if stored && !distributions.is_empty() => {
                distributions.iter().map(|distribution| catalog.number(distribution)).collect()
            }
            Some(packages) => {
                [catalog.number(&Distribution::whole_lock(packages))].into_iter().collect()
            }
        };
        let declared =
            handler.imports.iter().filter_map(|module| catalog.piece(&locked, module)).collect();
        let mut profile = Profile::new(domain, locked, declared, catalog);
        profile.sets(handler, secrets, catalog);
        profile.clash(handler, catalog);
        if stored {
            let modules = distributions.iter().flat_map(|distribution| &distribution.modules);
            profile.outermost =
                modules.filter_map(|module| catalog.piece(&profile.locked, module)).collect();
            profile.seeds = seeds(seed, distributions, &profile.locked, catalog);
        }
        let profile = Arc::new(profile);
        if self.profiles.len() >= MAX_PROFILES {
            self.forget_some();
        }
        self.profiles.insert(handler.id.clone(), Arc::clone(&profile));
        profile
    }

    /// Whether what these distributions look up at import conflicts with the handler, by sources
    /// that it may trust.
    pub(crate) fn conflicts(&self, profile: &Profile, sees: &Set) -> bool {
        profile.conflicts_with(sees, &profile.estimate(&self.catalog).lookups(sees))
    }

    /// The trust domain of a handler that was never called, and the nodes of a tree that it may be
    /// forked from. Stores no profile.
    pub(crate) fn seeds(&mut self, handler: &Handler, tree: &[TreeNode]) -> (usize, Vec<Seed>) {
        let domain = self.domain_of(handler);
        let catalog = Arc::make_mut(&mut self.catalog);
        let distributions = handler.imported_ahead();
        let locked = distributions.iter().map(|one| catalog.number(one)).collect();
        (domain, seeds(tree, distributions, &locked, catalog))
    }

    /// Counts a start of the handler.
    pub(crate) fn start(&mut self, handler: &VersionId, half_life: f64) {
        self.starts += 1;
        self.given_up.clear();
        self.rate.count(Instant::now());
        let Some(profile) = self.profiles.get(handler) else { return };
        let twin = |other: &Arc<Profile>| {
            other.started() && other.domain == profile.domain && other.locked == profile.locked
        };
        let new = !profile.started() && !self.profiles.values().any(twin);
        let of_late = UNSEEN_RATIO_STARTS.recip();
        self.unseen_ratio += of_late * (f64::from(u8::from(new)) - self.unseen_ratio);
        if let Some(profile) = self.profiles.get_mut(handler) {
            Arc::make_mut(profile).start(self.starts, half_life, Instant::now());
        }
    }

    /// Credits a start of the handler: repays its debt first, then adds to the account.
    pub(crate) fn credit(&mut self, handler: &VersionId, half_life: f64) {
        let Some(profile) = self.profiles.get_mut(handler) else { return };
        let mut credit = credit_for(profile.measured());
        if !profile.debt.is_paid() {
            credit = Arc::make_mut(profile).debt.repay(credit);
        }
        self.account.credit(credit, half_life);
    }

    /// Applies one observation.
    pub(crate) fn apply(&mut self, observation: &Observation, half_life: f64) {
        let Some(profile) = self.profiles.get_mut(&observation.handler) else { return };
        let (catalog, profile) = (Arc::make_mut(&mut self.catalog), Arc::make_mut(profile));
        let said = observation.modules.iter();
        let new = said.filter_map(|module| catalog.piece(&profile.locked, module)).collect();
        profile.learn(observation.zygote, &observation.had, &new, observation.took, catalog);
        self.missed += profile.saved(&new);
        if observation.credits {
            self.credit(&observation.handler, half_life);
        }
    }

    /// Charges the handler for a zygote made at its deploy.
    pub(crate) fn charge(&mut self, handler: &VersionId, milliseconds: f64) {
        if let Some(profile) = self.profiles.get_mut(handler) {
            Arc::make_mut(profile).debt.charge(milliseconds);
        }
    }

    /// Handlers started within that time whose needs were computed before the catalog changed for
    /// their packages.
    pub(crate) fn stale(&self, within: Duration) -> Vec<(VersionId, Arc<Profile>)> {
        let stale =
            |profile: &Profile| profile.started_within(within) && profile.is_stale(&self.catalog);
        let all = self.profiles.iter().filter(|(_, profile)| stale(profile));
        all.map(|(handler, profile)| (handler.clone(), Arc::clone(profile))).collect()
    }

    fn forget_some(&mut self) {
        let mut weights: Vec<f64> =
            self.profiles.values().map(|profile| profile.weight(self.starts, 1e3)).collect();
        weights.sort_by(f64::total_cmp);
        let bar = weights[weights.len() / 8];
        let starts = self.starts;
        self.profiles.retain(|_, profile| profile.weight(starts, 1e3) > bar);
    }

    fn domain_of(&mut self, handler: &Handler) -> usize {
        let same = |domain: &TrustDomain| {
            domain.kind == handler.kind
                && domain.python == handler.python
                && domain.network == handler.network
                && domain.tenant == handler.tenant
        };
        self.domains.iter().position(same).unwrap_or_else(|| {
            let Handler { kind, python, network, tenant, .. } = handler;
            let (python, network, tenant) = (python.clone(), *network, tenant.clone());
            self.domains.push(TrustDomain { kind: *kind, python, network, tenant });
            self.domains.len() - 1
        })
    }

    pub(crate) fn domain(&self, number: usize) -> &TrustDomain {
        &self.domains[number]
    }

    pub(crate) fn view(&mut self) -> Arc<View> {
        let nodes = &self.nodes;
        let view = self.view.get_or_insert_with(|| {
            let ready = nodes.values().filter_map(|node| match node {
                Node::Ready(cached) => Some(Arc::clone(cached)),
                _ => None,
            });
            Arc::new(View::new(ready.collect()))
        });
        Arc::clone(view)
    }

    /// Discards the view: zygotes, or their sizes, have changed.
    pub(crate) fn look_again(&mut self) {
        self.view = None;
    }

    pub(crate) fn turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    pub(crate) fn availability(&self, config: &EngineConfig, key: &ZygoteKey) -> Availability {
        let backs_off = || {
            let backoff = self.backoffs.get(&(key.domain, key.sees.clone()));
            backoff.is_some_and(Backoff::is_active)
        };
        match self.nodes.get(key) {
            // The task that was making it has ended without a result.
            Some(Node::Making(making)) if making.has_changed().is_err() => Availability::Absent,
            Some(Node::Making(_)) => Availability::Making,
            None | Some(Node::Refused { for_good: false, .. }) if backs_off() => {
                Availability::Refused
            }
            None => Availability::Absent,
            Some(Node::Ready(_)) => Availability::Ready,
            Some(Node::Refused { for_good: true, .. }) => Availability::Refused,
            Some(Node::Refused { since, .. }) if since.elapsed() < config.zygote_retry => {
                Availability::Refused
            }
            Some(Node::Refused { .. }) => Availability::Absent,
        }
    }

    /// The zygote of that key as an origin for others.
    pub(crate) fn origin(&self, key: &ZygoteKey) -> Origin {
        match self.nodes.get(key) {
            Some(Node::Ready(cached)) => Origin::Ready(Arc::clone(cached)),
            Some(Node::Making(making)) => Origin::Pending(making.clone()),
            Some(Node::Refused { .. }) | None => Origin::Best,
        }
    }

    pub(crate) fn refuse(&mut self, key: ZygoteKey, why: String, for_good: bool) {
        self.look_again();
        self.nodes.insert(key, Node::Refused { why, since: Instant::now(), for_good });
        let refused = self.nodes.iter().filter_map(|(key, node)| match node {
            Node::Refused { since, .. } => Some((*since, key)),
            _ => None,
        });
        let refused: Vec<_> = refused.collect();
        if refused.len() > MAX_REFUSALS
            && let Some(oldest) =
                refused.iter().min_by_key(|(since, _)| *since).map(|(_, key)| (*key).clone())
        {
            self.nodes.remove(&oldest);
        }
    }

    /// Records that a zygote of the set could not be made: the next try waits for `retry`, and
    /// twice as long after each further failure.
    pub(crate) fn record_failure(&mut self, key: &ZygoteKey, retry: Duration) {
        self.backoffs.entry((key.domain, key.sees.clone())).or_default().fail(retry);
        if self.backoffs.len() > MAX_REFUSALS
            && let Some(first) = self
                .backoffs
                .iter()
                .min_by_key(|(_, backoff)| backoff.until())
                .map(|(of, _)| of.clone())
        {
            self.backoffs.remove(&first);
        }
    }

    /// Records that a zygote of the set was made.
    pub(crate) fn clear_backoff(&mut self, key: &ZygoteKey) {
        self.backoffs.remove(&(key.domain, key.sees.clone()));
    }

    /// Evicts a zygote for others that are worth more.
    pub(crate) fn give_up(&mut self, cached: &Arc<CachedZygote>) {
        if self.remove(cached) {
            self.given_up.insert(cached.key.clone());
        }
    }

    /// Zygotes that no plan may contain: those that exist, are being made, cannot be made, or were
    /// evicted for others since the last start.
    pub(crate) fn barred(&self, config: &EngineConfig) -> HashSet<ZygoteKey> {
        let keys = self.nodes.keys();
        let there = keys.filter(|key| self.availability(config, key) != Availability::Absent);
        there.chain(&self.given_up).cloned().collect()
    }

    /// Whether the zygote is still in the cache.
    pub(crate) fn holds(&self, cached: &Arc<CachedZygote>) -> bool {
        matches!(self.nodes.get(&cached.key), Some(Node::Ready(there)) if Arc::ptr_eq(there, cached))
    }

    /// Removes a zygote, if it is still in the cache.
    pub(crate) fn remove(&mut self, cached: &Arc<CachedZygote>) -> bool {
        let there = self.holds(cached);
        if there {
            self.nodes.remove(&cached.key);
            self.look_again();
        }
        there
    }
}

/// The nodes of a tree that a handler which locked `lock` may be forked from.
fn seeds(
    seed: &[TreeNode],
    lock: &[Distribution],
    locked: &Set,
    catalog: &mut Catalog,
) -> Vec<Seed> {
    let mut found = Vec::new();
    // Places of the nodes found so far: a handler that may be forked from a node may be from its
    // parent.
    let mut places = HashMap::new();
    for (at, planned) in seed.iter().enumerate() {
        let Some((distributions, modules)) = planned.among(lock) else { continue };
        let sees = distributions.into_iter().map(|one| catalog.number(one)).collect();
        let modules = modules.iter().filter_map(|module| catalog.piece(locked, module)).collect();
        let above = planned.above.and_then(|above| places.get(&above).copied());
        places.insert(at, found.len());
        found.push(Seed { sees, modules, above });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_set_that_fails_again_and_again_is_tried_ever_more_rarely_and_no_other_waits_for_it()
    {
        let (config, mut state) = (EngineConfig::default(), CacheState::default());
        let key = |sees: u32, module| ZygoteKey {
            domain: 0,
            sees: [sees].into_iter().collect(),
            modules: [module].into_iter().collect(),
        };
        let retry = config.zygote_retry;
        for doubled in [1, 2, 4, 8] {
            assert_eq!(state.availability(&config, &key(1, 1)), Availability::Absent);
            state.record_failure(&key(1, 1), retry);
            state.refuse(key(1, 1), "it hangs".to_owned(), false);
            tokio::time::advance(retry * doubled - Duration::from_secs(1)).await;
            assert_eq!(state.availability(&config, &key(1, 1)), Availability::Refused);
            assert_eq!(
                state.availability(&config, &key(1, 2)),
                Availability::Refused,
                "of the same set"
            );
            assert_eq!(state.availability(&config, &key(2, 1)), Availability::Absent);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        state.record_failure(&key(1, 1), retry);
        state.clear_backoff(&key(1, 2));
        assert_eq!(state.availability(&config, &key(1, 2)), Availability::Absent);
    }
}
