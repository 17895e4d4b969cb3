//! Replacing outdated zygotes by successors made from scratch, off the path of calls.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::ImportCache;
use super::create::{NewZygote, is_of_the_set};
use crate::import_cache::state::zygote::{CachedZygote, View};

/// Failures to make a successor after which an outdated zygote is dropped: it must not grow older.
const MAX_FAILED_SUCCESSORS: u32 = 3;

impl ImportCache {
    /// The zygote to replace next. A failing successor delays no other one.
    pub(super) fn next_outdated<'a>(&self, view: &'a View) -> Option<&'a Arc<CachedZygote>> {
        let due = view
            .zygotes
            .iter()
            .filter(|cached| self.is_outdated(cached) && !cached.backoff().is_active());
        due.min_by_key(|cached| cached.backoff().failures())
    }

    pub(super) fn is_outdated(&self, cached: &CachedZygote) -> bool {
        cached.born.elapsed() > self.config.zygote_age
            || cached.forks.load(Ordering::Relaxed) > self.config.zygote_forks
    }

    /// Makes a successor from scratch and puts it in the place of the old zygote.
    pub(super) fn replace(self: &Arc<Self>, old: Arc<CachedZygote>) {
        if self.replacing.swap(true, Ordering::AcqRel) {
            return;
        }
        let cache = Arc::clone(self);
        let work = async move {
            tokio::select! {
                () = cache.halt.cancelled() => {}
                () = cache.make_successor(&old) => {}
            }
            cache.replacing.store(false, Ordering::Release);
        };
        self.background.spawn_on(work, &self.runtime);
    }

    async fn make_successor(self: &Arc<Self>, old: &Arc<CachedZygote>) {
        match self.make(&old.key, None).await {
            Ok(NewZygote { zygote, parent, claim, reserved }) => {
                let there = self.state().holds(old);
                if there {
                    let new = self.admit(old.key.clone(), zygote, parent);
                    // The new one is no more in demand than the old one was.
                    new.iter().for_each(|new| new.touch(old.touched()));
                }
                drop((claim, reserved));
            }
            Err(error) => {
                tracing::warn!(zygote = %old.zygote.id(), %error, "an old zygote could not be replaced");
                let failures = old.record_failure(self.config.zygote_retry);
                // Calls need a root, and a shortage on the host says nothing about the set.
                if failures >= MAX_FAILED_SUCCESSORS && !old.key.is_root() && is_of_the_set(&error)
                {
                    self.remove_without_successor(old, error.to_string());
                }
            }
        }
    }

    fn remove_without_successor(&self, old: &Arc<CachedZygote>, why: String) {
        let mut state = self.state();
        if state.remove(old) {
            state.record_failure(&old.key, self.config.zygote_retry);
            state.refuse(old.key.clone(), why, false);
        }
    }
}
