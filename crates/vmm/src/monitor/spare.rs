//! Clones that are made before anybody asks for one.
//!
//! ```text
//!   spawn, all touched that a call touches ─► wake ─► waits ─► an order: a clone like any other, on the same thread
//! ```
//! What makes a first call slow is what it touches for the first time: each page is a fault of the
//! guest's and one of the host's. What that is the first clone of a family rehearses for all
//! ([`try_out`]), and the first ones that answer a call complete it.

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

/// What making one may take: there is nobody yet whose limits would hold, and packages have a say
/// in how a clone wakes.
const REHEARSAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of memory beyond the reference machine's.
const ROOM: u64 = 64 << 20;

/// Those of one family.
#[derive(Debug)]
pub(super) struct Spares {
    family: Arc<Family>,
    wanted: usize,
    all: VecDeque<Spare>,
}

/// One that waits, or is about to.
#[derive(Debug)]
pub(super) struct Spare {
    orders: SyncSender<RunningClone>,
    /// Whether it could be made, once that is known.
    made: Arc<OnceLock<bool>>,
    /// Stops it when it takes too long, and then the clone that it becomes.
    hold: Hold,
    since: Instant,
}

impl Spares {
    pub(super) fn new(family: Arc<Family>, wanted: usize) -> Self {
        let mut spares = Self { family, wanted, all: VecDeque::new() };
        spares.fill();
        spares
    }

    /// How long until one of them has to be looked after: see [`Spares::check`].
    pub(super) fn due(&self) -> Option<Duration> {
        self.unready().map(|spare| REHEARSAL_TIMEOUT.saturating_sub(spare.since.elapsed())).min()
    }

    /// Stops those that take too long.
    pub(super) fn check(&self) {
        let overdue = self.unready().filter(|spare| spare.since.elapsed() >= REHEARSAL_TIMEOUT);
        overdue.for_each(|spare| spare.hold.stopper().stop());
    }

    /// Those that are being made; one that was stopped ends by itself.
    fn unready(&self) -> impl Iterator<Item = &Spare> {
        let making = self.all.iter().filter(|spare| spare.made.get().is_none());
        making.filter(|spare| !spare.hold.stopper().wanted())
    }

    /// One that is ready, else the one that will be first.
    pub(super) fn take(&mut self) -> Option<Spare> {
        // At an order, and not sooner: what cannot be made would be tried again and again.
        self.all.retain(|spare| spare.made.get() != Some(&false));
        let ready = self.all.iter().position(|spare| spare.made.get().is_some());
        self.all.remove(ready.unwrap_or(0))
    }

    /// Has as many made as are wanted.
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
    /// Of the clone that it becomes.
    pub(super) fn hold(&self) -> Hold {
        self.hold.clone()
    }

    /// Gives it an order. Back comes one that it cannot take.
    pub(super) fn give(self, clone: RunningClone) -> Option<RunningClone> {
        self.orders.send(clone).err().map(|back| back.0)
    }
}

/// Runs on the spare's own thread, and goes on as the clone that it becomes.
fn wait(family: &Family, given: &Receiver<RunningClone>, told: &OnceLock<bool>, stopper: Stopper) {
    let made = make(family, stopper).ok();
    let _ = told.set(made.is_some());
    // One that failed has perhaps got an order meanwhile.
    let order = if made.is_some() { given.recv().ok() } else { given.try_recv().ok() };
    if let Some(clone) = order {
        clone.live(made);
    }
}

fn make(family: &Family, stopper: Stopper) -> Result<Process, MonitorError> {
    let is_lesson = family.template.wants_lessons();
    let mut process = if is_lesson {
        // What was touched ahead cannot be seen to be touched.
        family.template.spawn(&family.host)?
    } else {
        family.template.spawn_ahead(&family.host)?
    };
    process.stop_by(stopper);
    process.limit(ROOM, 0, 0);
    if is_lesson {
        process.watch()?;
    }
    // Its numbers are its own from here on: no two spares go on from one.
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

/// Rehearses with a first clone, and learns from it what all of them will touch. Bytes of its own
/// that a spare then has.
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
