//! Choosing the zygote that a call is forked from: the shell around [`select`].

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use sandbox::ProviderError;
use tokio::sync::watch;

use super::{ImportCache, number};
use crate::config::ZygotePolicy;
use crate::handler::Handler;
use crate::import_cache::model::profile::Profile;
use crate::import_cache::model::set::Set;
use crate::import_cache::policy::price::MAKING_MS;
use crate::import_cache::policy::select;
use crate::import_cache::state::cache_state::CacheState;
use crate::import_cache::state::creation::{CreationResult, Origin, outcome};
use crate::import_cache::state::pick::Pick;
use crate::import_cache::state::zygote::{CachedZygote, View, ZygoteKey};

/// Import milliseconds that a start may lack and still count as a hit.
const GOOD_ENOUGH_MS: f64 = 1.0;

impl ImportCache {
    /// Chooses the zygote for a call, and starts making those that should exist.
    ///
    /// # Errors
    /// When there is no zygote and none can be made.
    pub async fn pick(self: &Arc<Self>, handler: &Handler) -> Result<Pick, ProviderError> {
        if self.config.zygotes == ZygotePolicy::None {
            return Ok(Pick::fresh());
        }
        let (choice, making) = loop {
            let (choice, making) = self.choose(handler);
            match &choice.zygote {
                // Asking takes microseconds; finding out by forking costs the call one of its few
                // tries.
                Some(cached) if !cached.zygote.alive() => self.lose(cached, "its process ended"),
                _ => break (choice, making),
            }
        };
        let Some(mut making) = making else {
            let Pick { zygote, cold, .. } = choice;
            return Ok(self.taken(handler, zygote, cold));
        };
        let made = outcome(&mut making)
            .await
            .map(|made| made.filter(|cached| self.suits(handler, cached)));
        match (made, choice.zygote) {
            (Ok(Some(cached)), _) => Ok(self.taken(handler, Some(cached), true)),
            // The zygote that SOCK's policy wanted to make cannot be made.
            (_, Some(cached)) => Ok(self.taken(handler, Some(cached), false)),
            (Ok(None), None) => Ok(self.taken(handler, None, true)),
            // No other zygote exists. On a shortage, idle instances are evicted first.
            (Err(error), None)
                if self.config.zygotes == ZygotePolicy::Paper
                    && !matches!(error, ProviderError::Exhausted { .. }) =>
            {
                Ok(self.taken(handler, None, true))
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Whether the handler may be forked from the new zygote: its lookups are known only now.
    fn suits(&self, handler: &Handler, cached: &CachedZygote) -> bool {
        let profile = self.profile(&mut self.state(), handler);
        !profile.conflicts_with(&cached.key.sees, &cached.lookups)
    }

    /// The best existing zygote, and the creation to wait for instead, if any.
    fn choose(
        self: &Arc<Self>,
        handler: &Handler,
    ) -> (Pick, Option<watch::Receiver<Option<CreationResult>>>) {
        let mut state = self.state();
        let profile = self.profile(&mut state, handler);
        let view = state.view();
        let best = self.best(&view, &profile, luck(state.starts));
        let own = self.own(&state, &profile);
        self.plant(&mut state, &profile);
        let from = best.map(|at| Arc::clone(&view.zygotes[at]));
        let waits = self.config.zygotes == ZygotePolicy::Paper;
        let making = own.and_then(|key| {
            let above = from.clone().filter(|_| waits);
            self.ensure_from(&mut state, &key, above.map_or(Origin::Best, Origin::Ready))
        });
        let mut making = making.filter(|_| waits);
        if from.is_none() && making.is_none() {
            making = self.ensure_from(&mut state, &ZygoteKey::root(profile.domain), Origin::Best);
        }
        drop(state);
        let cold = from.is_none();
        (Pick { zygote: from, cold, exact: false, observe: false }, making)
    }

    /// Records that a call is forked from `cached`.
    fn taken(
        self: &Arc<Self>,
        handler: &Handler,
        cached: Option<Arc<CachedZygote>>,
        cold: bool,
    ) -> Pick {
        let mut state = self.state();
        let known = |state: &mut CacheState| self.profile(state, handler);
        // Not held during `start`, which would copy it.
        drop(known(&mut state));
        state.start(&handler.id, self.config.zygote_half_life);
        let profile = known(&mut state);
        let none = Set::default();
        let modules = cached.as_ref().map_or(&none, |cached| &cached.modules);
        let needs = profile.needed();
        let saved = profile.saved(modules);
        if let Some(cached) = &cached {
            let counted = self.config.zygotes == ZygotePolicy::Paper;
            cached.use_now(state.turn(), saved, counted.then_some(self.config.zygote_window));
        }
        let learns = matches!(self.config.zygotes, ZygotePolicy::Utility | ZygotePolicy::Static);
        let exact = match (&cached, self.config.zygotes) {
            (None, _) => false,
            (Some(_), _) if profile.declared.is_empty() && !learns => true,
            (Some(cached), ZygotePolicy::PerLock) => profile.declared.within(&cached.key.modules),
            (Some(cached), ZygotePolicy::Paper) => cached.key.sees == profile.locked,
            _ => profile.alone + needs - saved < GOOD_ENOUGH_MS,
        };
        let observe =
            learns && !profile.locked.is_empty() && profile.curious(number(cached.as_deref()));
        if !observe {
            // An observed handler reports its imports itself.
            state.missed += (needs - saved).max(0.0);
            state.credit(&handler.id, self.config.zygote_half_life);
        }
        let thinks = state.missed >= MAKING_MS;
        drop(state);
        if self.config.zygotes == ZygotePolicy::Utility && thinks {
            self.request_replan();
        }
        Pick { zygote: cached, cold, exact, observe }
    }

    /// The best zygote that may serve the handler, by the policy.
    pub(super) fn best(&self, view: &View, profile: &Profile, luck: u64) -> Option<usize> {
        let entries = &view.entries;
        match self.config.zygotes {
            ZygotePolicy::None => None,
            ZygotePolicy::Root => select::root(entries, profile.domain),
            ZygotePolicy::PerLock => select::exact(entries, profile),
            ZygotePolicy::Paper => select::sock(entries, profile, luck),
            ZygotePolicy::Utility | ZygotePolicy::Static => select::utility(entries, profile),
        }
    }

    /// The zygote that the policy makes for a handler at its first call.
    pub(super) fn own(&self, state: &CacheState, profile: &Profile) -> Option<ZygoteKey> {
        let modules = match self.config.zygotes {
            ZygotePolicy::PerLock => profile.declared.clone(),
            ZygotePolicy::Paper => profile.outermost.clone(),
            _ => return None,
        };
        let key = ZygoteKey { domain: profile.domain, sees: profile.locked.clone(), modules };
        let of_use = !key.modules.is_empty() && !state.conflicts(profile, &key.sees);
        of_use.then_some(key)
    }
}

/// A pseudo-random number.
fn luck(starts: u64) -> u64 {
    BuildHasherDefault::<DefaultHasher>::new().hash_one(starts)
}
