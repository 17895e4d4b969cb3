//! The connection to one monitor: orders out, events in.
//!
//! | if a compromised monitor | then |
//! | --- | --- |
//! | tells of its reference machine without an order | it is not read any more: its family is lost |
//! | tells of more files than there can be | its family is lost |
//! | tells again that a clone failed, or of an unknown clone | the event is dropped, and not logged |
//! | gives long reasons | they are cut |

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use sandbox::{Death, LoadedFile, ProviderError};
use sys::scm;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};

use super::allowance::Allowance;
use super::monitor_process::MonitorProcess;
use crate::message::{Event, MAX_PACKET, Order};
use crate::missing_calls::MissingCalls;

/// Bytes of the list of files that a reference machine has loaded: some 300 000 files.
const MAX_FILES_BYTES: usize = 64 << 20;
/// Bytes of a queued event, beside its contents.
const OF_AN_EVENT: usize = 256;

/// A monitor and its machines. Ends when the zygote and every instance have dropped it.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) monitor: MonitorProcess,
    wire: Arc<Wire>,
    reader: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct Wire {
    socket: AsyncFd<OwnedFd>,
    clones: Mutex<HashMap<u64, Arc<State>>>,
    allowance: Mutex<Allowance>,
    /// Events about the reference machine that are still allowed, its files apart: one for each
    /// order, and [`Event::Up`]. They wait here until they are read, for as long as other families'
    /// snapshots take.
    owed: AtomicUsize,
    lost: AtomicBool,
    missing_calls: Arc<MissingCalls>,
}

/// The worker's knowledge of a clone.
#[derive(Debug)]
pub(super) struct State {
    stage: watch::Sender<Stage>,
    bytes: AtomicU64,
    /// The end of its guest's output, once the guest has ended.
    last_words: OnceLock<String>,
}

/// The stage of a clone's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its order was sent.
    Ordered,
    /// It waits for its code, or has it.
    Lives,
    /// It was not made: the reason, and whether a later try may succeed.
    Refused(String, bool),
    /// Its guest ended.
    Ended(Death),
    /// Its monitor ended.
    Lost,
}

impl Stage {
    /// Whether this stage comes after another: a clone's stages never go back, whatever its monitor
    /// says.
    fn follows(&self, other: &Self) -> bool {
        let place = |stage: &Self| match stage {
            Self::Ordered => 0,
            Self::Lives => 1,
            // Its end may be told as well.
            Self::Refused(..) => 2,
            Self::Ended(_) => 3,
            Self::Lost => 4,
        };
        place(self) > place(other)
    }
}

impl State {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Keeps the first ones: a monitor tells of each end once.
    fn note_last_words(&self, said: String) {
        if !said.is_empty() {
            let _ = self.last_words.set(said);
        }
    }

    /// The end of its guest's output; empty if none was told.
    pub(super) fn last_words(&self) -> &str {
        self.last_words.get().map_or("", String::as_str)
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage.borrow().clone()
    }

    /// Waits until it leaves these stages.
    pub(super) async fn beyond(&self, here: &[Stage]) -> Stage {
        let mut stages = self.stage.subscribe();
        let beyond = stages.wait_for(|stage| !here.contains(stage)).await;
        beyond.map_or(Stage::Lost, |stage| stage.clone())
    }
}

impl Family {
    /// Takes over a started monitor. Its events about the reference machine come out of the
    /// receiver.
    pub(super) fn new(
        monitor: MonitorProcess,
        control: OwnedFd,
        missing_calls: Arc<MissingCalls>,
        allowance: Allowance,
    ) -> io::Result<(Self, mpsc::UnboundedReceiver<Event>)> {
        let socket = container::watch(control)?;
        let (clones, allowance) = (Mutex::default(), Mutex::new(allowance));
        let (owed, lost) = (AtomicUsize::new(1), AtomicBool::new(false));
        let wire = Arc::new(Wire { socket, clones, allowance, owed, lost, missing_calls });
        let (tell, told) = mpsc::unbounded_channel();
        let reader = tokio::spawn(read(Arc::clone(&wire), tell));
        Ok((Self { monitor, wire, reader }, told))
    }

