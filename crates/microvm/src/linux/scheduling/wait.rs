//! Waits for another thread, for a moment, or for a message of the worker's.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::linux::scheduling::switch::{resumed, switch};
use crate::linux::scheduling::timers;
use crate::linux::state::flow::{Flow, Pause};
use crate::linux::state::process::Process;
use crate::linux::state::threads::{State, Thread, ThreadPosition, Wait};

/// Longest single sleep; a stop from outside is noticed after it.
const NAP: Duration = Duration::from_millis(5);

/// Has the running thread wait and another one run. With no other thread the monitor sleeps.
pub(crate) fn wait(process: &mut Process, wait: Wait, until: Option<Instant>) -> Flow {
    loop {
        if let Some(flow) = timers::ring(process, ThreadPosition::Waiting(wait, until)) {
            return flow;
        }
        let threads = &mut process.kernel.threads;
        let now = Instant::now();
        threads.expire(now);
        if threads.others.iter().any(Thread::is_ready) {
            return resumed(switch(process, State::Waiting(wait, until)));
        }
        if until.is_some_and(|until| until <= now) {
            return Flow::Answer(wait.over());
        }
        let alarm = process.kernel.alarm.at();
        let Some(next) = threads.earliest().into_iter().chain(until).chain(alarm).min() else {
            // All threads wait for each other: C libraries end the program with a message.
            return match wait {
                Wait::Change => Flow::Again(Pause::Stuck),
                Wait::Futex(..) | Wait::Time { .. } => Flow::Answer(Err(Errno::DEADLK)),
            };
        };
        if sleep_until(process, next).is_err() {
            return Flow::Answer(Err(Errno::INTR));
        }
    }
}

/// Sleeps in naps, so that a stop ends the sleep like a signal: EINTR.
pub(crate) fn sleep_until(process: &Process, moment: Instant) -> Result<(), Errno> {
    let stopper = process.stopper();
    loop {
        // Checked first, because a caller may repeat very short sleeps without end.
        if stopper.wanted() {
            return Err(Errno::INTR);
        }
        let rest = moment.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Ok(());
        }
        std::thread::sleep(rest.min(NAP));
    }
}
