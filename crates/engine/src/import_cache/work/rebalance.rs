//! Keeping zygotes and idle instances within the memory budget.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sandbox::Zygote;

use super::ImportCache;
use crate::config::ZygotePolicy;
use crate::import_cache::model::entry::is_last_root;
use crate::import_cache::policy::benefit::Benefit;
use crate::import_cache::policy::evict::{self, Capacity, Victims};
use crate::import_cache::state::snapshot::Snapshot;
use crate::import_cache::state::zygote::View;
use crate::warm_pool::Offer;

/// Rounds of measuring and evicting, at most.
const MAX_ROUNDS: usize = 8;

impl ImportCache {
    /// Drops zygotes that have died, are unused or no longer fit, and starts replacing one that is
    /// outdated. Not on a thread that serves calls.
    pub fn tidy(self: &Arc<Self>) {
        let view = self.state().view();
        for cached in &view.zygotes {
            if !cached.zygote.alive() {
                self.lose(cached, "its process ended");
            }
        }
        self.forget_unused(&view);
        if let Some(old) = self.next_outdated(&view) {
            self.replace(Arc::clone(old));
        }
        // As long as the view holds evicted zygotes, they are not gone.
        drop(view);
        self.fit();
    }

    /// Drops zygotes unused for `zygote_idle`, children before parents.
    fn forget_unused(&self, view: &View) {
        let entries = &view.entries;
        for (at, cached) in view.zygotes.iter().enumerate() {
            let used = entries.iter().any(|entry| entry.parent == Some(at));
            let idle = cached.touched().elapsed() > self.config.zygote_idle;
            if idle && !used && !is_last_root(entries, at) {
                self.state().remove(cached);
            }
        }
    }

    /// Runs [`Self::fit`] beside the threads that serve calls: it takes milliseconds in a large
    /// cache.
    pub(crate) async fn fit_aside(self: &Arc<Self>) {
        let cache = Arc::clone(self);
        // Fails only when the runtime ends.
        let _ = self.background.spawn_blocking(move || cache.fit()).await;
    }

    /// Measures all zygotes, and evicts until the rest fits.
    fn fit(&self) {
        self.fit_zygotes();
        // An evicted zygote may leave its pages behind: then more has to go.
        for _ in 0..MAX_ROUNDS {
            let done = match self.config.zygotes {
                ZygotePolicy::Utility => self.fits_together(),
                _ => self.fits_apart(),
            };
            if done {
                break;
            }
        }
    }

    /// Bytes of a zygote; an assumption where the host cannot tell.
    fn weigh(&self, zygote: &dyn Zygote) -> u64 {
        zygote.memory().unwrap_or_else(|_| self.unweighed())
    }

    /// Assumed bytes of a zygote that cannot be measured: eight of them fit.
    pub(super) fn unweighed(&self) -> u64 {
        self.room() / 8
    }

    /// Bytes that zygotes may take. Only `utility` can weigh them against instances; with other
    /// policies each gets half.
    pub(super) fn room(&self) -> u64 {
        let share = match self.config.zygotes {
            ZygotePolicy::Utility => self.budget.now(),
            ZygotePolicy::None => 0,
            _ => self.budget.now() / 2,
        };
        share.min(self.config.zygote_bytes)
    }

    /// Maximum number of zygotes: with what each keeps ready they leave half of all sandboxes to
    /// instances.
    pub(super) fn max_zygotes(&self) -> usize {
        (self.config.sandboxes / 2 / self.config.zygote_sandboxes.max(1)).max(1)
    }

    /// Bytes that zygotes and idle instances may take: all but what busy instances alone keep from
    /// being freed.
    pub(super) fn left_to(&self, snapshot: &Snapshot) -> u64 {
        let zygotes = snapshot.view.entries.iter().map(|entry| entry.bytes);
        let shared: u64 = zygotes.chain(snapshot.idle.iter().map(|offer| offer.bytes)).sum();
        let pinned = self.budget.used().saturating_sub(shared);
        self.budget.target().saturating_sub(pinned)
    }

    /// Bytes that dropped zygotes left behind.
    pub(crate) fn left(&self) -> u64 {
        self.ledger.left()
    }

    /// All zygotes, each measured again.
    fn measure(&self) -> Arc<View> {
        let view = self.state().view();
        for cached in &view.zygotes {
            cached.bytes.store(self.weigh(&*cached.zygote), Ordering::Relaxed);
        }
        let own: u64 = view.zygotes.iter().map(|cached| cached.bytes.load(Ordering::Relaxed)).sum();
        self.budget.note_zygotes(own + self.left());
        let mut state = self.state();
        state.look_again();
        state.view()
    }

