//! Making zygotes, each in a task of its own, once, watched by whoever needs it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sandbox::{Layer, ProviderError, Zygote, ZygoteSpec};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::ImportCache;
use crate::budget::Reservation;
use crate::config::ZygotePolicy;
use crate::import_cache::model::estimate::Belief;
use crate::import_cache::model::lookups::{all_looked_up, bounded};
use crate::import_cache::model::set::Set;
use crate::import_cache::policy::forkable::unfit;
use crate::import_cache::policy::price::ancestor;
use crate::import_cache::state::cache_state::{Realm, State};
use crate::import_cache::state::claim::Claim;
use crate::import_cache::state::creation::{Made, Node, Origin, Standing, outcome};
use crate::import_cache::state::zygote::{Kept, Key, View};
use crate::pages::Pages;

/// A zygote that was made.
#[derive(Debug)]
pub(super) struct Derived {
    pub(super) zygote: Box<dyn Zygote>,
    /// The one that it was derived from.
    pub(super) parent: Option<Arc<Kept>>,
    /// Held until the zygote is among those that can be forked.
    pub(super) claim: Option<Claim>,
    /// Held until it is weighed itself.
    pub(super) reserved: Option<Reservation>,
}

impl ImportCache {
    /// What to watch until the zygote is there; none when it is there, or refused.
    pub(super) fn ensure(self: &Arc<Self>, key: &Key) -> Option<watch::Receiver<Option<Made>>> {
        self.ensure_from(&mut self.state(), key, Origin::Best)
    }

    /// The same, under the lock; made from `from`.
    pub(super) fn ensure_from(
        self: &Arc<Self>,
        state: &mut State,
        key: &Key,
        from: Origin,
    ) -> Option<watch::Receiver<Option<Made>>> {
        match (state.standing(&self.config, key), state.nodes.get(key)) {
            (Standing::Making, Some(Node::Making(making))) => Some(making.clone()),
            (Standing::Absent, _) => Some(self.start(state, key, from)),
            _ => None,
        }
    }

    /// Has it made: see [`Self::ensure_from`].
    fn start(
        self: &Arc<Self>,
        state: &mut State,
        key: &Key,
        from: Origin,
    ) -> watch::Receiver<Option<Made>> {
        let (tell, making) = watch::channel(None);
        state.nodes.insert(key.clone(), Node::Making(making.clone()));
        self.spawn(key.clone(), from, tell);
        making
    }

    fn spawn(self: &Arc<Self>, key: Key, from: Origin, tell: watch::Sender<Option<Made>>) {
        let (cache, era) = (Arc::clone(self), self.era.load(Ordering::Acquire));
        let work = async move {
            let made = tokio::select! {
                () = cache.halt.cancelled() => Err(ProviderError::Interpreter("the worker is stopping".to_owned())),
                made = async { cache.make(&key, from.there().await).await } => made,
            };
            let made = cache.settle(key, era, made);
            cache.fit_aside().await;
            tell.send_replace(Some(made));
        };
        self.background.spawn_on(work, &self.runtime);
    }

