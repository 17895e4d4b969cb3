//! The import cache: zygotes, who is forked from which, and which there should be.
//!
//! ```text
//!   Absent ──wanted──► Making ──► Ready ──lost, an impostor, evicted, too old──► Absent
//!                        └──────► Refused ──(failed: after a while)────────────► Absent
//!
//!   call ─► pick ─► fork ─► load ─► learn ─┐             pure: select, evict, plan, over set, tree, profile, book
//!                    what it imported      ▼             shell: making, improving, fitting, telling
//!                             plan ─► make ─► measure
//! ```
//!
//! One tree for each Python and network class. What a zygote may see is an exact set of distributions, and it serves
//! only handlers that locked every one of them (the trust rule). Making one is a task of its own: callers watch it, so
//! it happens once however many ask, and goes on when they leave. A zygote whose imports left threads or open files is
//! refused for as long as the worker lives; one that could not be made, or was lost, for a while.

mod book;
mod claim;
mod evict;
mod fitting;
mod improving;
mod kept;
mod making;
mod plan;
mod profile;
pub(crate) mod seed;
mod select;
mod set;
mod state;
mod telling;
mod tree;
mod worth;

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandbox::{Provider, ProviderError, SandboxId};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::budget::Budget;
use crate::call::Handler;
use crate::config::{EngineConfig, ZygotePolicy};
use crate::engine::Packages;
use crate::package::PackageStore;
use crate::pages::Ledger;
use crate::scheduler::Scheduler;
use claim::Claims;
pub(crate) use kept::Kept;
use kept::{Key, View};
use making::{Made, outcome};
use profile::Profile;
use seed::{Planned, ZygoteTree};
use select::Standing;
use set::Set;
use state::{Node, State};

/// Milliseconds of imports that a start may lack without anybody thinking about a better zygote.
const GOOD_ENOUGH_MS: f64 = 1.0;

/// Where a call goes on from.
#[derive(Debug)]
pub struct Pick {
    /// None: a fresh interpreter.
    pub(crate) zygote: Option<Arc<Kept>>,
    /// It had to be made first.
    pub(crate) cold: bool,
    /// It has imported all that the handler is known to import.
    pub(crate) exact: bool,
    /// Whether to ask the handler what it imports.
    pub(crate) observe: bool,
}

impl Pick {
    /// The zygote; none: a fresh interpreter.
    #[must_use]
    pub fn zygote(&self) -> Option<SandboxId> {
        self.zygote.as_ref().map(|kept| kept.zygote.id())
    }

    /// Whether it has imported all that the handler is known to import.
    #[must_use]
    pub fn exact(&self) -> bool {
        self.exact
    }
}

/// Zygotes, and the policy that has them made, chosen and given up. [`Engine`](crate::Engine) holds one; the simulator
/// drives one without calls.
#[derive(Debug)]
pub struct ImportCache {
    provider: Arc<dyn Provider>,
    config: Arc<EngineConfig>,
    store: Option<Arc<dyn PackageStore>>,
    seed: Vec<Planned>,
    budget: Arc<Budget>,
    /// Whose idle instances share the budget.
    idle: Option<Arc<Scheduler>>,
    ledger: Ledger,
    claims: Arc<Claims>,
    errands: TaskTracker,
    runtime: Handle,
    halt: CancellationToken,
    /// Imports take a whole core: one package set at a time leaves the others to the calls.
    builds: Semaphore,
    /// Whether somebody is thinking about what to make next.
    improving: AtomicBool,
    planners: Semaphore,
    /// Whether an old zygote is being replaced.
    replacing: AtomicBool,
    state: Mutex<State>,
}

