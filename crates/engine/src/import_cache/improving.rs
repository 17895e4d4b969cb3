//! Making better zygotes, off the path of calls: the shell around [`plan`].

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::ImportCache;
use super::book::Book;
use super::evict::{Room, Victims, per_byte};
use super::kept::{Key, View};
use super::making::outcome;
use super::plan::{Build, plan};
use super::profile::Profile;
use super::select::Standing;
use super::set::Set;
use super::state::State;
use super::worth::Demand;
use crate::handler_cache::Offer;

/// Seconds that count as "of late" where hardly anything is started.
const LONGEST: f64 = 86_400.0;

/// All that a plan is made from, as it is at one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) view: Arc<View>,
    pub(super) book: Arc<Book>,
    /// The part of starts that are of locks never seen before.
    pub(super) novelty: f64,
    /// Idle instances, those first that save least for each byte: milliseconds of late.
    pub(super) idle: Vec<Offer>,
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
            let (key, snapshot, victims) = build;
            self.give_up(&snapshot, &victims);
            if let Some(mut making) = self.ensure(&key) {
                // Its failure was told when it happened; the next plan does without it, and without one that seems to hang.
                let _ = timeout(self.patience(&key), outcome(&mut making)).await;
            }
        }
    }

    async fn planned(self: &Arc<Self>) -> Option<(Key, Snapshot, Victims)> {
        let snapshot = self.snapshot();
        let standings: HashMap<Key, Standing> = {
            let state = self.state();
            let keys = state.nodes.keys();
            keys.map(|key| (key.clone(), state.standing(&self.config, key))).collect()
        };
        let (left, cap, zygotes) = (self.left_to(&snapshot), self.room(), self.most_zygotes());
        // It takes a millisecond or some: more than calls on this thread should wait.
        let planning = spawn_blocking(move || {
            let refused = |realm, sees: &Set, modules: &Set| {
                let key = Key { realm, sees: sees.clone(), modules: modules.clone() };
                standings.get(&key).is_some_and(|standing| *standing != Standing::Absent)
            };
            let entries = &snapshot.view.entries;
            let demands = snapshot.demands();
            // Where zygotes have a cap of their own, instances cannot make room for them.
            let (idle, bytes) =
                if cap < left { (&[][..], cap) } else { (&snapshot.idle[..], left) };
            let room = Room { bytes, zygotes };
            let (book, novelty) = (&snapshot.book, snapshot.novelty);
            let build = plan(entries, idle, &demands, book, novelty, room, refused)?;
            let Build { realm, sees, modules, evict } = build;
            drop(demands);
            Some((Key { realm, sees, modules }, snapshot, evict))
        });
        planning.await.ok().flatten()
    }

    /// What is known now, with what handlers need worked out from the latest costs.
    pub(super) fn snapshot(&self) -> Snapshot {
        let mut state = self.state();
        state.look_again();
        let (view, book, starts) = (state.view(), Arc::clone(&state.book), state.starts);
        let (half_life, idle) = (self.config.zygote_half_life, self.config.zygote_idle);
        let rate = state.rate.per_second(Instant::now());
        let State { profiles, .. } = &mut *state;
        // Whoever was not started for so long demands nothing: what was given up with age would be made again.
        let recent = profiles.values_mut().filter(|profile| profile.started_within(idle));
        let weighed = recent.map(|profile| {
            // Costs change whenever a zygote is made.
            Arc::make_mut(profile).expect(&book);
            (Arc::clone(profile), profile.weight(starts, half_life))
        });
        let profiles: Vec<(Arc<Profile>, f64)> = weighed.collect();
        let novelty = state.novelty;
        drop(state);
        let starts: f64 = profiles.iter().map(|(_, weight)| weight).sum();
        // "Of late" is counted in starts for zygotes: as many seconds count for idle instances.
        let idle = self.offers((starts.max(1.0) / rate.max(f64::MIN_POSITIVE)).min(LONGEST));
        Snapshot { view, book, novelty, idle, profiles }
    }

    /// The idle instances, with what each saves in that many seconds, the least for each byte first.
    pub(super) fn offers(&self, seconds: f64) -> Vec<Offer> {
        let mut offers =
            self.idle.as_ref().map_or_else(Vec::new, |idle| idle.offers(Instant::now()));
        offers.iter_mut().for_each(|offer| offer.saves *= seconds);
        let density = |offer: &Offer| per_byte(offer.saves, offer.bytes);
        // The older first of equals.
        offers.sort_by(|one, other| {
            density(one).total_cmp(&density(other)).then(one.ticket.cmp(&other.ticket))
        });
        offers
    }
}