    /// Evicts zygotes beyond their own limit, in the policy's order.
    fn fit_zygotes(&self) {
        let view = self.measure();
        let room = Capacity { bytes: self.room(), zygotes: self.max_zygotes() };
        let used: u64 = view.entries.iter().map(|entry| entry.bytes).sum();
        if used <= room.bytes && view.entries.len() <= room.zygotes {
            return;
        }
        let snapshot = self.snapshot();
        let view = &snapshot.view;
        let zygotes = match self.config.zygotes {
            ZygotePolicy::Paper => {
                let (disk, uses) = (self.disk(view), self.uses(view));
                evict::sock(&view.entries, room, &disk, &uses)
            }
            ZygotePolicy::Utility => {
                let demands = snapshot.demands();
                let benefit = Benefit::new(&view.entries, &demands, snapshot.unseen_ratio);
                evict::utility(&view.entries, &[], room, &benefit).zygotes
            }
            _ => evict::least_recent(&view.entries, room),
        };
        self.give_up(&snapshot, &Victims { zygotes, idle: 0 });
    }

    /// Evicts what saves least, zygote or instance, while the total is too large. Whether it is
    /// done.
    fn fits_together(&self) -> bool {
        self.measure();
        if self.budget.used() <= self.budget.now() {
            return true;
        }
        let snapshot = self.snapshot();
        let (entries, demands) = (&snapshot.view.entries, snapshot.demands());
        let benefit = Benefit::new(entries, &demands, snapshot.unseen_ratio);
        let room = Capacity { bytes: self.left_to(&snapshot), zygotes: self.max_zygotes() };
        let victims = evict::utility(entries, &snapshot.idle, room, &benefit);
        self.give_up(&snapshot, &victims);
        victims == Victims::default()
    }

    /// Evicts the least recently used idle instances beyond their half. Whether it is done.
    fn fits_apart(&self) -> bool {
        let mut offers = self.offers(1.0);
        offers.sort_by_key(|offer| offer.ticket);
        let mut used: u64 = offers.iter().map(|offer| offer.bytes).sum();
        let room = match self.config.zygotes {
            ZygotePolicy::None => self.budget.now(),
            _ => self.budget.now() / 2,
        };
        let fits = |offer: &Offer| {
            let fits = used <= room;
            used -= if fits { 0 } else { offer.bytes };
            fits
        };
        let victims = offers.iter().position(fits).unwrap_or(offers.len());
        if let Some(idle) = &self.idle {
            idle.give_up(&mut offers[..victims].iter().map(|offer| offer.ticket));
        }
        victims == 0
    }

    pub(super) fn give_up(&self, snapshot: &Snapshot, victims: &Victims) {
        for at in &victims.zygotes {
            self.state().give_up(&snapshot.view.zygotes[*at]);
        }
        if let Some(idle) = &self.idle {
            idle.give_up(&mut snapshot.idle[..victims.idle].iter().map(|offer| offer.ticket));
        }
    }

    /// By place, the bytes on disk of the packages that an entry includes and its parent does not.
    fn disk(&self, view: &View) -> Vec<f64> {
        let state = self.state();
        let own = view.entries.iter().map(|entry| {
            let parent = entry.parent.map(|at| &view.entries[at].sees);
            let added =
                entry.sees.iter().filter(|number| parent.is_none_or(|has| !has.contains(*number)));
            let bytes = added.map(|number| {
                let store = self.store.as_ref();
                store.map_or(1, |store| store.disk_bytes(state.catalog.distribution(number)))
            });
            #[expect(clippy::cast_precision_loss, reason = "bytes in a ratio")]
            let bytes = bytes.sum::<u64>() as f64;
            bytes
        });
        own.collect()
    }

