//! The processor time that a process has used.

use std::time::Duration;

use crate::linux::state::host_clock::read;
use rustix::time::ClockId;

/// The processor time that a process has used.
///
/// It is counted while the process runs, by the clock of the monitor's thread that runs it: only
/// between begin and pause does that clock measure the process alone. The count is part of a
/// template, so a reset takes away the time of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    before: Duration,
    /// The thread's clock when the process began to run; none while it does not run.
    begun: Option<Duration>,
}

impl CpuTime {
    /// The time of a process that does not run.
    pub(crate) fn stopped_at(before: Duration) -> Self {
        Self { before, begun: None }
    }

    /// The process runs from now on, on this thread.
    pub(crate) fn begin(&mut self) {
        self.begun = Some(read(ClockId::ThreadCPUTime));
    }

    /// The process stops running.
    pub(crate) fn pause(&mut self) {
        *self = Self::stopped_at(self.now());
    }

    /// The time used until now.
    pub(crate) fn now(self) -> Duration {
        let running = self.begun.map(|begun| read(ClockId::ThreadCPUTime).saturating_sub(begun));
        self.before.saturating_add(running.unwrap_or_default())
    }
}