    /// Sends an order, waiting for room in the socket.
    pub(super) async fn order(
        &self,
        order: &Order,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ProviderError> {
        let packet = serde_json::to_vec(order).map_err(ProviderError::step("write an order"))?;
        if order.is_answered() {
            // Before it is sent: the answer could overtake.
            self.wire.owed.fetch_add(1, Ordering::Relaxed);
        }
        let send = |socket: &OwnedFd| scm::send(socket.as_fd(), &packet, fds, false);
        let sent = self.wire.socket.async_io(Interest::WRITABLE, send).await;
        sent.map(drop).map_err(|error| ProviderError::ZygoteLost {
            id: self.monitor.id(),
            reason: format!("its monitor does not listen: {error}"),
        })
    }

    /// Sends an order without waiting.
    ///
    /// # Errors
    /// When the monitor has gone, or has too many orders to read.
    pub(super) fn tell(&self, order: &Order) -> io::Result<()> {
        let packet = serde_json::to_vec(order)?;
        scm::send(self.wire.socket.get_ref().as_fd(), &packet, &[], false).map(drop)
    }

    /// Raises the cgroup's limit for a clone that will be ordered, of this many bytes.
    pub(super) fn make_room(&self, number: u64, bytes: u64) {
        // If it cannot be told, all that is allowed counts as used.
        let used = || self.monitor.memory().unwrap_or(u64::MAX);
        let mut allowance = self.wire.allowance();
        if let Some(limit) = allowance.add(number, bytes, used) {
            // Under the lock, so that the warden receives limits in the order in which they were
            // computed.
            self.monitor.limit(limit);
        }
    }

    /// Notes a clone before its order is sent, so that no event of it is missed.
    pub(super) fn expect(&self, number: u64, bytes: u64) -> Arc<State> {
        let stage = if self.alive() { Stage::Ordered } else { Stage::Lost };
        let state = State {
            stage: watch::Sender::new(stage),
            bytes: AtomicU64::new(bytes),
            last_words: OnceLock::new(),
        };
        let state = Arc::new(state);
        self.wire.clones().insert(number, Arc::clone(&state));
        state
    }

    /// Bytes that its clones own, as last told.
    pub(super) fn clones_weigh(&self) -> u64 {
        self.wire.clones().values().map(|state| state.bytes()).sum()
    }

    /// Forgets a clone, whose instance was dropped.
    pub(super) fn forget(&self, number: u64) {
        self.wire.clones().remove(&number);
    }

    /// Whether its monitor is there.
    pub(super) fn alive(&self) -> bool {
        !self.wire.lost.load(Ordering::Acquire) && self.monitor.process.alive()
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Wire {
    fn clones(&self) -> MutexGuard<'_, HashMap<u64, Arc<State>>> {
        // The list is consistent between any two operations on it.
        self.clones.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allowance(&self) -> MutexGuard<'_, Allowance> {
        // As above.
        self.allowance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an event about a clone; returns an event about the reference machine.
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
                if self.missing_calls.note(call) {
                    tracing::info!(call, "a guest tried a system call that micro-VMs do not have");
                }
                return None;
            }
            Event::Cloned { number } => (number, Stage::Lives),
            Event::Ended { number, death, said } => {
                if let Some(state) = self.clones().get(&number) {
                    state.note_last_words(said);
                }
                (number, Stage::Ended(death))
            }
            Event::Failed { number: Some(number), reason, exhausted } => {
                self.allowance().remove(number);
                if self.step(number, Stage::Refused(reason.clone(), exhausted)) {
                    tracing::warn!(reason, "a micro-VM failed");
                }
                return None;
            }
            other => return Some(other),
        };
        self.step(number, stage);
        None
    }

    /// Moves a clone to a stage. Returns whether that is news: the clone exists, and was not there
    /// yet.
    fn step(&self, number: u64, next: Stage) -> bool {
        self.clones().get(&number).is_some_and(|state| {
            state.stage.send_if_modified(|stage| {
                let news = next.follows(stage);
                if news {
                    *stage = next;
                }
                news
            })
        })
    }

    /// Whether the monitor may send one more event about its reference machine.
    fn owes(&self) -> bool {
        let one_less = |owed: usize| owed.checked_sub(1);
        self.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }
}

