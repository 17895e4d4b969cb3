//! Clones that are made ahead of time.
//!
//! ```text
//!   spawn, with the pages of a call touched ─► wake ─► wait ─► an order: a clone, on the same thread
//! ```
//!
//! A first call is slow because it touches pages for the first time: each one is a fault of the
//! guest's and one of the host's. The first clone of a family rehearses a call to find these pages
//! for all clones ([`try_out`]), and the first clones that answer a call complete the list.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use microvm::linux::{Pause, Process, Template};
use microvm::machine::Hypervisor;
use microvm::machine::Stopper;
use microvm::memory::Scanner;

use super::family::Family;
use super::hold::Hold;
use super::reference::{GuestOrder, MonitorError};
use super::running::RunningClone;

/// Longest time to make a spare: it has no limits of a clone's yet, and packages influence how a
/// clone wakes.
const REHEARSAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of memory that a spare may use beyond the reference machine's.
const ROOM: u64 = 64 << 20;

/// The spares of one family.
#[derive(Debug)]
pub(super) struct Spares {
    family: Arc<Family>,
    wanted: usize,
    all: VecDeque<Spare>,
}

/// A clone that waits for its order, or is being made.
#[derive(Debug)]
pub(super) struct Spare {
    orders: SyncSender<RunningClone>,
    /// Whether it could be made, once that is known.
    made: Arc<OnceLock<bool>>,
    /// Stops it when it takes too long; later the hold of the clone that it becomes.
    hold: Hold,
    since: Instant,
}

impl Spares {
    pub(super) fn new(family: Arc<Family>, wanted: usize) -> Self {
        let mut spares = Self { family, wanted, all: VecDeque::new() };
        spares.fill();
        spares
    }

    /// Time until a spare has to be checked: see [`Spares::check`].
    pub(super) fn due(&self) -> Option<Duration> {
        self.unready().map(|spare| REHEARSAL_TIMEOUT.saturating_sub(spare.since.elapsed())).min()
    }

    /// Stops spares that take too long.
    pub(super) fn check(&self) {
        let overdue = self.unready().filter(|spare| spare.since.elapsed() >= REHEARSAL_TIMEOUT);
        overdue.for_each(|spare| spare.hold.stopper().stop());
    }

    /// Spares that are being made. A stopped one ends by itself.
    fn unready(&self) -> impl Iterator<Item = &Spare> {
        let making = self.all.iter().filter(|spare| spare.made.get().is_none());
        making.filter(|spare| !spare.hold.stopper().wanted())
    }

    /// A spare that is ready, else the one that will be ready first.
    pub(super) fn take(&mut self) -> Option<Spare> {
        // At an order, and not sooner: otherwise a spare that cannot be made would be tried again
        // and again.
        self.all.retain(|spare| spare.made.get() != Some(&false));
        let ready = self.all.iter().position(|spare| spare.made.get().is_some());
        self.all.remove(ready.unwrap_or(0))
    }

    /// Makes as many spares as are wanted.
    pub(super) fn fill(&mut self) {
        while self.all.len() < self.wanted {
            let (orders, given) = sync_channel(1);
            let (made, hold) = (Arc::<OnceLock<bool>>::default(), Hold::default());
            let (family, told, stopped_by) =
                (Arc::clone(&self.family), Arc::clone(&made), hold.stopper());
            let thread = std::thread::Builder::new().name("spare".to_owned());
            if thread.spawn(move || wait(&family, &given, &told, stopped_by)).is_err() {
                return;
            }
            self.all.push_back(Spare { orders, made, hold, since: Instant::now() });
        }
    }
}

impl Spare {
    /// The hold of the clone that it becomes.
    pub(super) fn hold(&self) -> Hold {
        self.hold.clone()
    }

    /// Gives it an order. Returns the order if the spare has ended.
    pub(super) fn give(self, clone: RunningClone) -> Option<RunningClone> {
        self.orders.send(clone).err().map(|back| back.0)
    }
}

/// Runs on the spare's own thread, and goes on as the clone that it becomes.
fn wait(family: &Family, given: &Receiver<RunningClone>, told: &OnceLock<bool>, stopper: Stopper) {
    let made = make(family, stopper).ok();
    let _ = told.set(made.is_some());
    // An order may have come while the spare failed.
    let order = if made.is_some() { given.recv().ok() } else { given.try_recv().ok() };
    if let Some(clone) = order {
        clone.live(made);
    }
}

fn make(family: &Family, stopper: Stopper) -> Result<Process, MonitorError> {
    let is_lesson = family.template.wants_to_learn();
    let mut process = if is_lesson {
        // Pages touched ahead of time are not marked when a clone uses them.
        family.template.spawn(&family.host)?
    } else {
        family.template.spawn_ahead(&family.host)?
    };
    process.stop_by(stopper);
    process.limit(ROOM, 0, 0);
    if is_lesson {
        process.watch()?;
    }
    // From here on its random numbers are its own: no two spares share them.
    super::running::wake(&mut process);
    wait_idle(&mut process)?;
    Ok(process)
}

fn wait_idle(process: &mut Process) -> Result<(), MonitorError> {
    match process.run()? {
        Pause::Idle => Ok(()),
        pause => Err(MonitorError::Ended(pause, String::new())),
    }
}

/// Has a clone do all that a load and a call do.
fn rehearse(process: &mut Process) -> Result<(), MonitorError> {
    super::running::wake(process);
    process.feed(&GuestOrder::Rehearse {}.encoded()?);
    wait_idle(process)
}

/// Rehearses with a first clone, and learns which pages all clones will touch. Returns the bytes
/// that a spare then owns.
pub(super) fn try_out(
    template: &Template,
    host: &Hypervisor,
    scanner: &Scanner,
) -> Result<u64, MonitorError> {
    let mut first = template.spawn(host)?;
    first.watch()?;
    rehearse(&mut first)?;
    template.learn(&first, scanner)?;
    drop(first);
    let mut second = template.spawn_ahead(host)?;
    super::running::wake(&mut second);
    wait_idle(&mut second)?;
    Ok(second.weigh(scanner).unwrap_or(0))
}
