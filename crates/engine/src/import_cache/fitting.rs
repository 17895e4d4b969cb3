//! Keeping zygotes within their budget, and young.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::sleep;

use super::ImportCache;
use super::evict;
use super::kept::{Kept, View};
use super::worth::Worth;
use crate::config::ZygotePolicy;

impl ImportCache {
    /// Gives up zygotes that have died and those that no longer fit, and has those that are too old replaced.
    pub fn tidy(self: &Arc<Self>) {
        let view = self.state().view();
        for kept in &view.kept {
            if !kept.zygote.alive() {
                self.lose(kept, "its process ended");
            }
        }
        self.fit();
        let old = view.kept.iter().find(|kept| self.outlived(kept));
        if let Some(kept) = old {
            self.replace(Arc::clone(kept));
        }
    }

    pub(super) fn outlived(&self, kept: &Kept) -> bool {
        kept.born.elapsed() > self.config.zygote_age
            || kept.forks.load(Ordering::Relaxed) > self.config.zygote_forks
    }

    /// Makes a successor from scratch, off the path of calls, and puts it in the place of the old one.
    fn replace(self: &Arc<Self>, old: Arc<Kept>) {
        if self.replacing.swap(true, Ordering::AcqRel) {
            return;
        }
        let cache = Arc::clone(self);
        let work = async move {
            tokio::select! {
                () = cache.halt.cancelled() => {}
                () = cache.succeed(&old) => {}
            }
            cache.replacing.store(false, Ordering::Release);
        };
        self.errands.spawn_on(work, &self.runtime);
    }

    async fn succeed(self: &Arc<Self>, old: &Arc<Kept>) {
        match self.make(&old.key, None).await {
            Ok((zygote, parent)) => {
                let there = self.state().holds(old);
                if there {
                    self.admit(old.key.clone(), zygote, parent);
                }
            }
            Err(error) => {
                tracing::warn!(zygote = %old.zygote.id(), %error, "an old zygote could not be replaced");
                sleep(self.config.zygote_retry).await;
            }
        }
    }

    /// Measures all zygotes, and gives up those that no longer fit.
    pub(super) fn fit(&self) {
        let view = self.state().view();
        for kept in &view.kept {
            // Where the host cannot tell, eight of them fit.
            let bytes = kept.zygote.memory().unwrap_or(self.config.zygote_bytes / 8);
            kept.bytes.store(bytes, Ordering::Relaxed);
        }
        self.state().look_again();
        let used: u64 = view.kept.iter().map(|kept| kept.bytes.load(Ordering::Relaxed)).sum();
        if used <= self.config.zygote_bytes {
            return;
        }
        let snapshot = self.snapshot();
        let (view, budget) = (&snapshot.view, self.config.zygote_bytes);
        let victims = match self.config.zygotes {
            ZygotePolicy::Paper => {
                let (disk, uses) = (self.disk(view), self.uses(view));
                evict::sock(&view.entries, budget, &disk, &uses)
            }
            ZygotePolicy::Utility => {
                let demands = snapshot.demands();
                evict::utility(
                    &view.entries,
                    budget,
                    &Worth::new(&view.entries, &demands, snapshot.novelty),
                )
            }
            _ => evict::least_recent(&view.entries, budget),
        };
        for at in victims {
            self.state().remove(&view.kept[at]);
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
                store.map_or(1, |store| store.disk_bytes(state.book.distribution(number)))
            });
            #[expect(clippy::cast_precision_loss, reason = "bytes in a ratio")]
            let bytes = bytes.sum::<u64>() as f64;
            bytes
        });
        own.collect()
    }

    fn uses(&self, view: &View) -> Vec<f64> {
        view.kept.iter().map(|kept| kept.uses_since(self.config.zygote_window)).collect()
    }
}
