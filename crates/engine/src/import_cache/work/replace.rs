//! Keeping zygotes young: each that is too old has a successor made, off the path of calls.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::ImportCache;
use super::create::{Derived, is_of_the_set};
use crate::import_cache::state::zygote::{Kept, View};

/// An old zygote is given up when so many successors could not be made of its set, one after the other: it is to grow no
/// older.
const MAX_FAILED_SUCCESSORS: u32 = 3;

impl ImportCache {
    /// The zygote to replace next. One whose successor fails holds up no other.
    pub(super) fn next_outlived<'a>(&self, view: &'a View) -> Option<&'a Arc<Kept>> {
        let due = view.kept.iter().filter(|kept| self.outlived(kept) && !kept.setback().holds());
        due.min_by_key(|kept| kept.setback().failures())
    }

    pub(super) fn outlived(&self, kept: &Kept) -> bool {
        kept.born.elapsed() > self.config.zygote_age
            || kept.forks.load(Ordering::Relaxed) > self.config.zygote_forks
    }

    /// Makes a successor from scratch, off the path of calls, and puts it in the place of the old one.
    pub(super) fn replace(self: &Arc<Self>, old: Arc<Kept>) {
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
        self.background.spawn_on(work, &self.runtime);
    }

    async fn succeed(self: &Arc<Self>, old: &Arc<Kept>) {
        match self.make(&old.key, None).await {
            Ok(Derived { zygote, parent, claim, reserved }) => {
                let there = self.state().holds(old);
                if there {
                    let new = self.admit(old.key.clone(), zygote, parent);
                    // It is new, and no more wanted than the old one was.
                    new.iter().for_each(|new| new.touch(old.touched()));
                }
                drop((claim, reserved));
            }
            Err(error) => {
                tracing::warn!(zygote = %old.zygote.id(), %error, "an old zygote could not be replaced");
                let failures = old.set_back(self.config.zygote_retry);
                // Calls need a root, and what the host is short of says nothing of the set.
                if failures >= MAX_FAILED_SUCCESSORS && !old.key.is_root() && is_of_the_set(&error)
                {
                    self.leave_without_heir(old, error.to_string());
                }
            }
        }
    }

    fn leave_without_heir(&self, old: &Arc<Kept>, why: String) {
        let mut state = self.state();
        if state.remove(old) {
            state.set_back(&old.key, self.config.zygote_retry);
            state.refuse(old.key.clone(), why, false);
        }
    }
}
