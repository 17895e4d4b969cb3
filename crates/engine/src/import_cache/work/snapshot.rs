//! Looking at all that decisions are made from.

use std::sync::Arc;

use tokio::time::Instant;

use super::ImportCache;
use crate::import_cache::model::profile::Profile;
use crate::import_cache::policy::evict::per_byte;
use crate::import_cache::state::snapshot::Snapshot;
use crate::warm_pool::Offer;

/// Seconds that count as "of late" where hardly anything is started.
const MAX_WINDOW_SECONDS: f64 = 86_400.0;

impl ImportCache {
    /// Works out anew what handlers need of whose packages something else is known now. Without the lock: there may be
    /// thousands, and calls want it.
    fn work_out(&self) {
        let (catalog, stale) = {
            let state = self.state();
            (Arc::clone(&state.catalog), state.stale(self.config.zygote_idle))
        };
        for (handler, profile) in stale {
            let needs = profile.work_out(&catalog);
            drop(profile);
            if let Some(profile) = self.state().profiles.get_mut(&handler) {
                Arc::make_mut(profile).adopt(needs);
            }
        }
    }

    /// What is known now, with what handlers need worked out from the latest costs.
    pub(super) fn snapshot(&self) -> Snapshot {
        self.work_out();
        let mut state = self.state();
        state.look_again();
        let (view, catalog, starts) = (state.view(), Arc::clone(&state.catalog), state.starts);
        let (half_life, idle) = (self.config.zygote_half_life, self.config.zygote_idle);
        let rate = state.rate.per_second(Instant::now());
        // Whoever was not started for so long demands nothing: what was given up with age would be made again.
        let recent = state.profiles.values().filter(|profile| profile.started_within(idle));
        let weighed =
            recent.map(|profile| (Arc::clone(profile), profile.weight(starts, half_life)));
        let profiles: Vec<(Arc<Profile>, f64)> = weighed.collect();
        let unseen_ratio = state.unseen_ratio;
        drop(state);
        let starts: f64 = profiles.iter().map(|(_, weight)| weight).sum();
        // "Of late" is counted in starts for zygotes: as many seconds count for idle instances.
        let idle =
            self.offers((starts.max(1.0) / rate.max(f64::MIN_POSITIVE)).min(MAX_WINDOW_SECONDS));
        Snapshot { view, catalog, unseen_ratio, idle, profiles }
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
