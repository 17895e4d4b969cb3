//! Timers that interrupt a program: its alarm, and its limit of processor time.

use std::time::Instant;

use crate::linux::scheduling::deliver::arrive;
use crate::linux::state::flow::Flow;
use crate::linux::state::process::Process;
use crate::linux::state::signals::{ALRM, XCPU};
use crate::linux::state::threads::ThreadPosition;

/// Sends SIGALRM if the alarm is due. None: the running thread goes on.
pub(crate) fn ring(process: &mut Process, standing: ThreadPosition) -> Option<Flow> {
    if process.kernel.alarm.take_due() { arrive(process, ALRM, standing) } else { None }
}

/// When the limit of processor time is reached, if the process runs on from now.
pub(crate) fn due(process: &Process) -> Option<Instant> {
    let most = process.kernel.limits.processor()?;
    Instant::now().checked_add(most.saturating_sub(process.used.now()))
}

/// Sends SIGXCPU or SIGKILL if the limit of processor time is reached. None: the running thread
/// goes on.
pub(crate) fn spend(process: &mut Process, standing: ThreadPosition) -> Option<Flow> {
    let used = process.used.now();
    if process.kernel.limits.processor().is_none_or(|most| used < most) {
        return None;
    }
    let limits = &mut process.kernel.limits;
    let [_, hard] = limits.all[libc::RLIMIT_CPU as usize];
    if used.as_secs() >= hard {
        return Some(Flow::Kill(libc::SIGKILL));
    }
    limits.next_warning = Some(used.as_secs() + 1);
    arrive(process, XCPU, standing)
}
