//! A running clone: its machine is spawned within its limits, and its guest's output is passed on.

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

/// A clone, with its family, its limits and its channel.
#[derive(Debug)]
pub(super) struct RunningClone {
    pub(super) family: Arc<Family>,
    pub(super) number: u64,
    /// Layers beyond the reference machine's.
    pub(super) layers: Vec<(Place, Arc<Branch>)>,
    pub(super) limits: Limits,
    pub(super) reset: bool,
    pub(super) channel: Channel,
    /// Stops it when the other end of its channel closes, and between calls.
    pub(super) hold: Hold,
    /// The end of its guest's output, told with its death.
    pub(super) last_words: RefCell<String>,
}

/// How the guest ended; none if its channel closed.
pub(super) type End = Option<Death>;

impl RunningClone {
    /// A clone of a template, woken, within this clone's limits.
    pub(super) fn spawn(&self, template: &Template) -> Result<Process, MonitorError> {
        let mut process = self.bound(template.spawn(&self.family.host)?);
        wake(&mut process);
        Ok(process)
    }

    /// Applies this clone's limits, and its stopper.
    pub(super) fn bound(&self, mut process: Process) -> Process {
        let Limits { memory_bytes, scratch_bytes, scratch_inodes, .. } = self.limits;
        // Both scratch directories share one room here.
        process.limit(memory_bytes, scratch_bytes, scratch_inodes);
        process.share_scratch(scratch_bytes.saturating_sub(Limits::SCRATCH));
        process.measure_by(&self.family.scanner);
        process.stop_by(self.hold.stopper());
        process.be_prompt();
        process
    }

    /// Runs the guest until it waits for its channel, and passes on its output.
    pub(super) fn run(&self, process: &mut Process) -> Result<ControlFlow<End>, MonitorError> {
        self.run_until(process, None)
    }

    /// The same, up to the end of the answer to its call, where one is looked for.
    pub(super) fn run_until(
        &self,
        process: &mut Process,
        answer: Option<&mut Answer>,
    ) -> Result<ControlFlow<End>, MonitorError> {
        let outcome = self.pass_on(process, answer);
        // Whatever the outcome: a missing call is often the cause.
        self.family.note_missing_calls(process);
        outcome
    }

    /// Keeps the end of an ended guest's output.
    pub(super) fn note_last_words(&self, process: &Process) {
        // A byte that is not text becomes three.
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
            // Output from before the guest had streams of its own.
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
                    // Like a process that waits for itself: until the call's deadline closes the
                    // channel.
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
                Pause::OutOfMemory => {
                    self.note_last_words(process);
                    return Ok(ControlFlow::Break(Some(Death::OutOfMemory)));
                }
            }
        }
    }
}

/// A clone or a reset machine renews its randomness, which must not be a sibling's.
pub(super) fn wake(process: &mut Process) {
    let mut bytes = Vec::new();
    // The message is shorter than any limit.
    let _ = Request::Wake {}.encode(b"", &mut bytes);
    process.feed(&bytes);
}

/// Tells a clone's memory after its first call, and then ever more rarely, since measuring takes
/// some hundred microseconds. Not after its load, which a call waits for.
#[derive(Debug, Default)]
pub(super) struct WeightReporter {
    rounds: u32,
}

impl WeightReporter {
    /// Counts a run. From its first call later clones learn which pages they will touch.
    pub(super) fn note(&mut self, clone: &RunningClone, process: &Process) {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds == 2 && clone.family.template.wants_to_learn() {
            // A clone that was not watched has nothing to teach.
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
