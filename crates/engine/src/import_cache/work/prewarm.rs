//! Making zygotes before calls need them: those of a given tree, and those for deployed functions.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::timeout;

use super::ImportCache;
use crate::config::ZygotePolicy;
use crate::handler::Handler;
use crate::import_cache::model::profile::{Profile, Seed};
use crate::import_cache::model::set::Set;
use crate::import_cache::policy::price::MAKING_MS;
use crate::import_cache::state::cache_state::CacheState;
use crate::import_cache::state::creation::{Availability, CreationResult, Node, Origin, outcome};
use crate::import_cache::state::zygote::ZygoteKey;
use crate::zygote_tree::ZygoteTree;

impl Seed {
    /// The key of its zygote.
    fn key(&self, domain: usize) -> ZygoteKey {
        ZygoteKey { domain, sees: self.sees.clone(), modules: self.modules.clone() }
    }
}

impl ImportCache {
    /// Makes the zygotes that the handler will be forked from. Returns when they exist or cannot be
    /// made; false if that takes longer than the creation timeout, in which case they are still
    /// made. Counts as a start, so that the zygotes are kept, but gives no credit; the handler owes
    /// what was made for it. `begins` is called before waiting for a zygote that imports something.
    pub async fn prepare(self: &Arc<Self>, handler: &Handler, begins: impl FnOnce()) -> bool {
        if self.config.zygotes == ZygotePolicy::None {
            return true;
        }
        let (profile, given, wanted, awaited) = {
            let mut state = self.state();
            let profile = self.profile(&mut state, handler);
            if self.config.zygotes == ZygotePolicy::Utility {
                state.start(&handler.id, self.config.zygote_half_life);
            }
            self.plant(&mut state, &profile);
            let own = self.own(&state, &profile);
            let given = if own.is_none() { Self::given(&state, &profile) } else { None };
            let wanted = match given {
                Some(_) => None,
                None => own.or_else(|| self.ahead(&mut state, &profile)),
            };
            let awaited = given.is_some()
                || wanted.as_ref().is_some_and(|key| {
                    let availability = state.availability(&self.config, key);
                    matches!(availability, Availability::Making | Availability::Absent)
                });
            (profile, given, wanted, awaited)
        };
        if awaited {
            begins();
        }
        if let Some(mut making) = self.ensure(&ZygoteKey::root(profile.domain)) {
            // A failure was logged when it happened; calls go on without it.
            let _ = outcome(&mut making).await;
        }
        let (mut told, mut wanted) = (true, wanted);
        if let Some(mut making) = given {
            match timeout(self.config.creation_timeout, outcome(&mut making)).await {
                Ok(Ok(Some(cached)))
                    if !profile.conflicts_with(&cached.key.sees, &cached.lookups) => {}
                // Then make one for it.
                Ok(_) => wanted = self.ahead(&mut self.state(), &profile),
                Err(_) => told = false,
            }
        }
        if let Some(key) = wanted {
            let expected = MAKING_MS + self.expected(&key.sees, &key.modules).0;
            let charge = |state: &mut CacheState, cost| state.charge(&handler.id, cost);
            told = self.pay_for(&key, expected, self.config.creation_timeout, charge).await;
        }
        if self.config.zygotes == ZygotePolicy::Utility {
            // It may share a better one with other handlers; the deploy does not wait for that.
            self.state().missed += MAKING_MS;
            self.request_replan();
        }
        told
    }

    /// The zygote for the first call of an unobserved handler, unless an existing one serves it
    /// well. It sees the whole lock, because what its modules need is unknown until it is made.
    fn ahead(&self, state: &mut CacheState, profile: &Profile) -> Option<ZygoteKey> {
        let unseen = self.config.zygotes == ZygotePolicy::Utility && !profile.seen();
        if !unseen || profile.declared.is_empty() || state.conflicts(profile, &profile.locked) {
            return None;
        }
        let view = state.view();
        let served = self
            .best(&view, profile, 0)
            .is_some_and(|at| profile.declared.within(&view.zygotes[at].modules));
        if served {
            return None;
        }
        // Modules that came along with the same request elsewhere will come along here, too: with
        // them it can be derived from the largest such zygote.
        let implied = view
            .entries
            .iter()
            .filter(|entry| profile.may_use(entry) && entry.asked.within(&profile.declared));
        let most = implied.max_by_key(|entry| entry.modules.len());
        let brought = most.map_or_else(Set::default, |entry| entry.modules.clone());
        let modules = profile.declared.or(&brought);
        Some(ZygoteKey { domain: profile.domain, sees: profile.locked.clone(), modules })
    }

