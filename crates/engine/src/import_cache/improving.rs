//! Making better zygotes, off the path of calls: the shell around [`plan`].

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::task::spawn_blocking;

use super::ImportCache;
use super::book::Book;
use super::kept::{Kept, Key, View};
use super::making::outcome;
use super::plan::{Build, plan};
use super::profile::Profile;
use super::select::Standing;
use super::set::Set;
use super::state::State;
use super::worth::Demand;

/// All that a plan is made from, as it is at one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) view: Arc<View>,
    pub(super) book: Arc<Book>,
    /// The part of starts that are of locks never seen before.
    pub(super) novelty: f64,
    profiles: Vec<(Arc<Profile>, f64)>,
}

impl Snapshot {
    /// Who was started of late, and how often.
    pub(super) fn demands(&self) -> Vec<Demand<'_>> {
        self.profiles.iter().map(|(profile, weight)| Demand { profile, weight: *weight }).collect()
    }
}

impl ImportCache {
    /// Has better zygotes made, unless that is under way.
    pub(super) fn improve(self: &Arc<Self>) {
        if self.improving.swap(true, Ordering::AcqRel) {
            return;
        }
        let cache = Arc::clone(self);
        let work = async move {
            cache.improving.store(false, Ordering::Release);
            cache.improved().await;
        };
        self.errands.spawn_on(work, &self.runtime);
    }

    /// Makes better zygotes until none is worth it; one who does so at a time.
    pub(super) async fn improved(self: &Arc<Self>) {
        // The semaphore is never closed.
        let _alone = self.planners.acquire().await;
        while !self.halt.is_cancelled() {
            let Some(build) = self.planned().await else { return };
            let (key, victims) = build;
            for kept in victims {
                self.state().remove(&kept);
            }
            if let Some(mut making) = self.ensure(&key) {
                // Its failure was told when it happened; the next plan does without it.
                let _ = outcome(&mut making).await;
            }
        }
    }

    async fn planned(self: &Arc<Self>) -> Option<(Key, Vec<Arc<Kept>>)> {
        let snapshot = self.snapshot();
        let standings: HashMap<Key, Standing> = {
            let state = self.state();
            let keys = state.nodes.keys();
            keys.map(|key| (key.clone(), state.standing(&self.config, key))).collect()
        };
        let budget = self.config.zygote_bytes;
        // It takes a millisecond or some: more than calls on this thread should wait.
        let planning = spawn_blocking(move || {
            let refused = |realm, sees: &Set, modules: &Set| {
                let key = Key { realm, sees: sees.clone(), modules: modules.clone() };
                standings.get(&key).is_some_and(|standing| *standing != Standing::Absent)
            };
            let entries = &snapshot.view.entries;
            let demands = snapshot.demands();
            let build = plan(entries, &demands, &snapshot.book, snapshot.novelty, budget, refused)?;
            let Build { realm, sees, modules, evict } = build;
            let victims = evict.iter().map(|at| Arc::clone(&snapshot.view.kept[*at])).collect();
            Some((Key { realm, sees, modules }, victims))
        });
        planning.await.ok().flatten()
    }

    /// What is known now, with what handlers need worked out from the latest costs.
    pub(super) fn snapshot(&self) -> Snapshot {
        let mut state = self.state();
        state.look_again();
        let (view, book, starts) = (state.view(), Arc::clone(&state.book), state.starts);
        let half_life = self.config.zygote_half_life;
        let State { profiles, .. } = &mut *state;
        let weighed = profiles.values_mut().map(|profile| {
            // Costs change whenever a zygote is made.
            Arc::make_mut(profile).expect(&book);
            (Arc::clone(profile), profile.weight(starts, half_life))
        });
        let profiles = weighed.collect();
        Snapshot { view, book, novelty: state.novelty, profiles }
    }
}
