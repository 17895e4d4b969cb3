//! The thread of one clone, from its making to its end.
//!
//! ```text
//!   spawn, or a spare ─► wake ─► Event::Cloned ─► channel ─► feed ─► run ─► idle ─┐   closed: dropped
//!                                        ▲                            │           │   ended: Event::Ended,
//!                                        └────────────────────────────┴───────────┘   channel closed
//! ```

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use microvm::linux::Process;
use sandbox::Death;

use super::reference::MonitorError;
use super::reset_clone;
use super::running::{End, RunningClone, WeightReporter};
use crate::message::Event;

/// Bytes read at a time.
const READ: usize = 16 << 10;

impl RunningClone {
    /// Runs on the clone's own thread, to its end. `spare` is a machine made ahead of time.
    pub(super) fn live(self, spare: Option<Process>) {
        let end =
            contained(|| if self.reset { reset_clone::live(&self) } else { self.converse(spare) });
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

    fn converse(&self, spare: Option<Process>) -> Result<End, MonitorError> {
        let mut process = match spare {
            // A spare is awake already.
            Some(spare) => self.bound(spare),
            None => self.spawn(&self.family.template)?,
        };
        for (place, branch) in &self.layers {
            process.attach(&place.at, Arc::clone(branch)).map_err(MonitorError::Attach)?;
        }
        self.family.tell(&Event::Cloned { number: self.number });
        if let ControlFlow::Break(end) = self.run(&mut process)? {
            return Ok(end);
        }
        let mut scale = WeightReporter::default();
        let mut buffer = vec![0; READ];
        loop {
            let count = self.hold.read(&self.channel, &mut buffer);
            if count == 0 {
                return Ok(None);
            }
            process.feed(&buffer[..count]);
            let flow = self.run(&mut process)?;
            // Noted before the end: an instance that is not kept is over as soon as it has
            // answered.
            scale.note(self, &process);
            if let ControlFlow::Break(end) = flow {
                return Ok(end);
            }
            scale.weigh(self, &process);
        }
    }
}

/// A panic in one clone's thread ends that clone, like any other error, and its family goes on.
fn contained(life: impl FnOnce() -> Result<End, MonitorError>) -> Result<End, MonitorError> {
    catch_unwind(AssertUnwindSafe(life)).unwrap_or(Err(MonitorError::Panicked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_is_told_of_as_any_other_trouble() {
        assert!(matches!(contained(|| Ok(None)), Ok(None)));
        assert!(matches!(
            contained(|| Err(MonitorError::Unexpected)),
            Err(MonitorError::Unexpected)
        ));
        assert!(matches!(contained(|| panic!("a defect")), Err(MonitorError::Panicked)));
    }
}