    /// The zygote of the given tree that is being made and will have all that the handler declares:
    /// the handler needs none of its own, and owes nothing for a given one.
    fn given(
        state: &CacheState,
        profile: &Profile,
    ) -> Option<watch::Receiver<Option<CreationResult>>> {
        let all = |seed: &&Seed| {
            profile.declared.within(&seed.modules) && !state.conflicts(profile, &seed.sees)
        };
        let mut seeds = profile.seeds.iter().filter(all).filter(|_| !profile.declared.is_empty());
        seeds.find_map(|seed| match state.nodes.get(&seed.key(profile.domain)) {
            Some(Node::Making(making)) => Some(making.clone()),
            _ => None,
        })
    }

    /// Makes the zygotes of a tree that these handlers may be forked from, before any call and as
    /// far as there is room, for one handler after the other: the most wanted first. Returns when
    /// they exist or cannot be made. No handler owes for them.
    pub async fn plant_for(self: &Arc<Self>, tree: &ZygoteTree, handlers: &[Arc<Handler>]) {
        if self.config.zygotes == ZygotePolicy::None || self.store.is_none() {
            return;
        }
        let planned = tree.flatten();
        for handler in handlers {
            // Without the lock: there may be thousands of handlers, and calls need it.
            tokio::task::yield_now().await;
            if !planned.iter().any(|node| node.among(handler.imported_ahead()).is_some()) {
                continue;
            }
            let begun = {
                let mut state = self.state();
                let (domain, seeds) = state.seeds(handler, &planned);
                self.plant_seeds(&mut state, domain, &seeds, |_, _| true)
            };
            for mut making in begun {
                // A failure was logged when it happened; calls go on without it.
                let _ = outcome(&mut making).await;
            }
        }
    }

    /// Starts making the missing zygotes of the given tree that may serve the handler, as far as
    /// there is room.
    pub(super) fn plant(self: &Arc<Self>, state: &mut CacheState, profile: &Profile) {
        let useful = |state: &CacheState, seed: &Seed| !state.conflicts(profile, &seed.sees);
        self.plant_seeds(state, profile.domain, &profile.seeds, useful);
    }

    /// Starts making the useful ones, each after its parent, to be derived from it; descendants of
    /// a useless one are useless, too. Returns what to watch until they are made.
    fn plant_seeds(
        self: &Arc<Self>,
        state: &mut CacheState,
        domain: usize,
        seeds: &[Seed],
        useful: impl Fn(&CacheState, &Seed) -> bool,
    ) -> Vec<watch::Receiver<Option<CreationResult>>> {
        let mut begun = Vec::new();
        for seed in seeds {
            let absent =
                state.availability(&self.config, &seed.key(domain)) == Availability::Absent;
            if absent && !useful(state, seed) {
                continue;
            }
            let view = state.view();
            let used: u64 = view.entries.iter().map(|entry| entry.bytes).sum();
            if used < self.room() && view.entries.len() < self.max_zygotes() {
                let above = seed.above.map(|at| seeds[at].key(domain));
                let from = above.map_or(Origin::Best, |above| state.origin(&above));
                begun.extend(self.ensure_from(state, &seed.key(domain), from));
            }
        }
        begun
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use sandbox::fake::{FakeProvider, Operation, Recorded};

    use super::*;
    use crate::handler::tests::handler;
    use crate::import_cache::model::import_time::ImportTime;
    use crate::import_cache::work::replan::tests::cache;

    #[tokio::test(start_paused = true)]
    async fn a_deploy_brings_nothing_in_and_its_function_pays_for_its_zygote_first() {
        let (provider, handler) = (FakeProvider::default(), handler());
        let cost = Recorded { milliseconds: 300.0, ..Recorded::default() };
        provider.record(HashMap::from([("a".to_owned(), cost)]));
        let cache = cache(&provider);
        let balance = || cache.state().account.balance();
        let opening = balance();
        cache.prepare(&handler, || ()).await;
        assert_eq!(provider.begun(Operation::Derive), 1);
        assert_eq!(balance(), opening);
        let (mut brought, mut starts) = (0.0, 0);
        while balance() <= opening {
            starts += 1;
            assert!(starts < 100, "it never pays: {:?}", cache.state().account);
            let pick = cache.pick(&handler).await.unwrap();
            cache.learn(&handler, &pick, Vec::new(), ImportTime::Load(0.0));
            cache.apply_observations();
            let id = &handler.id;
            let measured = cache.state().profiles[id].measured();
            brought += crate::import_cache::model::spending::credit_for(measured);
        }
        assert!(brought > MAKING_MS + 300.0, "{brought} ms");
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_brings_nothing_in_before_its_imports_were_measured() {
        let (provider, handler) = (FakeProvider::default(), handler());
        let cache = cache(&provider);
        let balance = || cache.state().account.balance();
        let opening = balance();
        let pick = cache.pick(&handler).await.unwrap();
        assert!(cache.state().profiles[&handler.id].needed() > 0.0, "it declares an import");
        assert!(balance() <= opening);
        cache.learn(&handler, &pick, vec!["a".to_owned()], ImportTime::Load(100.0));
        cache.apply_observations();
        assert!(balance() > opening);
    }
}
