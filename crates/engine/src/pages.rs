//! Memory that a zygote shares with its descendants, and that outlives the zygote with them.
//!
//! The kernel charges a page to the cgroup that touched it first. A dropped zygote leaves its pages
//! to its forks, charged to a cgroup that is gone: no sandbox's own figure shows them (seen on Linux
//! 6.18, cgroups version 1 and 2: of 256 MiB, all stay until the last child ends).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The pages of one zygote. Held by the zygote, by each instance forked from it, and by the pages
/// of each zygote derived from it.
#[derive(Debug)]
pub(crate) struct Pages {
    /// As measured when its imports were done: what those forked from it find there.
    bytes: u64,
    left: AtomicBool,
    above: Option<Arc<Pages>>,
}

impl Pages {
    pub(crate) fn new(bytes: u64, above: Option<&Arc<Self>>) -> Arc<Self> {
        Arc::new(Self { bytes, left: AtomicBool::new(false), above: above.cloned() })
    }

    /// Its zygote is gone. Before the zygote itself lets go of them.
    pub(crate) fn leave(&self) {
        self.left.store(true, Ordering::Relaxed);
    }

    /// What its zygote, while it is there, keeps from being freed of those above it.
    pub(crate) fn inherited(&self) -> u64 {
        self.above.as_ref().map_or(0, share)
    }

    fn is_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }
}

/// Bytes that one holder of `pages` keeps from being freed: an equal share of what each zygote in
/// its line left behind.
pub(crate) fn share(pages: &Arc<Pages>) -> u64 {
    let (mut bytes, mut part) = (0, 1);
    let mut at = Some(pages);
    while let Some(pages) = at {
        part *= Arc::strong_count(pages).max(1) as u64;
        if pages.is_left() {
            bytes += pages.bytes / part;
        } else {
            // Its zygote holds what is above it, and counts it.
            break;
        }
        at = pages.above.as_ref();
    }
    bytes
}

/// All pages that are there.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Vec<Weak<Pages>>>);

impl Ledger {
    pub(crate) fn enter(&self, pages: &Arc<Pages>) {
        self.all().push(Arc::downgrade(pages));
    }

    /// Bytes of zygotes that are gone, kept from being freed by what came from them, busy instances
    /// included.
    pub(crate) fn left(&self) -> u64 {
        let mut all = self.all();
        all.retain(|pages| pages.strong_count() > 0);
        let there = all.iter().filter_map(Weak::upgrade);
        there.filter(|pages| pages.is_left()).map(|pages| pages.bytes).sum()
    }

    fn all(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Pages>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_zygote_leaves_is_counted_until_the_last_that_came_from_it_is_gone() {
        let ledger = Ledger::default();
        let enter = |pages: Arc<Pages>| {
            ledger.enter(&pages);
            pages
        };
        let root = enter(Pages::new(10, None));
        let numpy = enter(Pages::new(60, Some(&root)));
        let [first, second] = [Arc::clone(&numpy), Arc::clone(&numpy)];
        assert_eq!((ledger.left(), share(&first)), (0, 0));
        numpy.leave();
        drop(numpy);
        assert_eq!((ledger.left(), share(&first)), (60, 30));
        root.leave();
        drop(root);
        assert_eq!((ledger.left(), share(&first) + share(&second)), (70, 70));
        drop(first);
        assert_eq!((ledger.left(), share(&second)), (70, 70));
        drop(second);
        assert_eq!(ledger.left(), 0);
    }
}
