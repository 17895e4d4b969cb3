//! Making zygotes: each in a task of its own, once, watched by all that need it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sandbox::{Layer, ProviderError, Zygote, ZygoteSpec};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::ImportCache;
use crate::budget::Reservation;
use crate::config::ZygotePolicy;
use crate::import_cache::model::estimate::Estimate;
use crate::import_cache::model::lookups::{all_looked_up, bounded};
use crate::import_cache::model::set::Set;
use crate::import_cache::policy::forkable::unfit;
use crate::import_cache::policy::price::ancestor;
use crate::import_cache::state::cache_state::{CacheState, TrustDomain};
use crate::import_cache::state::claim::Claim;
use crate::import_cache::state::creation::{Availability, CreationResult, Node, Origin, outcome};
use crate::import_cache::state::zygote::{CachedZygote, View, ZygoteKey};
use crate::pages::Pages;

/// A zygote that was made and is not in the cache yet.
#[derive(Debug)]
pub(super) struct NewZygote {
    pub(super) zygote: Box<dyn Zygote>,
    /// The zygote that it was derived from.
    pub(super) parent: Option<Arc<CachedZygote>>,
    /// Held until the zygote is in the cache.
    pub(super) claim: Option<Claim>,
    /// Held until its own memory is measured.
    pub(super) reserved: Option<Reservation>,
}

impl ImportCache {
    /// Has the zygote made if it is absent. Returns what to watch until it is made; none when it
    /// exists or is refused.
    pub(super) fn ensure(
        self: &Arc<Self>,
        key: &ZygoteKey,
    ) -> Option<watch::Receiver<Option<CreationResult>>> {
        self.ensure_from(&mut self.state(), key, Origin::Best)
    }

    /// The same, under the lock, with `from` as its parent.
    pub(super) fn ensure_from(
        self: &Arc<Self>,
        state: &mut CacheState,
        key: &ZygoteKey,
        from: Origin,
    ) -> Option<watch::Receiver<Option<CreationResult>>> {
        match (state.availability(&self.config, key), state.nodes.get(key)) {
            (Availability::Making, Some(Node::Making(making))) => Some(making.clone()),
            (Availability::Absent, _) => Some(self.start(state, key, from)),
            _ => None,
        }
    }

    /// Starts making it: see [`Self::ensure_from`].
    fn start(
        self: &Arc<Self>,
        state: &mut CacheState,
        key: &ZygoteKey,
        from: Origin,
    ) -> watch::Receiver<Option<CreationResult>> {
        let (tell, making) = watch::channel(None);
        state.nodes.insert(key.clone(), Node::Making(making.clone()));
        self.spawn(key.clone(), from, tell);
        making
    }

    fn spawn(
        self: &Arc<Self>,
        key: ZygoteKey,
        from: Origin,
        tell: watch::Sender<Option<CreationResult>>,
    ) {
        let (cache, epoch) = (Arc::clone(self), self.epoch.load(Ordering::Acquire));
        let work = async move {
            let made = tokio::select! {
                () = cache.halt.cancelled() => Err(ProviderError::Interpreter("the worker is stopping".to_owned())),
                made = async { cache.make(&key, from.wait().await).await } => made,
            };
            let made = cache.settle(key, epoch, made);
            cache.fit_aside().await;
            tell.send_replace(Some(made));
        };
        self.background.spawn_on(work, &self.runtime);
    }

