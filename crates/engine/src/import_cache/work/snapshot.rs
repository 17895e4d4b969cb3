//! Taking a snapshot for decisions.

use std::sync::Arc;

use tokio::time::Instant;

use super::ImportCache;
use crate::import_cache::model::profile::Profile;
use crate::import_cache::policy::evict::per_byte;
use crate::import_cache::state::snapshot::Snapshot;
use crate::warm_pool::Offer;

/// Longest recent interval, in seconds, where starts are rare.
const MAX_WINDOW_SECONDS: f64 = 86_400.0;

impl ImportCache {
    /// Recomputes the needs of handlers whose packages changed in the catalog. Without the lock:
    /// there may be thousands, and calls need it.
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

    /// The current state, with needs computed from the latest costs.
    pub(super) fn snapshot(&self) -> Snapshot {
        self.work_out();
        let mut state = self.state();
        state.look_again();
        let (view, catalog, starts) = (state.view(), Arc::clone(&state.catalog), state.starts);
        let (half_life, idle) = (self.config.zygote_half_life, self.config.zygote_idle);
        let rate = state.rate.per_second(Instant::now());
        // Handlers not started for so long have no demand: zygotes dropped for their age would be
        // made again.
        let recent = state.profiles.values().filter(|profile| profile.started_within(idle));
        let weighed =
            recent.map(|profile| (Arc::clone(profile), profile.weight(starts, half_life)));
        let profiles: Vec<(Arc<Profile>, f64)> = weighed.collect();
        let unseen_ratio = state.unseen_ratio;
        drop(state);
        let starts: f64 = profiles.iter().map(|(_, weight)| weight).sum();
        // The recent interval is counted in starts for zygotes; this is its length in seconds for
        // idle instances.
        let idle =
            self.offers((starts.max(1.0) / rate.max(f64::MIN_POSITIVE)).min(MAX_WINDOW_SECONDS));
        Snapshot { view, catalog, unseen_ratio, idle, profiles }
    }

    /// The idle instances with what each saves in that many seconds, least per byte first.
    pub(super) fn offers(&self, seconds: f64) -> Vec<Offer> {
        let mut offers =
            self.idle.as_ref().map_or_else(Vec::new, |idle| idle.offers(Instant::now()));
        offers.iter_mut().for_each(|offer| offer.saves *= seconds);
        let density = |offer: &Offer| per_byte(offer.saves, offer.bytes);
        // Of equals, the older first.
        offers.sort_by(|one, other| {
            density(one).total_cmp(&density(other)).then(one.ticket.cmp(&other.ticket))
        });
        offers
    }
}
