//! Which call gets an instance, which may make one, and which waits.
//!
//! ```text
//!   admit ─┬─ idle instance ───────────────────────────────────────► Grant::Idle
//!          ├─ seat + permit ───────────────────────────────────────► Grant::Room
//!          ├─ seat, no permit: wait ──┬─ permit ────────────────────► Grant::Room
//!          │                          └─ an instance comes back ────► Grant::Idle
//!          └─ no seat: wait ──┬─ an instance comes back ────────────► Grant::Idle
//!                             └─ an instance ends: its seat ─► wait for a permit, as above
//! ```
//!
//! A *seat* is a place among a handler's instances, a *permit* the right to make a sandbox now. A
//! *lease* is an instance and its seat, in the hands of one call. Calls of one handler are served
//! first come, first served. What a waiter was given when it gave up goes to the next.
//!
//! Seats of all handlers together are bounded, too. Once they are taken, the least recently used
//! idle instance of any handler makes room for a new one; where none is idle, a call that needs a
//! new seat is refused at once.
//!
//! Of a handler without instances and waiters only its popularity is remembered.

mod keep;
mod lease;
mod offering;
mod promised;
mod seat;
mod waiting;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;

use crate::admit::{Admission, Demand, admit};
use crate::budget::Budget;
use crate::call::CallError;
use crate::config::EngineConfig;
use crate::handler::Handler;
use crate::handler_cache::HandlerCache;
use crate::popularity::Popularity;
use function::VersionId;
pub(crate) use lease::Lease;
pub(crate) use seat::Seat;
use waiting::QueuedCall;

/// What a call was given.
#[derive(Debug)]
pub(crate) enum Grant {
    /// An instance that is free; not yet woken.
    Idle(Lease),
    /// The right to make one.
    Room(Seat, OwnedSemaphorePermit),
}

/// What a waiter is given.
#[derive(Debug)]
enum Handoff {
    Lease(Lease),
    Seat(Seat),
}

#[derive(Debug)]
pub(crate) struct Scheduler {
    config: Arc<EngineConfig>,
    budget: Arc<Budget>,
    permits: Arc<Semaphore>,
    /// Sandboxes that the zygotes take up, as last seen.
    zygotes: AtomicUsize,
    /// Work off the path of calls.
    background: TaskTracker,
    /// Where that runs: a call may be dropped outside any runtime.
    runtime: Handle,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    cache: HandlerCache<Lease>,
    handlers: HashMap<VersionId, HandlerState>,
    popularity: Popularity,
    seats: usize,
    waiting: usize,
    next_waiter: u64,
    generation: u64,
    closed: bool,
}

/// State of a handler that has instances or waiters.
#[derive(Debug, Default)]
struct HandlerState {
    live: u32,
    generation: u64,
    /// In the order in which they came.
    waiters: BTreeMap<u64, Waiter>,
}

#[derive(Debug)]
struct Waiter {
    handoff: oneshot::Sender<Handoff>,
    /// It has a seat and waits for a permit: it can use an instance, but no other seat.
    seated: bool,
}

/// How much there is of everything.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) idle: usize,
    pub(crate) idle_bytes: u64,
    pub(crate) busy: usize,
    pub(crate) waiting: usize,
    pub(crate) creating: usize,
    /// Handlers that have instances or waiters.
    pub(crate) handlers: usize,
}

