//! What the import cache knows, under its one lock.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use function::VersionId;
use sandbox::{Kind, Network, PythonSpec};
use tokio::time::Instant;

use crate::config::EngineConfig;
use crate::distribution::Distribution;
use crate::handler::Handler;
use crate::import_cache::model::catalog::Book;
use crate::import_cache::model::profile::{Profile, Seed};
use crate::import_cache::model::set::Set;
use crate::import_cache::model::spending::{Account, brings};
use crate::import_cache::state::backoff::Setback;
use crate::import_cache::state::creation::{Node, Origin, Standing};
use crate::import_cache::state::observations::{Lesson, Lessons};
use crate::import_cache::state::zygote::{Kept, Key, View};
use crate::popularity::Rate;
use crate::zygote_tree::Planned;

/// Package sets whose refusal is remembered, at most.
const MAX_REFUSALS: usize = 1024;

/// About as many starts back it is remembered how many were of new locks.
const NOVELTY_STARTS: f64 = 200.0;

/// Handlers that are remembered, at most; those that were started least of late go first.
const MAX_PROFILES: usize = 2048;

/// What a zygote never leaves: it serves only handlers of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Realm {
    pub(crate) kind: Kind,
    pub(crate) python: PythonSpec,
    pub(crate) network: Network,
    /// A zygote has full power over what is forked from it, and what is forked may learn from it (its address-space
    /// layout, what is left in its memory): not even a root is shared.
    pub(crate) tenant: String,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) nodes: HashMap<Key, Node>,
    /// By Python and package set: whatever of its modules is asked for, the same package may hang.
    setbacks: HashMap<(usize, Set), Setback>,
    pub(crate) book: Arc<Book>,
    pub(crate) profiles: BTreeMap<VersionId, Arc<Profile>>,
    realms: Vec<Realm>,
    /// The part of starts of late that were of locks never seen before.
    pub(crate) novelty: f64,
    /// Starts so far: the clock by which popularity fades.
    pub(crate) starts: u64,
    /// Forks so far, and zygotes: who was used last.
    turns: u64,
    /// Starts by the clock on the wall.
    pub(crate) rate: Rate,
    /// What making zygotes may cost.
    pub(crate) account: Account,
    /// Zygotes given up for others since anything was last started: nobody has asked for them since.
    given_up: HashSet<Key>,
    /// Milliseconds of imports that calls had to do since somebody last thought about better zygotes.
    pub(crate) missed: f64,
    /// What calls have shown and nobody took in yet.
    pub(crate) lessons: Lessons,
    view: Option<Arc<View>>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            nodes: HashMap::new(),
            setbacks: HashMap::new(),
            book: Arc::default(),
            profiles: BTreeMap::new(),
            realms: Vec::new(),
            // Nobody knows yet.
            novelty: 0.5,
            starts: 0,
            turns: 0,
            rate: Rate::default(),
            account: Account::default(),
            given_up: HashSet::new(),
            missed: 0.0,
            lessons: Lessons::default(),
            view: None,
        }
    }
}

impl State {
    /// What is known of the handler, which may be nothing but what it says itself. `stored`: whether the install cache
    /// lays out any part of its lock; only then is more to be known of that than its directory. `secrets`: the names
    /// of those that it has now.
    pub(crate) fn profile(
        &mut self,
        handler: &Handler,
        stored: bool,
        seed: &[Planned],
        secrets: Vec<String>,
    ) -> Arc<Profile> {
        if let Some(profile) = self.profiles.get_mut(&handler.id) {
            if profile.secrets != secrets {
                Arc::make_mut(profile).sets(handler, secrets, &self.book);
            }
            return Arc::clone(profile);
        }
        let realm = self.realm_of(handler);
        let book = Arc::make_mut(&mut self.book);
        let distributions = handler.imported_ahead();
        let locked: Set = match &handler.packages {
            None => Set::default(),
            Some(_) if !handler.import_cache => Set::default(),
            Some(_) if stored && !distributions.is_empty() => {
                distributions.iter().map(|distribution| book.number(distribution)).collect()
            }
            Some(packages) => {
                [book.number(&Distribution::whole_lock(packages))].into_iter().collect()
            }
        };
        let declared =
            handler.imports.iter().filter_map(|module| book.piece(&locked, module)).collect();
        let mut profile = Profile::new(realm, locked, declared, book);
        profile.sets(handler, secrets, book);
        profile.clash(handler, book);
        if stored {
            let modules = distributions.iter().flat_map(|distribution| &distribution.modules);
            profile.outermost =
                modules.filter_map(|module| book.piece(&profile.locked, module)).collect();
            profile.seeds = seeds(seed, distributions, &profile.locked, book);
        }
        let profile = Arc::new(profile);
        if self.profiles.len() >= MAX_PROFILES {
            self.forget_some();
        }
        self.profiles.insert(handler.id.clone(), Arc::clone(&profile));
        profile
    }

