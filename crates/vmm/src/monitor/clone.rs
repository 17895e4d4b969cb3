//! One clone, on a thread of its own, from its making to its end.
//!
//! ```text
//!   spawn, or a spare ─► wake ─► told: cloned ─► channel ─► feed ─► run ─► idle ─┐      closed: dropped
//!                                       ▲                            │      ended: told how, channel closed
//!                                       └────────────────────────────┘
//! ```

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use microvm::linux::{Pause, Process, Template};
use microvm::vfs::Branch;
use sandbox::wire::Request;
use sandbox::{Death, Limits};

use super::conversation::{Answer, Channel};
use super::family::Family;
use super::hold::Hold;
use super::pristine;
use super::reference::Trouble;
use crate::message::{Event, MAX_LAST_WORDS, Place};

/// Bytes read at a time.
const READ: usize = 16 << 10;

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
    /// Runs on its own thread, to its end. `spare` is a machine that waits for its order.
    pub(super) fn live(self, spare: Option<Process>) {
        let end =
            contained(|| if self.reset { pristine::live(&self) } else { self.converse(spare) });
        let death = end.unwrap_or_else(|trouble| {
            self.family.tell(&Event::failed(Some(self.number), &trouble));
            Some(Death::Unknown)
        });
        if let Some(death) = death {
            let said = self.last_words.take();
            self.family.tell(&Event::Ended { number: self.number, death, said });
        }
        self.channel.close();
        self.family.tell(&Event::Gone { number: self.number });
    }

    fn converse(&self, spare: Option<Process>) -> Result<End, Trouble> {
        let mut process = match spare {
            // It is awake.
            Some(spare) => self.bound(spare),
            None => self.spawn(&self.family.template)?,
        };
        for (place, branch) in &self.layers {
            process.attach(&place.at, Arc::clone(branch)).map_err(Trouble::Attach)?;
        }
        self.family.tell(&Event::Cloned { number: self.number });
        if let ControlFlow::Break(end) = self.run(&mut process)? {
            return Ok(end);
        }
        let mut scale = Scale::default();
        let mut buffer = vec![0; READ];
        loop {
            let count = self.hold.read(&self.channel, &mut buffer);
            if count == 0 {
                return Ok(None);
            }
            process.feed(&buffer[..count]);
            let flow = self.run(&mut process)?;
            // An instance that is not kept is over as soon as it has answered.
            scale.note(self, &process);
            if let ControlFlow::Break(end) = flow {
                return Ok(end);
            }
            scale.weigh(self, &process);
        }
    }

    /// A machine that goes on where the template stands, woken, within this clone's limits.
    pub(super) fn spawn(&self, template: &Template) -> Result<Process, Trouble> {
        let mut process = self.bound(template.spawn(&self.family.host)?);
        wake(&mut process);
        Ok(process)
    }

    /// Within this clone's limits, and stopped with it.
    fn bound(&self, mut process: Process) -> Process {
        let Limits { memory_bytes, scratch_bytes, scratch_inodes, .. } = self.limits;
        // Of either scratch directory; they share their room here.
        process.limit(memory_bytes, scratch_bytes, scratch_inodes);
        process.stop_by(self.hold.stopper());
        process.be_prompt();
        process
    }

    /// Runs it until it waits for its channel, passing on what it says.
    pub(super) fn run(&self, process: &mut Process) -> Result<ControlFlow<End>, Trouble> {
        self.run_until(process, None)
    }

    /// The same, but no further than to the end of the answer to its call, where one is looked for.
    pub(super) fn run_until(
        &self,
        process: &mut Process,
        answer: Option<&mut Answer>,
    ) -> Result<ControlFlow<End>, Trouble> {
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
    ) -> Result<ControlFlow<End>, Trouble> {
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

/// A defect that shows in one clone is that clone's end, told like any other, and its family goes on.
fn contained(life: impl FnOnce() -> Result<End, Trouble>) -> Result<End, Trouble> {
    catch_unwind(AssertUnwindSafe(life)).unwrap_or(Err(Trouble::Panicked))
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
pub(super) struct Scale {
    rounds: u32,
}

impl Scale {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_is_told_of_as_any_other_trouble() {
        assert!(matches!(contained(|| Ok(None)), Ok(None)));
        assert!(matches!(contained(|| Err(Trouble::Unexpected)), Err(Trouble::Unexpected)));
        assert!(matches!(contained(|| panic!("a defect")), Err(Trouble::Panicked)));
    }
}