impl Scheduler {
    /// Needs a tokio runtime.
    pub(crate) fn new(
        config: Arc<EngineConfig>,
        budget: Arc<Budget>,
        background: TaskTracker,
    ) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(config.creations.clamp(1, Semaphore::MAX_PERMITS)));
        Arc::new(Self {
            config,
            budget,
            permits,
            zygotes: AtomicUsize::new(0),
            background,
            runtime: Handle::current(),
            state: Mutex::default(),
        })
    }

    /// Gets an instance or the right to make one, waiting if need be.
    pub(crate) async fn admit(self: &Arc<Self>, handler: &Handler) -> Result<Grant, CallError> {
        let (waiting, seat) = match self.try_admit(handler)? {
            Decision::Granted(grant) => return Ok(grant),
            Decision::Wait(waiting, seat) => (waiting, seat),
        };
        let deadline = Instant::now() + self.config.queue_timeout;
        timeout_at(deadline, self.wait(waiting, seat)).await.unwrap_or_else(|_| Err(self.busy()))
    }

    /// Notes that the handler is called, and how many others of its calls are under way.
    fn count(&self, handler: &Handler) {
        let mut state = self.state();
        let live = state.handlers.get(&handler.id).map_or(0, |entry| entry.live);
        let busy = (live as usize).saturating_sub(state.cache.idle(&handler.id));
        state.popularity.called(&handler.id, busy, Instant::now());
    }

    fn try_admit(self: &Arc<Self>, handler: &Handler) -> Result<Decision, CallError> {
        self.count(handler);
        loop {
            let mut state = self.state();
            if state.closed {
                return Err(CallError::Stopping);
            }
            let free = self.room().saturating_sub(state.seats);
            let admission = admit(Demand {
                idle: state.cache.idle(&handler.id),
                live: state.handlers.get(&handler.id).map_or(0, |entry| entry.live),
                concurrency: handler.concurrency,
                free,
                spare: state.cache.spare(),
                permits: self.permits.available_permits(),
                waiting: state.waiting,
                queue: self.config.queue,
            });
            if admission == Admission::Resume
                && let Some(lease) = state.cache.take(&handler.id)
            {
                return Ok(Decision::Granted(Grant::Idle(lease)));
            }
            if admission == Admission::Refuse {
                return Err(self.busy());
            }
            if admission == Admission::AwaitInstance {
                return Ok(Decision::Wait(self.enqueue(&mut state, &handler.id, false), None));
            }
            if free == 0
                && let Some(victim) = state.cache.take_oldest()
            {
                // Not under the lock: its seat comes back here. Another call may be quicker to take
                // that.
                drop(state);
                drop(victim);
                metrics::counter!("lambswool_evicted_for_room_total").increment(1);
                continue;
            }
            let seat = self.reserve(&mut state, &handler.id);
            return match Arc::clone(&self.permits).try_acquire_owned() {
                Ok(permit) => Ok(Decision::Granted(Grant::Room(seat, permit))),
                Err(_) => {
                    let waiting = self.enqueue(&mut state, &handler.id, true);
                    Ok(Decision::Wait(waiting, Some(seat)))
                }
            };
        }
    }

    async fn wait(
        self: &Arc<Self>,
        mut waiting: QueuedCall,
        seat: Option<Seat>,
    ) -> Result<Grant, CallError> {
        let seat = match seat {
            Some(seat) => seat,
            None => match waiting.handoff().await {
                Some(Handoff::Lease(lease)) => return Ok(Grant::Idle(lease)),
                Some(Handoff::Seat(seat)) => {
                    waiting = waiting.with_seat();
                    seat
                }
                None => return Err(CallError::Stopping),
            },
        };
        tokio::select! {
            biased;
            handoff = waiting.handoff() => match handoff {
                Some(Handoff::Lease(lease)) => Ok(Grant::Idle(lease)),
                // A waiter with a seat gets no other: its sender was dropped.
                _ => Err(CallError::Stopping),
            },
            permit = Arc::clone(&self.permits).acquire_owned() => match permit {
                Ok(permit) => Ok(Grant::Room(seat, permit)),
                Err(_) => Err(CallError::Stopping),
            },
        }
    }

    /// Gives up the idle instances of a handler, and what is busy now once its call has ended.
    pub(crate) fn forget(&self, handler: &VersionId) {
        let victims = {
            let mut state = self.state();
            state.generation += 1;
            let generation = state.generation;
            if let Some(entry) = state.handlers.get_mut(handler) {
                entry.generation = generation;
            }
            state.popularity.forget(handler);
            state.cache.forget(handler)
        };
        drop(victims);
    }

    /// Gives up all idle instances; busy ones follow when their calls end.
    pub(crate) fn renew(&self) {
        let victims = {
            let mut state = self.state();
            state.generation += 1;
            let generation = state.generation;
            state.handlers.values_mut().for_each(|entry| entry.generation = generation);
            state.cache.clear()
        };
        drop(victims);
    }

    /// Gives up what has been idle for too long.
    pub(crate) fn expire(&self, now: Instant) {
        let victims = {
            let mut state = self.state();
            state.popularity.tidy(now);
            let before = now.checked_sub(self.config.idle);
            let victims = before.map(|before| state.cache.expire(before));
            self.budget.note_idle(state.cache.bytes());
            victims
        };
        drop(victims);
    }

    /// Gives up the older half of all idle instances, because the host is out of something. How
    /// many they were.
    pub(crate) fn shed(&self) -> usize {
        let victims = self.state().cache.shed();
        victims.len()
    }

    /// Most instances that there may be now: what zygotes take up is not theirs.
    pub(crate) fn room(&self) -> usize {
        self.config.sandboxes.saturating_sub(self.zygotes.load(Ordering::Relaxed)).max(1)
    }

    /// Notes how many zygotes there are.
    pub(crate) fn make_way_for_zygotes(&self, count: usize) {
        let taken = count.saturating_mul(self.config.zygote_sandboxes);
        self.zygotes.store(taken, Ordering::Relaxed);
    }

    /// Refuses all further calls.
    pub(crate) fn close(&self) {
        self.state().closed = true;
    }

    /// Gives up all idle instances and sends all waiters away. After [`Scheduler::close`].
    pub(crate) fn clear(&self) {
        let (victims, waiters) = {
            let mut state = self.state();
            let waiters: Vec<_> = state
                .handlers
                .values_mut()
                .map(|entry| std::mem::take(&mut entry.waiters))
                .collect();
            (state.cache.clear(), waiters)
        };
        drop((victims, waiters));
    }

    pub(crate) fn load(&self) -> Load {
        let state = self.state();
        Load {
            idle: state.cache.len(),
            idle_bytes: state.cache.bytes(),
            busy: state.seats - state.cache.len(),
            waiting: state.waiting,
            creating: self.config.creations.max(1).saturating_sub(self.permits.available_permits()),
            handlers: state.handlers.len(),
        }
    }

    fn busy(&self) -> CallError {
        CallError::Busy { retry_after: self.config.retry_after }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn tidy(&mut self, handler: &VersionId) {
        if self
            .handlers
            .get(handler)
            .is_some_and(|entry| entry.live == 0 && entry.waiters.is_empty())
        {
            self.handlers.remove(handler);
        }
    }
}

/// The immediate answer to a call.
enum Decision {
    Granted(Grant),
    Wait(QueuedCall, Option<Seat>),
}