    /// Whether what these distributions look up when they are imported is the handler's own, as far as it is known to it.
    pub(crate) fn shuns(&self, profile: &Profile, sees: &Set) -> bool {
        profile.minds(sees, &profile.belief(&self.book).reads(sees))
    }

    /// The nodes of a tree that the handler may be forked from, and where: for one that nobody has called, of whom nothing is
    /// to be remembered yet.
    pub(crate) fn seeds(&mut self, handler: &Handler, tree: &[Planned]) -> (usize, Vec<Seed>) {
        let realm = self.realm_of(handler);
        let book = Arc::make_mut(&mut self.book);
        let distributions = handler.imported_ahead();
        let locked = distributions.iter().map(|one| book.number(one)).collect();
        (realm, seeds(tree, distributions, &locked, book))
    }

    /// Counts a start of the handler.
    pub(crate) fn start(&mut self, handler: &VersionId, half_life: f64) {
        self.starts += 1;
        self.given_up.clear();
        self.rate.count(Instant::now());
        let Some(profile) = self.profiles.get(handler) else { return };
        let twin = |other: &Arc<Profile>| {
            other.started() && other.realm == profile.realm && other.locked == profile.locked
        };
        let new = !profile.started() && !self.profiles.values().any(twin);
        let of_late = NOVELTY_STARTS.recip();
        self.novelty += of_late * (f64::from(u8::from(new)) - self.novelty);
        if let Some(profile) = self.profiles.get_mut(handler) {
            Arc::make_mut(profile).start(self.starts, half_life, Instant::now());
        }
    }

    /// Takes what a start of the handler brings in, as measured: for what it owes, and then for everybody.
    pub(crate) fn earn(&mut self, handler: &VersionId, half_life: f64) {
        let Some(profile) = self.profiles.get_mut(handler) else { return };
        let mut brought = brings(profile.measured());
        if !profile.debt.is_paid() {
            brought = Arc::make_mut(profile).debt.pay(brought);
        }
        self.account.earn(brought, half_life);
    }

    /// Takes in what a handler has shown.
    pub(crate) fn take_in(&mut self, lesson: &Lesson, half_life: f64) {
        let Some(profile) = self.profiles.get_mut(&lesson.handler) else { return };
        let (book, profile) = (Arc::make_mut(&mut self.book), Arc::make_mut(profile));
        let said = lesson.modules.iter();
        let new = said.filter_map(|module| book.piece(&profile.locked, module)).collect();
        profile.learn(lesson.zygote, &lesson.had, &new, lesson.took, book);
        self.missed += profile.saved(&new);
        if lesson.earns {
            self.earn(&lesson.handler, half_life);
        }
    }

    /// Notes that so much was spent for the handler, because it was deployed.
    pub(crate) fn owe(&mut self, handler: &VersionId, milliseconds: f64) {
        if let Some(profile) = self.profiles.get_mut(handler) {
            Arc::make_mut(profile).debt.owe(milliseconds);
        }
    }

