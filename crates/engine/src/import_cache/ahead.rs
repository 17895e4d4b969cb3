//! Making zygotes ahead: those of a given tree, and those that deployed functions will be forked from.

use std::sync::Arc;

use super::ImportCache;
use super::kept::Key;
use super::making::outcome;
use super::profile::Profile;
use super::select::Standing;
use super::state::State;
use crate::call::Handler;
use crate::config::ZygotePolicy;

impl ImportCache {
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
            self.take_in();
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

    /// Starts the zygotes of the given tree that may serve the handler and are not there, as far as there is room.
    pub(super) fn plant(self: &Arc<Self>, state: &mut State, profile: &Profile) {
        for (sees, modules) in &profile.seeds {
            let key = Key { realm: profile.realm, sees: sees.clone(), modules: modules.clone() };
            let view = state.view();
            let used: u64 = view.entries.iter().map(|entry| entry.bytes).sum();
            let room = used < self.room() && view.entries.len() < self.most_zygotes();
            if state.standing(&self.config, &key) == Standing::Absent && room {
                self.start(state, &key, None);
            }
        }
    }
}