    fn uses(&self, view: &View) -> Vec<f64> {
        view.zygotes.iter().map(|cached| cached.uses_since(self.config.zygote_window)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use function::VersionId;
    use sandbox::fake::{FakeProvider, Operation, Recorded};
    use tokio::time::sleep;

    use super::*;
    use crate::config::EngineConfig;
    use crate::handler::Handler;
    use crate::handler::tests::handler;
    use crate::import_cache::work::replan::tests::{cache, cache_of, layer_of, start};

    fn record(provider: &FakeProvider, costs: &[(&str, f64)]) {
        let cost = |milliseconds| Recorded { milliseconds, ..Recorded::default() };
        let costs = costs.iter().map(|(module, took)| ((*module).to_owned(), cost(*took)));
        provider.record(costs.collect::<HashMap<_, _>>());
    }

    #[tokio::test(start_paused = true)]
    async fn a_zygote_whose_successor_hangs_keeps_no_other_from_being_replaced_and_is_given_up() {
        let provider = FakeProvider::default();
        record(&provider, &[("a", 10.0), ("b", 10.0)]);
        let cache = cache(&provider);
        let hangs = handler();
        let other = Handler {
            id: VersionId(Arc::from("other")),
            packages: Some(layer_of("packages/q")),
            imports: vec!["b".to_owned()],
            ..handler()
        };
        cache.prepare(&hangs, || ()).await;
        cache.prepare(&other, || ()).await;
        let age = cache.config.zygote_age;
        sleep(age + Duration::from_secs(1)).await;
        record(&provider, &[("a", 600_000.0), ("b", 10.0)]);
        let own = cache.pick(&hangs).await.unwrap().zygote().unwrap();
        cache.pick(&other).await.unwrap();
        let old = || {
            cache.state().view().zygotes.iter().filter(|cached| cache.is_outdated(cached)).count()
        };
        assert_eq!(old(), 3);
        // During the first try, no other one is replaced.
        for _ in 0..40 {
            cache.tidy();
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(old(), 1, "the root and the other one have successors");
        assert_eq!(cache.pick(&hangs).await.unwrap().zygote(), Some(own), "it serves on");
        for _ in 0..600 {
            cache.tidy();
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(old(), 0);
        let (zygotes, refused) = cache.status();
        assert_eq!((zygotes.len(), refused.len()), (2, 1));
        let root = cache.pick(&hangs).await.unwrap().zygote();
        assert_eq!(root, Some(zygotes[0].id), "it is served from the root");
    }

    #[tokio::test(start_paused = true)]
    async fn uses_are_remembered_only_where_the_policy_counts_them_and_as_long_as_it_does() {
        for zygotes in [ZygotePolicy::Utility, ZygotePolicy::Paper] {
            let config = EngineConfig { zygotes, ..EngineConfig::default() };
            let window = config.zygote_window;
            let cache = cache_of(&FakeProvider::default(), config);
            for _ in 0..10 {
                cache.pick(&handler()).await.unwrap();
            }
            sleep(window + Duration::from_secs(1)).await;
            cache.pick(&handler()).await.unwrap();
            let view = cache.state().view();
            let remembered = view.zygotes.iter().map(|cached| cached.recent.lock().unwrap().len());
            let counted = usize::from(zygotes == ZygotePolicy::Paper);
            assert_eq!(remembered.sum::<usize>(), counted, "{zygotes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_proved_heavier_than_its_worth_is_not_made_again_before_it_is_worth_that() {
        let mebibytes = |count: u64| count << 20;
        let (provider, room) = (FakeProvider::default(), mebibytes(136));
        // The second is expected to weigh some 20 MiB beside the 76 of the first and 8 of the root,
        // and weighs 108.
        let cost = |milliseconds, bytes| Recorded { milliseconds, bytes, ..Recorded::default() };
        let costs = [("a", cost(400.0, mebibytes(60))), ("b", cost(100.0, mebibytes(100)))];
        provider.record(costs.map(|(module, cost)| (module.to_owned(), cost)).into());
        let config = EngineConfig { zygote_bytes: room, ..EngineConfig::default() };
        let cache = cache_of(&provider, config);
        cache.state().account.credit(1e6, 500.0);
        let other = Handler {
            id: VersionId(Arc::from("other")),
            packages: Some(layer_of("packages/q")),
            imports: vec!["b".to_owned()],
            ..handler()
        };
        let made = || provider.begun(Operation::Derive);
        for (handler, module, milliseconds, starts) in
            [(&handler(), "a", 400.0, 10), (&other, "b", 100.0, 5)]
        {
            for _ in 0..starts {
                start(&cache, handler, module, milliseconds).await;
                sleep(Duration::from_secs(1)).await;
            }
        }
        sleep(Duration::from_secs(60)).await;
        assert_eq!(made(), 2);
        for _ in 0..60 {
            start(&cache, &other, "b", 100.0).await;
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!((made(), provider.census().zygotes), (3, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_given_up_for_others_is_not_made_again_before_anything_was_started() {
        let (provider, handler) = (FakeProvider::default(), handler());
        let cost = Recorded { milliseconds: 100.0, ..Recorded::default() };
        provider.record(HashMap::from([("a".to_owned(), cost)]));
        let cache = cache(&provider);
        cache.state().account.credit(1e6, 500.0);
        for _ in 0..3 {
            start(&cache, &handler, "a", 100.0).await;
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(provider.begun(Operation::Derive), 1);
        let snapshot = cache.snapshot();
        let place = snapshot.view.entries.iter().position(|entry| !entry.root());
        let victims = Victims { zygotes: place.into_iter().collect(), idle: 0 };
        cache.give_up(&snapshot, &victims);
        drop(snapshot);
        cache.state().missed = 100.0;
        cache.request_replan();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(provider.begun(Operation::Derive), 1);
        start(&cache, &handler, "a", 100.0).await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(provider.begun(Operation::Derive), 2);
    }
}