    pub(super) async fn make(
        self: &Arc<Self>,
        key: &ZygoteKey,
        from: Option<Arc<CachedZygote>>,
    ) -> Result<NewZygote, ProviderError> {
        let TrustDomain { kind, python, network, tenant } = self.state().domain(key.domain).clone();
        let spec = ZygoteSpec {
            kind,
            python,
            packages: None,
            imports: Vec::new(),
            network,
            tenant: tenant.as_str().into(),
            limits: self.config.zygote_limits,
        };
        if key.is_root() {
            let zygote = self.in_time(self.provider.create_zygote(spec)).await?;
            return Ok(NewZygote { zygote, parent: None, claim: None, reserved: None });
        }
        // With SOCK's policy their calls wait meanwhile.
        let turn = match self.config.zygotes {
            ZygotePolicy::Paper => None,
            _ => Some(self.turns.turn(&tenant).await),
        };
        let layer = self.layer(key, &spec.python).await?;
        let claim = Some(self.claims.claim(layer.clone()));
        let packages = Some(layer);
        let fit = |from: &Arc<CachedZygote>| {
            let state = self.state();
            let estimate = Estimate::of(&state.catalog, &key.sees);
            from.derivable
                && !self.is_outdated(from)
                && state.holds(from)
                && estimate.can_derive(&from.key.sees, &from.lookups, &key.sees)
        };
        let parent = match from.filter(fit).or_else(|| self.ancestor(key)) {
            Some(cached) => Some(cached),
            None => match self.ensure(&ZygoteKey::root(key.domain)) {
                Some(mut making) => outcome(&mut making).await?,
                None => self.ancestor(key),
            },
        };
        let had = parent.as_ref().map(|parent| parent.modules.clone()).unwrap_or_default();
        let missing = key.modules.without(&had);
        let reserved = Some(self.budget.reserve(self.expected(&key.sees, &missing).1));
        let imports = self.state().catalog.modules(&missing);
        let spec = ZygoteSpec { packages, imports, ..spec };
        let Some(parent) = parent else {
            let making = self.in_time(self.provider.create_zygote(spec));
            let zygote = self.in_turn(turn, self.turn_timeout(key), making).await?;
            return Ok(NewZygote { zygote, parent: None, claim, reserved });
        };
        let making = self.in_time(parent.zygote.derive(spec));
        let derived = self.in_turn(turn, self.turn_timeout(key), making).await;
        if let Err(
            error @ (ProviderError::ZygoteLost { id, .. } | ProviderError::Impostor { id, .. }),
        ) = &derived
            // A death caused by its own imports says nothing about its parent.
            && *id == parent.zygote.id()
        {
            self.lose(&parent, &error.to_string());
        }
        Ok(NewZygote { zygote: derived?, parent: Some(parent), claim, reserved })
    }

    fn ancestor(&self, key: &ZygoteKey) -> Option<Arc<CachedZygote>> {
        let (view, catalog) = {
            let mut state = self.state();
            (state.view(), Arc::clone(&state.catalog))
        };
        let fit = |cached: &&Arc<CachedZygote>| !self.is_outdated(cached) && cached.derivable;
        let young: Vec<_> = view.zygotes.iter().filter(fit).cloned().collect();
        let young = View::new(young);
        let estimate = Estimate::of(&catalog, &key.sees);
        let at = ancestor(&young.entries, key.domain, &key.sees, &key.modules, &estimate)?;
        Some(Arc::clone(&young.zygotes[at]))
    }

    /// The directory that holds exactly what the zygote may see.
    async fn layer(
        &self,
        key: &ZygoteKey,
        python: &sandbox::PythonSpec,
    ) -> Result<Layer, ProviderError> {
        let set = self.state().catalog.distributions(&key.sees);
        match (&*set, &self.store) {
            ([whole], _) if whole.is_whole_lock() => {
                let broken = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
                whole.wheel.parse().map_err(broken).map_err(ProviderError::step("name a layer"))
            }
            (_, Some(store)) => store.layer(python, &set).await,
            (_, None) => Err(ProviderError::Step {
                step: "lay out packages without an install cache",
                source: io::ErrorKind::Unsupported.into(),
            }),
        }
    }

    async fn in_time(
        &self,
        making: sandbox::Pending<'_, Box<dyn Zygote>>,
    ) -> Result<Box<dyn Zygote>, ProviderError> {
        let limit = self.config.creation_timeout;
        let late = |_| {
            let what = format!("its imports take longer than {} s", limit.as_secs_f64());
            let source = io::Error::new(io::ErrorKind::TimedOut, what);
            ProviderError::Step { step: "make a zygote", source }
        };
        timeout(limit, making).await.map_err(late)?
    }

