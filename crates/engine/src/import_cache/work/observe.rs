//! Observing the imports of handlers: queued during calls, applied after them.

use std::sync::Arc;

use super::{ImportCache, number};
use crate::handler::Handler;
use crate::import_cache::model::import_time::ImportTime;
use crate::import_cache::model::set::Set;
use crate::import_cache::state::observations::{MAX_MODULES, Observation};
use crate::import_cache::state::pick::Pick;

impl ImportCache {
    /// Records that a handler forked from `pick` loaded `modules` of its packages in the time
    /// `took`. Applied when no call is under way.
    pub fn learn(
        self: &Arc<Self>,
        handler: &Handler,
        pick: &Pick,
        mut modules: Vec<String>,
        took: ImportTime,
    ) {
        modules.truncate(MAX_MODULES);
        let had = pick.zygote.as_ref().map_or_else(Set::default, |cached| cached.modules.clone());
        let (handler, zygote) = (handler.id.clone(), number(pick.zygote.as_deref()));
        // A start that was not to be observed was credited when it was picked.
        let credits = pick.observe && matches!(took, ImportTime::Load(_));
        let observation = Observation { handler, zygote, had, modules, took, credits };
        if self.state().observations.push(observation) {
            self.request_replan();
        }
    }

    /// Applies all queued observations.
    pub(super) fn apply_observations(&self) {
        // One at a time: calls need the lock as well.
        loop {
            let mut state = self.state();
            let Some(observation) = state.observations.pop() else { return };
            state.apply(&observation, self.config.zygote_half_life);
        }
    }
}