    /// Handlers started within that time of whose packages something else is known than when it was worked out what they
    /// need.
    pub(crate) fn stale(&self, within: Duration) -> Vec<(VersionId, Arc<Profile>)> {
        let stale =
            |profile: &Profile| profile.started_within(within) && profile.is_stale(&self.book);
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

    fn realm_of(&mut self, handler: &Handler) -> usize {
        let same = |realm: &Realm| {
            realm.kind == handler.kind
                && realm.python == handler.python
                && realm.network == handler.network
                && realm.tenant == handler.tenant
        };
        self.realms.iter().position(same).unwrap_or_else(|| {
            let Handler { kind, python, network, tenant, .. } = handler;
            let (python, network, tenant) = (python.clone(), *network, tenant.clone());
            self.realms.push(Realm { kind: *kind, python, network, tenant });
            self.realms.len() - 1
        })
    }

    pub(crate) fn realm(&self, number: usize) -> &Realm {
        &self.realms[number]
    }

    pub(crate) fn view(&mut self) -> Arc<View> {
        let nodes = &self.nodes;
        let view = self.view.get_or_insert_with(|| {
            let ready = nodes.values().filter_map(|node| match node {
                Node::Ready(kept) => Some(Arc::clone(kept)),
                _ => None,
            });
            Arc::new(View::new(ready.collect()))
        });
        Arc::clone(view)
    }

    /// The view is made anew when it is asked for next: zygotes, or what they weigh, have changed.
    pub(crate) fn look_again(&mut self) {
        self.view = None;
    }

    pub(crate) fn turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    pub(crate) fn standing(&self, config: &EngineConfig, key: &Key) -> Standing {
        let set_back = || {
            let setback = self.setbacks.get(&(key.realm, key.sees.clone()));
            setback.is_some_and(Setback::holds)
        };
        match self.nodes.get(key) {
            // Whoever was making it is gone without a word.
            Some(Node::Making(making)) if making.has_changed().is_err() => Standing::Absent,
            Some(Node::Making(_)) => Standing::Making,
            None | Some(Node::Refused { for_good: false, .. }) if set_back() => Standing::Refused,
            None => Standing::Absent,
            Some(Node::Ready(_)) => Standing::Ready,
            Some(Node::Refused { for_good: true, .. }) => Standing::Refused,
            Some(Node::Refused { since, .. }) if since.elapsed() < config.zygote_retry => {
                Standing::Refused
            }
            Some(Node::Refused { .. }) => Standing::Absent,
        }
    }

    /// What one is to be derived from for which the zygote of that key is meant.
    pub(crate) fn origin(&self, key: &Key) -> Origin {
        match self.nodes.get(key) {
            Some(Node::Ready(kept)) => Origin::There(Arc::clone(kept)),
            Some(Node::Making(making)) => Origin::Coming(making.clone()),
            Some(Node::Refused { .. }) | None => Origin::Best,
        }
    }

    pub(crate) fn refuse(&mut self, key: Key, why: String, for_good: bool) {
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

    /// Notes that a zygote of the set could not be made: the next one waits for `retry`, and twice as long after each
    /// further failure.
    pub(crate) fn set_back(&mut self, key: &Key, retry: Duration) {
        self.setbacks.entry((key.realm, key.sees.clone())).or_default().fail(retry);
        if self.setbacks.len() > MAX_REFUSALS
            && let Some(first) = self
                .setbacks
                .iter()
                .min_by_key(|(_, setback)| setback.until())
                .map(|(of, _)| of.clone())
        {
            self.setbacks.remove(&first);
        }
    }

    /// Notes that one of the set was made.
    pub(crate) fn set_forth(&mut self, key: &Key) {
        self.setbacks.remove(&(key.realm, key.sees.clone()));
    }

    /// Takes a zygote out for others, which are worth more.
    pub(crate) fn give_up(&mut self, kept: &Arc<Kept>) {
        if self.remove(kept) {
            self.given_up.insert(kept.key.clone());
        }
    }

    /// The zygotes that nobody may plan to make: that are there, are being made, cannot be made, or were given up for others
    /// since anything was last started.
    pub(crate) fn barred(&self, config: &EngineConfig) -> HashSet<Key> {
        let keys = self.nodes.keys();
        let there = keys.filter(|key| self.standing(config, key) != Standing::Absent);
        there.chain(&self.given_up).cloned().collect()
    }

    /// Whether that zygote is still the one that is there.
    pub(crate) fn holds(&self, kept: &Arc<Kept>) -> bool {
        matches!(self.nodes.get(&kept.key), Some(Node::Ready(there)) if Arc::ptr_eq(there, kept))
    }

    /// Takes a zygote out, if it is still the one that is there.
    pub(crate) fn remove(&mut self, kept: &Arc<Kept>) -> bool {
        let there = self.holds(kept);
        if there {
            self.nodes.remove(&kept.key);
            self.look_again();
        }
        there
    }
}

/// The nodes of a given tree that a handler of `lock` may be forked from.
fn seeds(seed: &[Planned], lock: &[Distribution], locked: &Set, book: &mut Book) -> Vec<Seed> {
    let mut found = Vec::new();
    // Where those are that were found: whoever may be forked from a node may be from the one above it.
    let mut places = HashMap::new();
    for (at, planned) in seed.iter().enumerate() {
        let Some((distributions, modules)) = planned.among(lock) else { continue };
        let sees = distributions.into_iter().map(|one| book.number(one)).collect();
        let modules = modules.iter().filter_map(|module| book.piece(locked, module)).collect();
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
        let (config, mut state) = (EngineConfig::default(), State::default());
        let key = |sees: u32, module| Key {
            realm: 0,
            sees: [sees].into_iter().collect(),
            modules: [module].into_iter().collect(),
        };
        let retry = config.zygote_retry;
        for doubled in [1, 2, 4, 8] {
            assert_eq!(state.standing(&config, &key(1, 1)), Standing::Absent);
            state.set_back(&key(1, 1), retry);
            state.refuse(key(1, 1), "it hangs".to_owned(), false);
            tokio::time::advance(retry * doubled - Duration::from_secs(1)).await;
            assert_eq!(state.standing(&config, &key(1, 1)), Standing::Refused);
            assert_eq!(state.standing(&config, &key(1, 2)), Standing::Refused, "of the same set");
            assert_eq!(state.standing(&config, &key(2, 1)), Standing::Absent);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        state.set_back(&key(1, 1), retry);
        state.set_forth(&key(1, 2));
        assert_eq!(state.standing(&config, &key(1, 2)), Standing::Absent);
    }
}
