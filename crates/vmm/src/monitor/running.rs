//! A clone that runs: its machine is spawned within its limits, and what its guest says is passed on.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;

use microvm::linux::{Pause, Process, Template};
use microvm::vfs::Branch;
use sandbox::wire::Request;
use sandbox::{Death, Limits};

use super::conversation::{Answer, Channel};
use super::family::Family;
use super::hold::Hold;
use super::reference::MonitorError;
use crate::message::{Event, MAX_LAST_WORDS, Place};

/// A clone, and what it lives by.
#[derive(Debug)]
pub(super) struct RunningClone {
    pub(super) family: Arc<Family>,
    pub(super) number: u64,
    /// Beyond the reference machine's.
    pub(super) layers: Vec<(Place, Arc<Branch>)>,
    pub(super) limits: Limits,
    pub(super) reset: bool,
    pub(super) channel: Channel,
    /// Stops it when the other end of its channel closes, and between calls.
    pub(super) hold: Hold,
    /// What its guest had written when that ended: told with its death.
    pub(super) last_words: RefCell<String>,
}

/// How it ended: by itself, or because nobody wants it any more.
pub(super) type End = Option<Death>;

impl RunningClone {
    /// A machine that goes on where the template stands, woken, within this clone's limits.
    pub(super) fn spawn(&self, template: &Template) -> Result<Process, MonitorError> {
        let mut process = self.bound(template.spawn(&self.family.host)?);
        wake(&mut process);
        Ok(process)
    }

    /// Within this clone's limits, and stopped with it.
    pub(super) fn bound(&self, mut process: Process) -> Process {
        let Limits { memory_bytes, scratch_bytes, scratch_inodes, .. } = self.limits;
        // Of either scratch directory; they share their room here.
        process.limit(memory_bytes, scratch_bytes, scratch_inodes);
        process.stop_by(self.hold.stopper());
        process.be_prompt();
        process
    }

    /// Runs it until it waits for its channel, passing on what it says.
    pub(super) fn run(&self, process: &mut Process) -> Result<ControlFlow<End>, MonitorError> {
        self.run_until(process, None)
    }

    /// The same, but no further than to the end of the answer to its call, where one is looked for.
    pub(super) fn run_until(
        &self,
        process: &mut Process,
        answer: Option<&mut Answer>,
    ) -> Result<ControlFlow<End>, MonitorError> {
        let outcome = self.pass_on(process, answer);
        // However that ended: what is missing is often why.
        self.family.note_lacking(process);
        outcome
    }

    /// Its guest has ended, and says no more itself.
    pub(super) fn note_last_words(&self, process: &Process) {
        // Each byte that is no text becomes three.
        let words = process.last_words(MAX_LAST_WORDS / 3);
        self.last_words.replace(String::from_utf8_lossy(&words).into_owned());
    }

    fn pass_on(
        &self,
        process: &mut Process,
        mut answer: Option<&mut Answer>,
    ) -> Result<ControlFlow<End>, MonitorError> {
        loop {
            let pause = process.run()?;
            let mut said = process.take_said();
            if let Some(answer) = &mut answer {
                said.truncate(answer.take(&said));
            }
            // What came before the guest had streams of its own.
            drop(process.take_output());
            if !self.channel.write(&said) {
                return Ok(ControlFlow::Break(None));
            }
            if answer.as_ref().is_some_and(|answer| answer.is_whole()) {
                return Ok(ControlFlow::Continue(()));
            }
            match pause {
                Pause::Spoke => {}
                Pause::Idle => return Ok(ControlFlow::Continue(())),
                Pause::Stopped if self.hold.outlast() => {}
                Pause::Stopped => return Ok(ControlFlow::Break(None)),
                Pause::Stuck => {
                    // As a process that waits for itself: until its time is over.
                    self.channel.outlast();
                    return Ok(ControlFlow::Break(None));
                }
                Pause::Exited(status) => {
                    self.note_last_words(process);
                    return Ok(ControlFlow::Break(Some(Death::Exited(status))));
                }
                Pause::Killed(signal, _) => {
                    self.note_last_words(process);
                    return Ok(ControlFlow::Break(Some(Death::Signal(signal))));
                }
            }
        }
    }
}

/// It is a clone, or was reset: its randomness must not be a sibling's.
pub(super) fn wake(process: &mut Process) {
    let mut bytes = Vec::new();
    // Shorter than any limit.
    let _ = Request::Wake {}.encode(b"", &mut bytes);
    process.feed(&bytes);
}

/// Tells what a clone weighs: after its first call, and then ever more rarely, since it takes some hundred microseconds.
/// Not after its load: a call waits for the end of that.
#[derive(Debug, Default)]
pub(super) struct WeightReporter {
    rounds: u32,
}

impl WeightReporter {
    /// It has run once more. From its first call others learn what they will touch.
    pub(super) fn note(&mut self, clone: &RunningClone, process: &Process) {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds == 2 && clone.family.template.wants_lessons() {
            // Of one that was not watched nothing is known.
            let _ = clone.family.template.learn(process, &clone.family.scanner);
        }
    }

    pub(super) fn weigh(&self, clone: &RunningClone, process: &Process) {
        if self.rounds == 1 || !self.rounds.is_power_of_two() {
            return;
        }
        if let Ok(bytes) = process.weigh(&clone.family.scanner) {
            clone.family.tell(&Event::Weighs { number: clone.number, bytes });
        }
    }
}
