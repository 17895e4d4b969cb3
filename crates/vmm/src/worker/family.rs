//! The connection to one monitor: orders out, events in.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandbox::{Death, LoadedFile, ProviderError};
use sys::scm;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};

use super::allowance::Allowance;
use super::warded::Warded;
use crate::lacking::Lacking;
use crate::message::{Event, MAX_PACKET, Order};

/// Bytes that the files take that a reference machine says it has loaded, at most: some 300 000 files.
const MOST_FILES_BYTES: usize = 64 << 20;

/// A monitor and its machines. It ends when the last who holds it lets go: the zygote, and every instance.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) warded: Warded,
    wire: Arc<Wire>,
    reader: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct Wire {
    socket: AsyncFd<OwnedFd>,
    clones: Mutex<HashMap<u64, Arc<State>>>,
    allowance: Mutex<Allowance>,
    lost: AtomicBool,
    lacking: Arc<Lacking>,
}

/// What the monitor has told of a clone.
#[derive(Debug)]
pub(super) struct State {
    stage: watch::Sender<Stage>,
    bytes: AtomicU64,
}

/// Where a clone stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It was ordered.
    Ordered,
    /// It waits for its code, or has it.
    Lives,
    /// There is none: why, and whether that may change.
    Refused(String, bool),
    /// It ended.
    Ended(Death),
    /// Its monitor is gone.
    Lost,
}

impl State {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage.borrow().clone()
    }

    /// Waits until it stands elsewhere than here.
    pub(super) async fn beyond(&self, here: &[Stage]) -> Stage {
        let mut stages = self.stage.subscribe();
        let beyond = stages.wait_for(|stage| !here.contains(stage)).await;
        beyond.map_or(Stage::Lost, |stage| stage.clone())
    }
}

impl Family {
    /// Takes over a started monitor. What it says of the reference machine comes out of the receiver.
    pub(super) fn new(
        warded: Warded,
        control: OwnedFd,
        lacking: Arc<Lacking>,
        allowance: Allowance,
    ) -> io::Result<(Self, mpsc::UnboundedReceiver<Event>)> {
        let socket = container::watch(control)?;
        let (clones, allowance) = (Mutex::default(), Mutex::new(allowance));
        let lost = AtomicBool::new(false);
        let wire = Arc::new(Wire { socket, clones, allowance, lost, lacking });
        let (tell, told) = mpsc::unbounded_channel();
        let reader = tokio::spawn(read(Arc::clone(&wire), tell));
        Ok((Self { warded, wire, reader }, told))
    }