/// Reads the monitor's events until it ends.
async fn read(wire: Arc<Wire>, tell: mpsc::UnboundedSender<Event>) {
    let mut packet = vec![0; MAX_PACKET];
    // A monitor is not trusted with this process's memory: files are counted by the bytes that hold
    // them.
    let mut files = 0_usize;
    loop {
        let receive = |socket: &OwnedFd| scm::receive(socket.as_fd(), &mut packet, false);
        let received = wire.socket.async_io(Interest::READABLE, receive).await;
        let Ok(length @ 1..) = received.map(|received| received.length) else { break };
        let Ok(event) = serde_json::from_slice::<Event>(&packet[..length]) else { break };
        if let Some(event) = wire.note(event.shortened()) {
            let may_be = match &event {
                Event::Files { files: more } => {
                    files = more.iter().map(held).fold(files + OF_AN_EVENT, usize::saturating_add);
                    files <= MAX_FILES_BYTES
                }
                _ => wire.owes(),
            };
            if !may_be {
                break;
            }
            // After the reference machine was frozen and saved there is no receiver, while its
            // clones go on.
            drop(tell.send(event));
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

/// Bytes of a file's entry.
fn held(file: &LoadedFile) -> usize {
    let variables = file.variables.iter().map(|name| size_of::<String>() + name.len());
    let names = file.module.len() + file.path.len() + file.importer.len();
    size_of::<LoadedFile>() + names + variables.sum::<usize>()
}

/// Waits for the event that answers an order to the reference machine; collects files on the way.
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
    match family.monitor.inspect().await {
        Ok((death, stderr)) => ProviderError::ended_early("the micro-VMs' monitor", death, &stderr),
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    /// A wire, and its monitor's end.
    fn wire(directory: &std::path::Path) -> (Arc<Wire>, OwnedFd) {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
        let wire = Wire {
            socket: container::watch(ours).unwrap(),
            clones: Mutex::default(),
            allowance: Mutex::new(Allowance::new(sandbox::Limits::default())),
            owed: AtomicUsize::new(1),
            lost: AtomicBool::new(false),
            missing_calls: Arc::new(MissingCalls::open(directory)),
        };
        (Arc::new(wire), theirs)
    }

    fn say(monitor: &OwnedFd, event: &Event) {
        let packet = serde_json::to_vec(event).unwrap();
        scm::send(monitor.as_fd(), &packet, &[], true).unwrap();
    }

    #[tokio::test]
    async fn a_monitor_says_no_more_of_its_reference_machine_than_was_ordered() {
        let directory = tempfile::tempdir().unwrap();
        let (wire, monitor) = wire(directory.path());
        let (tell, mut told) = mpsc::unbounded_channel();
        // It is up, and its snapshot was written, while the worker still saves another family's.
        wire.owed.fetch_add(1, Ordering::Relaxed);
        say(&monitor, &Event::Up {});
        say(&monitor, &Event::Files { files: Vec::new() });
        for _ in 0..8 {
            say(&monitor, &Event::Saved { failed: None });
        }
        drop(monitor);
        read(Arc::clone(&wire), tell).await;
        assert!(wire.lost.load(Ordering::Relaxed));
        let expected =
            [Event::Up {}, Event::Files { files: Vec::new() }, Event::Saved { failed: None }];
        for event in expected {
            assert_eq!(told.recv().await, Some(event));
        }
        assert_eq!(told.recv().await, None);
    }

    #[tokio::test]
    async fn a_clone_fails_once_and_one_that_there_is_not_never() {
        let directory = tempfile::tempdir().unwrap();
        let (wire, _monitor) = wire(directory.path());
        let stage = watch::Sender::new(Stage::Ordered);
        let state =
            Arc::new(State { stage, bytes: AtomicU64::new(0), last_words: OnceLock::new() });
        wire.clones().insert(7, Arc::clone(&state));
        let refused = || Stage::Refused("no memory".to_owned(), true);
        assert!(!wire.step(8, refused()));
        assert!(wire.step(7, Stage::Lives));
        assert!(wire.step(7, refused()));
        for stage in [refused(), Stage::Lives, Stage::Ordered, refused()] {
            assert!(!wire.step(7, stage.clone()), "{stage:?}");
        }
        assert!(wire.step(7, Stage::Ended(Death::Unknown)));
        assert!(!wire.step(7, refused()));
        // As an event, too.
        let reason = "again".to_owned();
        assert_eq!(wire.note(Event::Failed { number: Some(7), reason, exhausted: false }), None);
        assert_eq!(state.stage(), Stage::Ended(Death::Unknown));
    }
}
