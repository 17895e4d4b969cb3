//! What calls show of their handlers' imports: noted while they are under way, taken in once they were answered.

use std::sync::Arc;

use super::{ImportCache, number};
use crate::handler::Handler;
use crate::import_cache::model::import_time::ImportTime;
use crate::import_cache::model::set::Set;
use crate::import_cache::state::observations::{MAX_MODULES, Observation};
use crate::import_cache::state::pick::Pick;

impl ImportCache {
    /// A handler that went on from there has loaded `modules` of its packages, which took it as long as `took` says. Is
    /// taken in, and acted upon, when no call is under way.
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
        // Of a start that was not to be observed it is known already what it brings in.
        let credits = pick.observe && matches!(took, ImportTime::Load(_));
        let observation = Observation { handler, zygote, had, modules, took, credits };
        if self.state().observations.push(observation) {
            self.request_replan();
        }
    }

    /// Takes in what calls have shown since.
    pub(super) fn apply_observations(&self) {
        // One at a time: calls want the lock as well.
        loop {
            let mut state = self.state();
            let Some(observation) = state.observations.pop() else { return };
            state.apply(&observation, self.config.zygote_half_life);
        }
    }
}
