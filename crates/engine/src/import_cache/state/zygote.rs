//! Zygotes in the cache, and their keys.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandbox::{SandboxId, Zygote};
use tokio::time::Instant;

use crate::import_cache::model::entry::Entry;
use crate::import_cache::model::set::Set;
use crate::import_cache::state::backoff::Backoff;
use crate::pages::Pages;

/// What a zygote is for. A root sees nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ZygoteKey {
    pub(crate) domain: usize,
    /// The distributions that it can import from.
    pub(crate) sees: Set,
    /// The pieces that it is asked to import.
    pub(crate) modules: Set,
}

impl ZygoteKey {
    pub(crate) fn root(domain: usize) -> Self {
        Self { domain, sees: Set::default(), modules: Set::default() }
    }

    pub(crate) fn is_root(&self) -> bool {
        self.sees.is_empty()
    }
}

/// A zygote in the cache.
#[derive(Debug)]
pub(crate) struct CachedZygote {
    pub(crate) key: ZygoteKey,
    pub(crate) zygote: Box<dyn Zygote>,
    /// What it has actually imported, its ancestors' imports included.
    pub(crate) modules: Set,
    /// What these imports looked up in vain: see [`lookups`](crate::import_cache::model::lookups).
    pub(crate) lookups: Set,
    /// Its ancestors, from its parent to its root.
    pub(crate) line: Vec<SandboxId>,
    /// Whether zygotes may be derived from it: it is above the maximum depth.
    pub(crate) derivable: bool,
    /// When the interpreter of its root started: all descendants share one memory layout.
    pub(crate) born: Instant,
    pub(crate) pages: Arc<Pages>,
    pub(crate) used: AtomicU64,
    pub(crate) forks: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) saved_us: AtomicU64,
    /// Times of recent forks, where the policy counts them.
    pub(crate) recent: Mutex<VecDeque<Instant>>,
    /// Failures to make its successor.
    pub(crate) backoff: Mutex<Backoff>,
    /// When it was last forked or derived from; at first, when it was made.
    pub(crate) touched: Mutex<Instant>,
}

impl Drop for CachedZygote {
    fn drop(&mut self) {
        self.pages.leave();
    }
}

impl CachedZygote {
    /// Counts a fork of it.
    pub(crate) fn forked(&self) {
        self.forks.fetch_add(1, Ordering::Relaxed);
    }

    /// Forks within the last `window`.
    pub(crate) fn uses_since(&self, window: Duration) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a count of forks")]
        let uses = self.recent(window).len() as f64;
        uses
    }

    fn recent(&self, window: Duration) -> MutexGuard<'_, VecDeque<Instant>> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        while recent.front().is_some_and(|used| used.elapsed() > window) {
            recent.pop_front();
        }
        recent
    }

    /// Records that a call is forked from it, which saves `saved_ms`. `window`: how long the policy
    /// counts uses, if it does.
    pub(crate) fn use_now(&self, turn: u64, saved_ms: f64, window: Option<Duration>) {
        self.used.store(turn, Ordering::Relaxed);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "microseconds"
        )]
        self.saved_us.fetch_add((saved_ms.max(0.0) * 1e3) as u64, Ordering::Relaxed);
        if let Some(window) = window {
            self.recent(window).push_back(Instant::now());
        }
        self.touch(Instant::now());
    }

    pub(crate) fn touched(&self) -> Instant {
        *self.touched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn touch(&self, at: Instant) {
        *self.touched.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    /// Failures to make its successor so far.
    pub(crate) fn backoff(&self) -> Backoff {
        *self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a failure to make its successor, and returns the number of failures.
    pub(crate) fn record_failure(&self, retry: Duration) -> u32 {
        let mut backoff = self.backoff.lock().unwrap_or_else(PoisonError::into_inner);
        backoff.fail(retry);
        backoff.failures()
    }

    /// Bytes that it costs, with its share of what its ancestors left behind.
    pub(crate) fn cost(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed) + self.pages.inherited()
    }
}

/// All zygotes that can be forked at one moment: the handles, and the policies' data.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) zygotes: Vec<Arc<CachedZygote>>,
    pub(crate) entries: Vec<Entry>,
}

impl View {
    pub(crate) fn new(mut cached: Vec<Arc<CachedZygote>>) -> Self {
        cached.sort_by_key(|cached| cached.zygote.id());
        let places: HashMap<SandboxId, usize> =
            cached.iter().enumerate().map(|(at, cached)| (cached.zygote.id(), at)).collect();
        let entry = |cached: &Arc<CachedZygote>| Entry {
            domain: cached.key.domain,
            parent: cached.line.iter().find_map(|id| places.get(id).copied()),
            sees: cached.key.sees.clone(),
            asked: cached.key.modules.clone(),
            modules: cached.modules.clone(),
            lookups: cached.lookups.clone(),
            derivable: cached.derivable,
            bytes: cached.cost(),
            used: cached.used.load(Ordering::Relaxed),
        };
        let entries = cached.iter().map(entry).collect();
        Self { zygotes: cached, entries }
    }
}
