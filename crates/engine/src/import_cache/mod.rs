//! The import cache: zygotes, and who is forked from which.
//!
//! ```text
//!   Absent ──a call or a deploy──► Making ──► Ready ──lost, an impostor, evicted──► Absent
//!                                    └──────► Refused ──(failed: after a while)───► Absent
//! ```
//!
//! One root for each Python and network class, one zygote for each exact package set, derived from its root. Making one
//! is a task of its own: callers watch it, so it happens once however many ask, and goes on when they leave. A zygote
//! whose imports left threads is refused for as long as the worker lives; one that could not be made, or was lost, for
//! a while.

mod evict;
mod kept;
mod making;
mod select;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandbox::{Provider, ProviderError};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::call::Handler;
use crate::config::{EngineConfig, ZygotePolicy};
use crate::status::{RefusedStatus, ZygoteStatus};
use evict::{Held, evict};
pub(crate) use kept::Kept;
use kept::{Key, own_of, root_of};
use making::{Made, outcome};
use select::{From, Standing, select};

/// Package sets whose refusal is remembered, at most.
const REFUSALS: usize = 1024;

/// Where a call goes on from.
#[derive(Debug)]
pub(crate) struct Pick {
    /// None: a fresh interpreter.
    pub(crate) zygote: Option<Arc<Kept>>,
    /// It had to be made first.
    pub(crate) cold: bool,
    /// It is the very zygote of the handler's package set.
    pub(crate) exact: bool,
}

#[derive(Debug)]
enum Node {
    Making(watch::Receiver<Option<Made>>),
    Ready(Arc<Kept>),
    Refused { why: String, since: Instant, for_good: bool },
}

#[derive(Debug)]
pub(crate) struct ImportCache {
    provider: Arc<dyn Provider>,
    config: Arc<EngineConfig>,
    errands: TaskTracker,
    runtime: Handle,
    halt: CancellationToken,
    /// Imports take a whole core: one package set at a time leaves the others to the calls.
    builds: Semaphore,
    uses: AtomicU64,
    nodes: Mutex<HashMap<Key, Node>>,
}