impl ImportCache {
    /// With no zygote. Inside a tokio runtime, on which it makes them. `store` lays out parts of locks: without it every
    /// lock stands for itself. `seed` says which zygotes to make as soon as handlers come that they may serve.
    pub fn new(
        provider: Arc<dyn Provider>,
        config: Arc<EngineConfig>,
        store: Option<Arc<dyn PackageStore>>,
        seed: Option<&ZygoteTree>,
        errands: TaskTracker,
        halt: CancellationToken,
    ) -> Arc<Self> {
        let budget = Arc::new(Budget::new(config.memory_bytes));
        let packages = Packages { store, seed: seed.cloned() };
        Self::beside(None, budget, provider, config, packages, errands, halt)
    }

    /// One that shares the budget with the idle instances of `idle`.
    pub(crate) fn beside(
        idle: Option<Arc<Scheduler>>,
        budget: Arc<Budget>,
        provider: Arc<dyn Provider>,
        config: Arc<EngineConfig>,
        packages: Packages,
        errands: TaskTracker,
        halt: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            provider,
            config,
            store: packages.store,
            seed: packages.seed.as_ref().map(ZygoteTree::planned).unwrap_or_default(),
            budget,
            idle,
            ledger: Ledger::default(),
            claims: Arc::default(),
            errands,
            runtime: Handle::current(),
            halt,
            builds: Semaphore::new(1),
            improving: AtomicBool::new(false),
            planners: Semaphore::new(1),
            replacing: AtomicBool::new(false),
            state: Mutex::default(),
        })
    }

    /// Chooses where a call goes on from, and has made what should be there.
    ///
    /// # Errors
    /// When there is no zygote at all and none can be made.
    pub async fn pick(self: &Arc<Self>, handler: &Handler) -> Result<Pick, ProviderError> {
        if self.config.zygotes == ZygotePolicy::None {
            return Ok(Pick { zygote: None, cold: true, exact: false, observe: false });
        }
        let (choice, making) = loop {
            let (choice, making) = self.choose(handler);
            match &choice.zygote {
                // Microseconds to ask; a call that finds out by forking has lost one of its two tries.
                Some(kept) if !kept.zygote.alive() => self.lose(kept, "its process ended"),
                _ => break (choice, making),
            }
        };
        let Some(mut making) = making else {
            let Pick { zygote, cold, .. } = choice;
            return Ok(self.taken(handler, zygote, cold));
        };
        match (outcome(&mut making).await, choice.zygote) {
            (Ok(Some(kept)), _) => Ok(self.taken(handler, Some(kept), true)),
            // What SOCK's policy wanted to make for it cannot be had.
            (_, Some(kept)) => Ok(self.taken(handler, Some(kept), false)),
            (Ok(None), None) => Ok(self.taken(handler, None, true)),
            (Err(error), None) => Err(error),
        }
    }

    /// The best there is, and what to wait for instead, if anything.
    fn choose(
        self: &Arc<Self>,
        handler: &Handler,
    ) -> (Pick, Option<tokio::sync::watch::Receiver<Option<Made>>>) {
        let mut state = self.state();
        let profile = state.profile(handler, self.store.is_some(), &self.seed);
        let view = state.view();
        let best = self.best(&view, &profile, luck(state.starts));
        let own = self.own(&profile);
        self.plant(&mut state, &profile);
        let standing = own.as_ref().map(|key| state.standing(&self.config, key));
        let from = best.map(|at| Arc::clone(&view.kept[at]));
        let mut making = None;
        if let (Some(key), Some(Standing::Absent | Standing::Making)) = (&own, standing) {
            let started = match state.nodes.get(key) {
                Some(Node::Making(making)) if standing == Some(Standing::Making) => making.clone(),
                _ => self.start(
                    &mut state,
                    key,
                    from.clone().filter(|_| self.config.zygotes == ZygotePolicy::Paper),
                ),
            };
            making = Some(started).filter(|_| self.config.zygotes == ZygotePolicy::Paper);
        }
        let root = Key::root(profile.realm);
        if from.is_none() && making.is_none() {
            making = match (state.standing(&self.config, &root), state.nodes.get(&root)) {
                (Standing::Making, Some(Node::Making(making))) => Some(making.clone()),
                (Standing::Absent, _) => Some(self.start(&mut state, &root, None)),
                _ => None,
            };
        }
        drop(state);
        let cold = from.is_none();
        (Pick { zygote: from, cold, exact: false, observe: false }, making)
    }

    /// Notes that a call goes on from there.
    fn taken(self: &Arc<Self>, handler: &Handler, kept: Option<Arc<Kept>>, cold: bool) -> Pick {
        let mut state = self.state();
        let profile = state.profile(handler, self.store.is_some(), &self.seed);
        state.start(&handler.id, self.config.zygote_half_life);
        let none = Set::default();
        let modules = kept.as_ref().map_or(&none, |kept| &kept.modules);
        let needs: f64 = profile.needs.iter().map(|(_, cost)| cost).sum();
        let saved = profile.saved(modules);
        if let Some(kept) = &kept {
            kept.use_now(state.turn(), saved);
        }
        drop(state);
        let learns = matches!(self.config.zygotes, ZygotePolicy::Utility | ZygotePolicy::Static);
        let exact = match (&kept, self.config.zygotes) {
            (None, _) => false,
            (Some(_), _) if profile.declared.is_empty() && !learns => true,
            (Some(kept), ZygotePolicy::PerLock) => profile.declared.within(&kept.key.modules),
            (Some(kept), ZygotePolicy::Paper) => kept.key.sees == profile.locked,
            _ => needs - saved < GOOD_ENOUGH_MS,
        };
        if self.config.zygotes == ZygotePolicy::Utility && needs - saved >= GOOD_ENOUGH_MS {
            self.improve();
        }
        let observe =
            learns && !profile.locked.is_empty() && profile.curious(number(kept.as_deref()));
        Pick { zygote: kept, cold, exact, observe }
    }

    /// The best zygote that may serve the handler, by the policy.
    fn best(&self, view: &View, profile: &Profile, luck: u64) -> Option<usize> {
        let (entries, realm) = (&view.entries, profile.realm);
        match self.config.zygotes {
            ZygotePolicy::None => None,
            ZygotePolicy::Root => select::exact(entries, realm, &Set::default(), &Set::default()),
            ZygotePolicy::PerLock => {
                select::exact(entries, realm, &profile.locked, &profile.declared)
            }
            ZygotePolicy::Paper => select::sock(entries, realm, &profile.locked, luck),
            ZygotePolicy::Utility | ZygotePolicy::Static => select::utility(entries, profile),
        }
    }

    /// The zygote that the policy makes for a handler as soon as that is called.
    fn own(&self, profile: &Profile) -> Option<Key> {
        let modules = match self.config.zygotes {
            ZygotePolicy::PerLock => profile.declared.clone(),
            ZygotePolicy::Paper => profile.outermost.clone(),
            _ => return None,
        };
        let key = Key { realm: profile.realm, sees: profile.locked.clone(), modules };
        (!key.modules.is_empty()).then_some(key)
    }

    /// Starts the zygotes of the given tree that may serve the handler and are not there, as far as there is room.
    fn plant(self: &Arc<Self>, state: &mut State, profile: &Profile) {
        for (sees, modules) in &profile.seeds {
            let key = Key { realm: profile.realm, sees: sees.clone(), modules: modules.clone() };
            let used: u64 = state.view().entries.iter().map(|entry| entry.bytes).sum();
            if state.standing(&self.config, &key) == Standing::Absent && used < self.room() {
                self.start(state, &key, None);
            }
        }
    }

    /// A handler that went on from `zygote` has loaded `modules` of its packages, which took it `milliseconds`.
    pub fn learn(
        self: &Arc<Self>,
        handler: &Handler,
        pick: &Pick,
        modules: &[String],
        milliseconds: f64,
    ) {
        let mut state = self.state();
        let State { book, profiles, .. } = &mut *state;
        let Some(profile) = profiles.get_mut(&handler.id) else { return };
        let (book, profile) = (Arc::make_mut(book), Arc::make_mut(profile));
        let new = modules.iter().filter_map(|module| book.piece(&profile.locked, module)).collect();
        let none = Set::default();
        let had = pick.zygote.as_ref().map_or(&none, |kept| &kept.modules);
        profile.learn(number(pick.zygote.as_deref()), had, &new, milliseconds, book);
        drop(state);
        if self.config.zygotes == ZygotePolicy::Utility && !new.is_empty() {
            self.improve();
        }
    }

    /// Makes the zygotes that the handler will be forked from. Returns when they are there, or cannot be.
    pub async fn prepare(self: &Arc<Self>, handler: &Handler) {
        if self.config.zygotes == ZygotePolicy::None {
            return;
        }
        let (root, wanted) = {
            let mut state = self.state();
            let profile = state.profile(handler, self.store.is_some(), &self.seed);
            if self.config.zygotes == ZygotePolicy::Utility {
                state.start(&handler.id, self.config.zygote_half_life);
            }
            self.plant(&mut state, &profile);
            (
                Key::root(profile.realm),
                self.own(&profile).or_else(|| self.ahead(&mut state, &profile)),
            )
        };
        for key in [Some(root), wanted].into_iter().flatten() {
            if let Some(mut making) = self.ensure(&key) {
                // Its failure was told when it happened; calls go on without it.
                let _ = outcome(&mut making).await;
            }
        }
        if self.config.zygotes == ZygotePolicy::Utility {
            self.improved().await;
        }
    }

    /// What the first call of a handler that nobody has seen is to go on from, unless a zygote serves it well already:
    /// its whole lock, because what its modules need is not known yet; making it tells.
    fn ahead(&self, state: &mut State, profile: &Profile) -> Option<Key> {
        let unseen = self.config.zygotes == ZygotePolicy::Utility && !profile.seen();
        if !unseen || profile.declared.is_empty() {
            return None;
        }
        let view = state.view();
        let served = self
            .best(&view, profile, 0)
            .is_some_and(|at| profile.declared.within(&view.kept[at].modules));
        // What others that were asked for no more brought along comes along here, too: it can be made of the largest.
        let implied = view.entries.iter().filter(|entry| {
            entry.serves(profile.realm, &profile.locked) && entry.asked.within(&profile.declared)
        });
        let most = implied.max_by_key(|entry| entry.modules.iter().count());
        let modules = most.map(|entry| profile.declared.or(&entry.modules));
        let (sees, declared) = (profile.locked.clone(), profile.declared.clone());
        let modules = modules.unwrap_or(declared);
        (!served).then_some(Key { realm: profile.realm, sees, modules })
    }

    /// Forgets a handler that was deleted.
    pub fn forget(&self, handler: &crate::call::HandlerId) {
        self.state().profiles.remove(handler);
    }

    /// Drops a zygote that is lost, or that answered with an impostor.
    pub(crate) fn lose(&self, lost: &Arc<Kept>, why: &str) {
        {
            let mut state = self.state();
            if !state.remove(lost) {
                return;
            }
            // A root is made anew at once: calls need it. Any other might be lost again and again.
            if !lost.key.is_root() {
                state.refuse(lost.key.clone(), why.to_owned(), false);
            }
        }
        tracing::warn!(zygote = %lost.zygote.id(), why, "a zygote was given up");
    }

    /// Gives up everything.
    pub fn clear(&self) {
        let gone = {
            let mut state = self.state();
            state.look_again();
            self.budget.note_zygotes(0);
            std::mem::take(&mut state.nodes)
        };
        drop(gone);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A zygote's number, and 0 for none.
fn number(kept: Option<&Kept>) -> u64 {
    kept.map_or(0, |kept| kept.zygote.id().0)
}

/// A number that looks random.
fn luck(starts: u64) -> u64 {
    BuildHasherDefault::<DefaultHasher>::new().hash_one(starts)
}