    /// Records the result of making a zygote.
    fn settle(
        &self,
        key: ZygoteKey,
        epoch: u64,
        made: Result<NewZygote, ProviderError>,
    ) -> CreationResult {
        match made {
            Ok(_) if !key.is_root() && epoch != self.epoch.load(Ordering::Acquire) => {
                self.state().nodes.remove(&key);
                Ok(None)
            }
            Err(error) => {
                let mut state = self.state();
                tracing::warn!(packages = %self.names(&state, &key.sees), %error, "a zygote could not be made");
                state.nodes.remove(&key);
                if !key.is_root() {
                    if is_of_the_set(&error) {
                        state.record_failure(&key, self.config.zygote_retry);
                    }
                    state.refuse(key, sandbox::chain(&error), false);
                }
                Err(Arc::new(error))
            }
            Ok(NewZygote { zygote, parent, claim, reserved }) => {
                let cached = self.admit(key, zygote, parent);
                drop((claim, reserved));
                Ok(cached)
            }
        }
    }

    /// Adds a zygote to the cache, if it can be forked. Records what its imports did either way.
    pub(super) fn admit(
        &self,
        key: ZygoteKey,
        zygote: Box<dyn Zygote>,
        parent: Option<Arc<CachedZygote>>,
    ) -> Option<Arc<CachedZygote>> {
        let weight = zygote.memory().ok();
        let bytes = weight.unwrap_or_else(|| self.unweighed());
        let mut state = self.state();
        let catalog = Arc::make_mut(&mut state.catalog);
        let imports = zygote.imports();
        let loaded = catalog.measure(&key.sees, imports);
        if let Some(why) = unfit(imports) {
            tracing::warn!(packages = %self.names(&state, &key.sees), why, "a zygote cannot be forked");
            state.refuse(key, why, true);
            return None;
        }
        let failed: Vec<&str> = imports.failed.iter().map(|(module, _)| &**module).collect();
        let asked = key.modules.iter().filter(|piece| !failed.contains(&catalog.module(*piece)));
        let own: Set = asked.chain(loaded.iter()).collect();
        let mut line = Vec::new();
        let now = Instant::now();
        let mut born = now.checked_sub(zygote.age()).unwrap_or(now);
        let mut modules = own;
        // Lookups of what it sees itself were not in vain.
        let mut lookups = all_looked_up(imports).without(&catalog.found_as(&key.sees));
        if let Some(parent) = &parent {
            line.push(parent.zygote.id());
            line.extend(&parent.line);
            born = born.min(parent.born);
            if let Some(weight) = weight {
                catalog.record_bytes_alone(&key.sees, &modules, weight);
                catalog.record_bytes(&key.sees, &key.modules, &parent.modules, weight);
            }
            modules = modules.or(&parent.modules);
            lookups = bounded(lookups.or(&parent.lookups));
            catalog.record_memory(&key.sees, imports.milliseconds, bytes);
        }
        let pages = Pages::new(bytes, parent.as_ref().map(|parent| &parent.pages));
        self.ledger.enter(&pages);
        let cached = Arc::new(CachedZygote {
            key: key.clone(),
            zygote,
            pages,
            modules,
            lookups,
            derivable: line.len() < self.config.zygote_depth,
            line,
            born,
            used: AtomicU64::new(state.turn()),
            forks: AtomicU64::new(0),
            bytes: AtomicU64::new(bytes),
            saved_us: AtomicU64::new(0),
            recent: Mutex::default(),
            backoff: Mutex::default(),
            touched: Mutex::new(Instant::now()),
        });
        state.clear_backoff(&key);
        state.nodes.insert(key, Node::Ready(Arc::clone(&cached)));
        state.look_again();
        Some(cached)
    }

    /// `numpy==2.1.0 pandas==2.2.0`, for a log line.
    fn names(&self, state: &CacheState, sees: &Set) -> String {
        let names = sees.iter().map(|number| state.catalog.distribution(number).label());
        names.collect::<Vec<_>>().join(" ")
    }
}

/// Whether the failure is due to the package set, as far as can be told, and not to a shortage on
/// the host.
pub(super) fn is_of_the_set(error: &ProviderError) -> bool {
    !matches!(error, ProviderError::Exhausted { .. } | ProviderError::WardenGone)
}
