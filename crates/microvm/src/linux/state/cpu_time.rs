//! How much of the processor a process has used.

use std::time::Duration;

use crate::linux::state::host_clock::read;
use rustix::time::ClockId;

/// What a process has used of the processor.
///
/// It is counted while the process runs, by the clock of whichever thread of the monitor's runs it: that is a process's own only
/// between its begin and its pause. What was counted is part of a template, so that a reset takes away what calls have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    before: Duration,
    /// What the thread's clock said when it began to run; none while it does not.
    begun: Option<Duration>,
}

impl CpuTime {
    /// By one that does not run.
    pub(crate) fn so_much(before: Duration) -> Self {
        Self { before, begun: None }
    }

    /// It runs from now on, on this thread.
    pub(crate) fn begin(&mut self) {
        self.begun = Some(read(ClockId::ThreadCPUTime));
    }

    /// It does not any more.
    pub(crate) fn pause(&mut self) {
        *self = Self::so_much(self.now());
    }

    /// Until now.
    pub(crate) fn now(self) -> Duration {
        let running = self.begun.map(|begun| read(ClockId::ThreadCPUTime).saturating_sub(begun));
        self.before.saturating_add(running.unwrap_or_default())
    }
}