    /// Sends an order.
    pub(super) async fn order(
        &self,
        order: &Order,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ProviderError> {
        let packet = serde_json::to_vec(order).map_err(ProviderError::step("write an order"))?;
        let send = |socket: &OwnedFd| scm::send(socket.as_fd(), &packet, fds, false);
        let sent = self.wire.socket.async_io(Interest::WRITABLE, send).await;
        sent.map(drop).map_err(|error| ProviderError::ZygoteLost {
            id: self.warded.id(),
            reason: format!("its monitor does not listen: {error}"),
        })
    }

    /// Sends an order that is not waited for.
    ///
    /// # Errors
    /// When the monitor does not listen, or has very many orders to read yet.
    pub(super) fn tell(&self, order: &Order) -> io::Result<()> {
        let packet = serde_json::to_vec(order)?;
        scm::send(self.wire.socket.get_ref().as_fd(), &packet, &[], false).map(drop)
    }

    /// Has the family's cgroup hold a clone that will be ordered, of so many bytes at most.
    pub(super) fn make_room(&self, number: u64, bytes: u64) {
        // Where nobody can tell, it uses all that it may.
        let used = || self.warded.memory().unwrap_or(u64::MAX);
        let mut allowance = self.wire.allowance();
        if let Some(limit) = allowance.add(number, bytes, used) {
            // While it is locked: the warden hears of limits in the order in which they were found.
            self.warded.limit(limit);
        }
    }

    /// Notes a clone that will be ordered, so that nothing that is told of it is missed.
    pub(super) fn expect(&self, number: u64, bytes: u64) -> Arc<State> {
        let stage = if self.alive() { Stage::Ordered } else { Stage::Lost };
        let state = State { stage: watch::Sender::new(stage), bytes: AtomicU64::new(bytes) };
        let state = Arc::new(state);
        self.wire.clones().insert(number, Arc::clone(&state));
        state
    }

    /// Bytes that its clones have of their own, as told last.
    pub(super) fn clones_weigh(&self) -> u64 {
        self.wire.clones().values().map(|state| state.bytes()).sum()
    }

    /// Forgets a clone.
    pub(super) fn forget(&self, number: u64) {
        self.wire.clones().remove(&number);
    }

    /// Whether its monitor is there.
    pub(super) fn alive(&self) -> bool {
        !self.wire.lost.load(Ordering::Acquire) && self.warded.process.alive()
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Wire {
    fn clones(&self) -> MutexGuard<'_, HashMap<u64, Arc<State>>> {
        // Whole between any two operations on it.
        self.clones.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allowance(&self) -> MutexGuard<'_, Allowance> {
        // As above.
        self.allowance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what is told of a clone; gives back what is told of the reference machine.
    fn note(&self, event: Event) -> Option<Event> {
        let (number, stage) = match event {
            Event::Weighs { number, bytes } => {
                if let Some(state) = self.clones().get(&number) {
                    state.bytes.store(bytes, Ordering::Relaxed);
                }
                return None;
            }
            Event::Gone { number } => {
                self.allowance().remove(number);
                return None;
            }
            Event::Lacks { call } => {
                if self.lacking.note(call) {
                    tracing::info!(call, "a guest tried a system call that micro-VMs do not have");
                }
                return None;
            }
            Event::Cloned { number } => (number, Stage::Lives),
            Event::Ended { number, death } => (number, Stage::Ended(death)),
            Event::Failed { number: Some(number), reason, exhausted } => {
                tracing::warn!(reason, "a micro-VM failed");
                self.allowance().remove(number);
                (number, Stage::Refused(reason, exhausted))
            }
            other => return Some(other),
        };
        if let Some(state) = self.clones().get(&number) {
            state.stage.send_replace(stage);
        }
        None
    }
}

/// Reads what the monitor says, until it ends.
async fn read(wire: Arc<Wire>, tell: mpsc::UnboundedSender<Event>) {
    let mut packet = vec![0; MAX_PACKET];
    // A monitor is not trusted with this process's memory: its files are counted by what holds them.
    let mut files = 0_usize;
    loop {
        let receive = |socket: &OwnedFd| scm::receive(socket.as_fd(), &mut packet, false);
        let received = wire.socket.async_io(Interest::READABLE, receive).await;
        let Ok(length @ 1..) = received.map(|received| received.length) else { break };
        let Ok(event) = serde_json::from_slice::<Event>(&packet[..length]) else { break };
        if let Some(event) = wire.note(event) {
            if let Event::Files { files: more } = &event {
                files = more.iter().map(held).fold(files, usize::saturating_add);
            }
            // Nobody listens once the reference machine is frozen.
            if files > MOST_FILES_BYTES || tell.send(event).is_err() && !tell.is_closed() {
                break;
            }
        }
    }
    wire.lost.store(true, Ordering::Release);
    for state in wire.clones().values() {
        state.stage.send_if_modified(|stage| {
            let open = matches!(stage, Stage::Ordered | Stage::Lives);
            if open {
                *stage = Stage::Lost;
            }
            open
        });
    }
}

/// Bytes that the note of a file takes.
fn held(file: &LoadedFile) -> usize {
    let variables = file.variables.iter().map(|name| size_of::<String>() + name.len());
    let names = file.module.len() + file.path.len() + file.importer.len();
    size_of::<LoadedFile>() + names + variables.sum::<usize>()
}

/// Waits for what comes of an order to the reference machine; collects the files on the way.
pub(super) async fn answer(
    family: &Family,
    told: &mut mpsc::UnboundedReceiver<Event>,
    files: &mut Vec<LoadedFile>,
) -> Result<Event, ProviderError> {
    loop {
        match told.recv().await {
            Some(Event::Files { files: more }) => files.extend(more),
            Some(Event::Failed { reason, exhausted: true, .. }) => {
                return Err(ProviderError::Exhausted { what: reason });
            }
            Some(Event::Failed { reason, .. }) => return Err(ProviderError::Interpreter(reason)),
            Some(event) => return Ok(event),
            None => return Err(not_started(family).await),
        }
    }
}

/// Why a monitor ended early.
async fn not_started(family: &Family) -> ProviderError {
    match family.warded.inspect().await {
        Ok((death, stderr)) => ProviderError::ended_early("the micro-VMs' monitor", death, &stderr),
        Err(error) => error,
    }
}
