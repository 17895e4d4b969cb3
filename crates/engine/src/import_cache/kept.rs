//! Zygotes that are there, and what they are for.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandbox::{SandboxId, Zygote};
use tokio::time::Instant;

use super::set::Set;
use super::setback::Setback;
use super::tree::Entry;
use crate::pages::Pages;

/// What a zygote is for. Nothing seen: a root.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) realm: usize,
    /// The distributions that it can import from.
    pub(super) sees: Set,
    /// The pieces that it is asked to import.
    pub(super) modules: Set,
}

impl Key {
    pub(super) fn root(realm: usize) -> Self {
        Self { realm, sees: Set::default(), modules: Set::default() }
    }

    pub(super) fn is_root(&self) -> bool {
        self.sees.is_empty()
    }
}

/// A zygote in the cache.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(super) key: Key,
    pub(crate) zygote: Box<dyn Zygote>,
    /// What it has really imported, its ancestors' imports included.
    pub(super) modules: Set,
    /// What these looked up that another may have: see [`super::variables`].
    pub(super) reads: Set,
    /// From the one that it was derived from to the root.
    pub(super) line: Vec<SandboxId>,
    /// Whether zygotes may be derived from it: it is not as deep as they may be.
    pub(super) bears: bool,
    /// When the interpreter of its root started: all that come from that share one layout of memory.
    pub(super) born: Instant,
    pub(crate) pages: Arc<Pages>,
    pub(super) used: AtomicU64,
    pub(super) forks: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) saved_us: AtomicU64,
    /// Forks of late, where the policy counts them.
    pub(super) recent: Mutex<VecDeque<Instant>>,
    /// Its successors that could not be made.
    pub(super) setback: Mutex<Setback>,
    /// When something was last made from it, or when it was made.
    pub(super) touched: Mutex<Instant>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.pages.leave();
    }
}

impl Kept {
    /// Counts a fork.
    pub(crate) fn forked(&self) {
        self.forks.fetch_add(1, Ordering::Relaxed);
    }

    /// Forks since then.
    pub(super) fn uses_since(&self, window: Duration) -> f64 {
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

    /// Notes that a call goes on from it, which saves that; `window`: for how long the policy counts its uses, if it does.
    pub(super) fn use_now(&self, turn: u64, saved_ms: f64, window: Option<Duration>) {
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

    pub(super) fn touched(&self) -> Instant {
        *self.touched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn touch(&self, at: Instant) {
        *self.touched.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    /// What came of having it replaced so far.
    pub(super) fn setback(&self) -> Setback {
        *self.setback.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a successor that could not be made, and says how many these are.
    pub(super) fn set_back(&self, retry: Duration) -> u32 {
        let mut setback = self.setback.lock().unwrap_or_else(PoisonError::into_inner);
        setback.fail(retry);
        setback.failures()
    }

    /// Bytes that it costs, with its part of what those above it left behind.
    pub(super) fn cost(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed) + self.pages.inherited()
    }
}

/// All zygotes that can be forked, at one moment: as they are, and as the policies see them.
#[derive(Debug)]
pub(super) struct View {
    pub(super) kept: Vec<Arc<Kept>>,
    pub(super) entries: Vec<Entry>,
}

impl View {
    pub(super) fn new(mut kept: Vec<Arc<Kept>>) -> Self {
        kept.sort_by_key(|kept| kept.zygote.id());
        let places: HashMap<SandboxId, usize> =
            kept.iter().enumerate().map(|(at, kept)| (kept.zygote.id(), at)).collect();
        let entry = |kept: &Arc<Kept>| Entry {
            realm: kept.key.realm,
            parent: kept.line.iter().find_map(|id| places.get(id).copied()),
            sees: kept.key.sees.clone(),
            asked: kept.key.modules.clone(),
            modules: kept.modules.clone(),
            reads: kept.reads.clone(),
            bears: kept.bears,
            bytes: kept.cost(),
            used: kept.used.load(Ordering::Relaxed),
        };
        let entries = kept.iter().map(entry).collect();
        Self { kept, entries }
    }
}