    pub(super) async fn make(
        self: &Arc<Self>,
        key: &Key,
        from: Option<Arc<Kept>>,
    ) -> Result<Derived, ProviderError> {
        let Realm { kind, python, network, tenant } = self.state().realm(key.realm).clone();
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
            return Ok(Derived { zygote, parent: None, claim: None, reserved: None });
        }
        // SOCK's policy makes them while their calls wait.
        let turn = match self.config.zygotes {
            ZygotePolicy::Paper => None,
            _ => Some(self.turns.turn(&tenant).await),
        };
        let layer = self.layer(key, &spec.python).await?;
        let claim = Some(self.claims.claim(layer.clone()));
        let packages = Some(layer);
        let fit = |from: &Arc<Kept>| {
            let state = self.state();
            let belief = Belief::of(&state.book, &key.sees);
            from.bears
                && !self.outlived(from)
                && state.holds(from)
                && belief.bears(&from.key.sees, &from.reads, &key.sees)
        };
        let parent = match from.filter(fit).or_else(|| self.ancestor(key)) {
            Some(kept) => Some(kept),
            None => match self.ensure(&Key::root(key.realm)) {
                Some(mut making) => outcome(&mut making).await?,
                None => self.ancestor(key),
            },
        };
        let had = parent.as_ref().map(|parent| parent.modules.clone()).unwrap_or_default();
        let missing = key.modules.without(&had);
        let reserved = Some(self.budget.reserve(self.expected(&key.sees, &missing).1));
        let imports = self.state().book.modules(&missing);
        let spec = ZygoteSpec { packages, imports, ..spec };
        let Some(parent) = parent else {
            let making = self.in_time(self.provider.create_zygote(spec));
            let zygote = self.in_turn(turn, self.turn_timeout(key), making).await?;
            return Ok(Derived { zygote, parent: None, claim, reserved });
        };
        let making = self.in_time(parent.zygote.derive(spec));
        let derived = self.in_turn(turn, self.turn_timeout(key), making).await;
        if let Err(
            error @ (ProviderError::ZygoteLost { id, .. } | ProviderError::Impostor { id, .. }),
        ) = &derived
            // One that died of its own imports says nothing of the one that it came from.
            && *id == parent.zygote.id()
        {
            self.lose(&parent, &error.to_string());
        }
        Ok(Derived { zygote: derived?, parent: Some(parent), claim, reserved })
    }

    fn ancestor(&self, key: &Key) -> Option<Arc<Kept>> {
        let (view, book) = {
            let mut state = self.state();
            (state.view(), Arc::clone(&state.book))
        };
        let fit = |kept: &&Arc<Kept>| !self.outlived(kept) && kept.bears;
        let young: Vec<_> = view.kept.iter().filter(fit).cloned().collect();
        let young = View::new(young);
        let belief = Belief::of(&book, &key.sees);
        let at = ancestor(&young.entries, key.realm, &key.sees, &key.modules, &belief)?;
        Some(Arc::clone(&young.kept[at]))
    }

    /// The directory that holds just what the zygote may see.
    async fn layer(&self, key: &Key, python: &sandbox::PythonSpec) -> Result<Layer, ProviderError> {
        let set = self.state().book.distributions(&key.sees);
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

    /// Notes what came of making a zygote.
    fn settle(&self, key: Key, era: u64, made: Result<Derived, ProviderError>) -> Made {
        match made {
            Ok(_) if !key.is_root() && era != self.era.load(Ordering::Acquire) => {
                self.state().nodes.remove(&key);
                Ok(None)
            }
            Err(error) => {
                let mut state = self.state();
                tracing::warn!(packages = %self.names(&state, &key.sees), %error, "a zygote could not be made");
                state.nodes.remove(&key);
                if !key.is_root() {
                    if is_of_the_set(&error) {
                        state.set_back(&key, self.config.zygote_retry);
                    }
                    state.refuse(key, sandbox::chain(&error), false);
                }
                Err(Arc::new(error))
            }
            Ok(Derived { zygote, parent, claim, reserved }) => {
                let kept = self.admit(key, zygote, parent);
                drop((claim, reserved));
                Ok(kept)
            }
        }
    }

    /// Takes a zygote in, if it can be forked; learns from what it did either way.
    pub(super) fn admit(
        &self,
        key: Key,
        zygote: Box<dyn Zygote>,
        parent: Option<Arc<Kept>>,
    ) -> Option<Arc<Kept>> {
        let weight = zygote.memory().ok();
        let bytes = weight.unwrap_or_else(|| self.unweighed());
        let mut state = self.state();
        let book = Arc::make_mut(&mut state.book);
        let imports = zygote.imports();
        let loaded = book.measure(&key.sees, imports);
        if let Some(why) = unfit(imports) {
            tracing::warn!(packages = %self.names(&state, &key.sees), why, "a zygote cannot be forked");
            state.refuse(key, why, true);
            return None;
        }
        let failed: Vec<&str> = imports.failed.iter().map(|(module, _)| &**module).collect();
        let asked = key.modules.iter().filter(|piece| !failed.contains(&book.module(*piece)));
        let own: Set = asked.chain(loaded.iter()).collect();
        let mut line = Vec::new();
        let now = Instant::now();
        let mut born = now.checked_sub(zygote.age()).unwrap_or(now);
        let mut modules = own;
        // It misses nothing that it sees: whatever looked for that has found it.
        let mut reads = all_looked_up(imports).without(&book.found_as(&key.sees));
        if let Some(parent) = &parent {
            line.push(parent.zygote.id());
            line.extend(&parent.line);
            born = born.min(parent.born);
            if let Some(weight) = weight {
                book.weighed_alone(&key.sees, &modules, weight);
                book.weighed_as(&key.sees, &key.modules, &parent.modules, weight);
            }
            modules = modules.or(&parent.modules);
            reads = bounded(reads.or(&parent.reads));
            book.weighed(&key.sees, imports.milliseconds, bytes);
        }
        let pages = Pages::new(bytes, parent.as_ref().map(|parent| &parent.pages));
        self.ledger.enter(&pages);
        let kept = Arc::new(Kept {
            key: key.clone(),
            zygote,
            pages,
            modules,
            reads,
            bears: line.len() < self.config.zygote_depth,
            line,
            born,
            used: AtomicU64::new(state.turn()),
            forks: AtomicU64::new(0),
            bytes: AtomicU64::new(bytes),
            saved_us: AtomicU64::new(0),
            recent: Mutex::default(),
            setback: Mutex::default(),
            touched: Mutex::new(Instant::now()),
        });
        state.set_forth(&key);
        state.nodes.insert(key, Node::Ready(Arc::clone(&kept)));
        state.look_again();
        Some(kept)
    }

    /// `numpy==2.1.0 pandas==2.2.0`, for a log line.
    fn names(&self, state: &State, sees: &Set) -> String {
        let names = sees.iter().map(|number| state.book.distribution(number).label());
        names.collect::<Vec<_>>().join(" ")
    }
}

/// Whether a zygote could not be made for what it imports, as far as can be told: not because the host is short of
/// something.
pub(super) fn is_of_the_set(error: &ProviderError) -> bool {
    !matches!(error, ProviderError::Exhausted { .. } | ProviderError::WardenGone)
}