impl ImportCache {
    /// Inside a runtime.
    pub(crate) fn new(
        provider: Arc<dyn Provider>,
        config: Arc<EngineConfig>,
        errands: TaskTracker,
        halt: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            provider,
            config,
            errands,
            runtime: Handle::current(),
            halt,
            builds: Semaphore::new(1),
            uses: AtomicU64::new(0),
            nodes: Mutex::default(),
        })
    }

    /// Chooses where a call goes on from, and has made what should be there.
    pub(crate) async fn pick(self: &Arc<Self>, handler: &Handler) -> Result<Pick, ProviderError> {
        let root = root_of(handler);
        let own = own_of(handler);
        let mut making = {
            let mut nodes = self.nodes();
            let exact = own.as_ref().map(|key| self.standing(&nodes, key));
            let plan = select(self.config.zygotes, exact, self.standing(&nodes, &root));
            if let (true, Some(key)) = (plan.build, &own) {
                self.start(&mut nodes, key, handler.imports.clone());
            }
            let ready = match plan.from {
                From::Exact => own.as_ref().and_then(|key| self.ready(&nodes, key)),
                From::Root => self.ready(&nodes, &root),
                From::NewRoot | From::Fresh => None,
            };
            if plan.from != From::NewRoot {
                let exact = ready.is_some() && (plan.from == From::Exact || own.is_none());
                return Ok(Pick { zygote: ready, cold: plan.from == From::Fresh, exact });
            }
            match nodes.get(&root) {
                Some(Node::Making(making)) if making.has_changed().is_ok() => making.clone(),
                _ => self.start(&mut nodes, &root, Vec::new()),
            }
        };
        let zygote = outcome(&mut making).await?;
        Ok(Pick { zygote, cold: true, exact: false })
    }

    /// Makes what a handler will be forked from, and waits until it is there or refused.
    pub(crate) async fn prepare(self: &Arc<Self>, handler: &Handler) {
        if self.config.zygotes == ZygotePolicy::None {
            return;
        }
        let own = own_of(handler).filter(|_| self.config.zygotes == ZygotePolicy::PerLock);
        let wanted =
            [Some((root_of(handler), Vec::new())), own.map(|key| (key, handler.imports.clone()))];
        for (key, imports) in wanted.into_iter().flatten() {
            if let Some(mut making) = self.ensure(&key, imports) {
                // Its failure was told when it happened; calls go on without it.
                let _ = outcome(&mut making).await;
            }
        }
    }

    /// Drops a zygote that is lost, or that answered with an impostor.
    pub(crate) fn lose(&self, lost: &Arc<Kept>, why: &str) {
        let gone = {
            let mut nodes = self.nodes();
            if !matches!(nodes.get(&lost.key), Some(Node::Ready(kept)) if Arc::ptr_eq(kept, lost)) {
                return;
            }
            let gone = nodes.remove(&lost.key);
            // A root is made anew at once: calls need it. Any other might be lost again and again.
            if !lost.root() {
                self.refuse(&mut nodes, lost.key.clone(), why.to_owned(), false);
            }
            gone
        };
        tracing::warn!(zygote = %lost.zygote.id(), why, "a zygote was given up");
        drop(gone);
    }

    /// Gives up zygotes that have died and those that no longer fit.
    pub(crate) fn tidy(&self) {
        for kept in self.all() {
            if !kept.zygote.alive() {
                self.lose(&kept, "its process ended");
            }
        }
        self.fit();
    }

    /// Gives up everything.
    pub(crate) fn clear(&self) {
        let gone = std::mem::take(&mut *self.nodes());
        drop(gone);
    }

    /// The zygotes that are there, and the package sets that have none and why.
    pub(crate) fn status(&self) -> (Vec<ZygoteStatus>, Vec<RefusedStatus>) {
        let zygotes = self.all().into_iter().map(|kept| ZygoteStatus {
            id: kept.zygote.id(),
            base: kept.key.python.base.clone(),
            packages: kept.key.packages.clone(),
            imports: kept.zygote.spec().imports.clone(),
            failed_imports: kept.zygote.imports().failed.clone(),
            import_ms: kept.zygote.imports().milliseconds,
            memory_bytes: kept.bytes.load(Ordering::Relaxed),
            forks: kept.forks.load(Ordering::Relaxed),
        });
        let mut zygotes: Vec<_> = zygotes.collect();
        zygotes.sort_by_key(|zygote| zygote.id);
        let nodes = self.nodes();
        let refused = nodes.iter().filter_map(|(key, node)| match node {
            Node::Refused { why, for_good, .. } => Some(RefusedStatus {
                packages: key.packages.clone(),
                why: why.clone(),
                for_good: *for_good,
            }),
            _ => None,
        });
        (zygotes, refused.collect())
    }

    /// Measures all zygotes, and gives up those that no longer fit.
    fn fit(&self) {
        let all = self.all();
        let mut held = Vec::with_capacity(all.len());
        for kept in &all {
            // Where the host cannot tell, eight of them fit.
            let bytes = kept.zygote.memory().unwrap_or(self.config.zygote_bytes / 8);
            kept.bytes.store(bytes, Ordering::Relaxed);
            held.push(Held { bytes, used: kept.used.load(Ordering::Relaxed), root: kept.root() });
        }
        let victims: Vec<_> = {
            let mut nodes = self.nodes();
            let mut remove = |at: usize| {
                let same = matches!(nodes.get(&all[at].key), Some(Node::Ready(kept)) if Arc::ptr_eq(kept, &all[at]));
                if same { nodes.remove(&all[at].key) } else { None }
            };
            evict(&held, self.config.zygote_bytes).into_iter().filter_map(&mut remove).collect()
        };
        drop(victims);
    }

    fn all(&self) -> Vec<Arc<Kept>> {
        let nodes = self.nodes();
        let ready = nodes.values().filter_map(|node| match node {
            Node::Ready(kept) => Some(Arc::clone(kept)),
            _ => None,
        });
        ready.collect()
    }

    fn standing(&self, nodes: &HashMap<Key, Node>, key: &Key) -> Standing {
        match nodes.get(key) {
            None => Standing::Absent,
            // Whoever was making it is gone without a word.
            Some(Node::Making(making)) if making.has_changed().is_err() => Standing::Absent,
            Some(Node::Making(_)) => Standing::Making,
            Some(Node::Ready(_)) => Standing::Ready,
            Some(Node::Refused { for_good: true, .. }) => Standing::Refused,
            Some(Node::Refused { since, .. }) if since.elapsed() < self.config.zygote_retry => {
                Standing::Refused
            }
            Some(Node::Refused { .. }) => Standing::Absent,
        }
    }

    fn ready(&self, nodes: &HashMap<Key, Node>, key: &Key) -> Option<Arc<Kept>> {
        let Some(Node::Ready(kept)) = nodes.get(key) else { return None };
        kept.used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Some(Arc::clone(kept))
    }

    fn refuse(&self, nodes: &mut HashMap<Key, Node>, key: Key, why: String, for_good: bool) {
        nodes.insert(key, Node::Refused { why, since: Instant::now(), for_good });
        let refused = nodes.iter().filter_map(|(key, node)| match node {
            Node::Refused { since, .. } => Some((*since, key)),
            _ => None,
        });
        let refused: Vec<_> = refused.collect();
        if refused.len() > REFUSALS
            && let Some(oldest) =
                refused.iter().min_by_key(|(since, _)| *since).map(|(_, key)| (*key).clone())
        {
            nodes.remove(&oldest);
        }
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<Key, Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
