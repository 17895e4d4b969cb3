//! Clones that are made before anybody asks for one.
//!
//! ```text
//!   spawn ─► wake ─► rehearse ─► reset ─► wake ─► waits ─► an order: a clone like any other, on the same thread
//! ```
//! What makes a first call slow is what it touches for the first time: each page is a fault of the guest's and one of the
//! host's. A rehearsal touches what a load and a call touch; the reset puts their contents back and leaves the pages where
//! they are.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use microvm::linux::{Pause, Process};

use super::clone::Clone;
use super::family::Family;
use super::reference::{Trouble, Word};

/// Those of one family.
#[derive(Debug)]
pub(super) struct Spares {
    family: Arc<Family>,
    wanted: usize,
    all: VecDeque<Spare>,
}

/// One that waits, or is about to.
#[derive(Debug)]
struct Spare {
    orders: SyncSender<Clone>,
    ready: Arc<AtomicBool>,
}

impl Spares {
    pub(super) fn new(family: Arc<Family>, wanted: usize) -> Self {
        let mut spares = Self { family, wanted, all: VecDeque::new() };
        spares.fill();
        spares
    }

    /// Gives an order to a spare that is ready, else to the one that will be first. Back comes what none could take.
    pub(super) fn give(&mut self, mut clone: Clone) -> Option<Clone> {
        while !self.all.is_empty() {
            let ready = self.all.iter().position(|spare| spare.ready.load(Ordering::Acquire));
            let Some(spare) = self.all.remove(ready.unwrap_or(0)) else { break };
            match spare.orders.send(clone) {
                Ok(()) => return None,
                // It could not be made after all.
                Err(back) => clone = back.0,
            }
        }
        Some(clone)
    }

    /// Has as many made as are wanted.
    pub(super) fn fill(&mut self) {
        while self.all.len() < self.wanted {
            let (orders, given) = sync_channel(1);
            let ready = Arc::new(AtomicBool::new(false));
            let (family, told) = (Arc::clone(&self.family), Arc::clone(&ready));
            let thread = std::thread::Builder::new().name("spare".to_owned());
            if thread.spawn(move || wait(&family, &given, &told)).is_err() {
                return;
            }
            self.all.push_back(Spare { orders, ready });
        }
    }
}

/// Runs on the spare's own thread, and goes on as the clone that it becomes.
fn wait(family: &Family, given: &Receiver<Clone>, ready: &AtomicBool) {
    let Ok(mut process) = family.template.spawn(&family.host) else { return };
    // Who is waited for does not rehearse.
    if let Ok(clone) = given.try_recv() {
        super::clone::wake(&mut process);
        return clone.live(Some(process));
    }
    let rehearsed = rehearsed(family, process);
    ready.store(true, Ordering::Release);
    if let Ok(clone) = given.recv() {
        clone.live(rehearsed.ok());
    }
}

fn rehearsed(family: &Family, mut process: Process) -> Result<Process, Trouble> {
    rehearse(&mut process)?;
    let mut scanner = family.scanner()?;
    let mut process = family.template.reset(process, &mut scanner)?.0;
    // Its numbers are its own from here on: no two spares go on from one.
    super::clone::wake(&mut process);
    wait_idle(&mut process)?;
    Ok(process)
}

fn wait_idle(process: &mut Process) -> Result<(), Trouble> {
    match process.run()? {
        Pause::Idle => Ok(()),
        pause => Err(Trouble::Ended(pause, String::new())),
    }
}

/// Has a clone do all that a load and a call do.
pub(super) fn rehearse(process: &mut Process) -> Result<(), Trouble> {
    super::clone::wake(process);
    process.feed(&Word::Rehearse {}.encoded()?);
    wait_idle(process)
}
