//! Threads of the guest on the one processor of its machine.
//!
//! ```text
//!             ┌── a lock, a sleep, a pipe ──► waiting ── woken, or its deadline ──┐
//!   running ──┤                                                                   ├─► ready ─► running
//!             └── it yields, or its turn is over ─────────────────────────────────┘
//! ```
//!
//! A turn is over after [`TURN`] if another thread is ready, or at once when a waiting thread's
//! deadline comes: a thread that waits often has little to do, and CPython's threads ask for the
//! interpreter in this way. The monitor checks when a thread makes a call, and by a timer that
//! interrupts a computing thread. When all threads wait for each other, the last one gets EDEADLK.
//!
//! While the process waits for its channel no thread runs, as in a container that is paused between
//! calls; a template holds all of them. When a thread keeps the process from waiting there after a
//! call, the monitor stops the machine until the next call.

mod saved;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::linux::abi::registers::{Answer, register};
use crate::linux::state::host_clock::deadline;
use crate::linux::state::ids::FIRST_THREAD;
use crate::linux::state::signals::OwnSignals;
use crate::machine::cpu::Context;
pub(crate) use saved::SavedThreads;

/// Threads of a process.
pub(crate) const MAX_THREADS: usize = 128;

/// Length of a turn.
const TURN: Duration = Duration::from_millis(5);

/// All reasons to wait for a futex.
pub(crate) const ANY: u32 = u32::MAX;

/// A process's threads.
#[derive(Clone, Debug)]
pub(crate) struct Threads {
    pub(crate) running: Identity,
    /// When the running thread's turn began; none once it is over.
    pub(crate) since: Option<Instant>,
    /// Deadline of the call that the running thread repeats.
    pub(crate) until: Option<Instant>,
    /// Threads that do not run, in the order of their turns.
    pub(crate) others: VecDeque<Thread>,
    /// The highest number that a thread has had.
    pub(crate) last: u64,
    /// Since when threads with a deadline have been served before other ready ones.
    passed: Option<Instant>,
    /// Address of the call that the running thread is about to repeat.
    pub(crate) repeats: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) number: u64,
    /// Address of a futex that becomes 0 when the thread ends; 0 for none.
    pub(crate) tells: u64,
}

/// A thread that does not run.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    pub(crate) identity: Identity,
    pub(crate) context: Context,
    pub(crate) signals: OwnSignals,
    pub(crate) state: State,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum State {
    Ready,
    /// For this, until the deadline.
    Waiting(Wait, Option<Instant>),
    /// It will repeat its call, with the call's deadline.
    Again(Option<Instant>),
}

/// The position of the running thread when a signal comes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ThreadPosition {
    /// Between two instructions.
    Between,
    /// In a call that waits for this, until the deadline.
    Waiting(Wait, Option<Instant>),
    /// It has ended, and no other thread is ready.
    Ended,
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// A wake-up of this address for one of these reasons.
    Futex(u64, u32),
    /// A moment. An interrupted sleep's remaining time is written to `rest`, unless that is 0.
    Time { rest: u64 },
    /// A change that another thread makes, after which the call is repeated.
    Change,
}

impl Wait {
    /// The call's result at its deadline.
    pub(crate) fn over(self) -> Answer {
        match self {
            Self::Futex(..) => Err(Errno::TIMEDOUT),
            Self::Time { .. } | Self::Change => Ok(0),
        }
    }
}

impl Default for Threads {
    fn default() -> Self {
        let running = Identity { number: FIRST_THREAD, tells: 0 };
        let (others, last) = (VecDeque::new(), running.number);
        Self { running, since: None, until: None, others, last, passed: None, repeats: None }
    }
}

impl Thread {
    pub(crate) fn answer(&mut self, answer: Answer) {
        self.context.set_answer(register(answer));
        self.state = State::Ready;
    }

    /// Ends the thread's wait.
    pub(crate) fn interrupt(&mut self, errno: Errno) {
        match self.state {
            State::Waiting(Wait::Change, until) => self.state = State::Again(until),
            State::Waiting(..) => self.answer(Err(errno)),
            State::Ready | State::Again(_) => {}
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        !matches!(self.state, State::Waiting(..))
    }
}

impl Threads {
    /// The running thread's number.
    pub(crate) fn running(&self) -> u64 {
        self.running.number
    }

    /// Number of threads, the running one included.
    pub(crate) fn count(&self) -> u64 {
        self.others.len() as u64 + 1
    }

    /// Whether a thread with this number lives.
    pub(crate) fn live(&self, number: u64) -> bool {
        number == self.running.number
            || self.others.iter().any(|thread| thread.identity.number == number)
    }

    /// `set_tid_address`: sets the futex, and returns the running thread's number.
    pub(crate) fn tell_end_at(&mut self, address: u64) -> u64 {
        self.running.tells = address;
        self.running.number
    }

    /// The running thread makes a call.
    pub(crate) fn begin_call(&mut self) {
        self.repeats = None;
    }

    /// `sched_yield`: ends the running thread's turn.
    pub(crate) fn end_turn(&mut self) {
        self.since = None;
    }

    /// A call was answered: threads that wait for a change repeat theirs.
    pub(crate) fn call_answered(&mut self) {
        self.until = None;
        for thread in &mut self.others {
            if let State::Waiting(Wait::Change, until) = thread.state {
                thread.state = State::Again(until);
            }
        }
    }

    /// The deadline of a call that may wait this long; the first one, if the call is repeated.
    pub(crate) fn limit(&mut self, wanted: Duration) -> Instant {
        self.until.take().unwrap_or_else(|| deadline(wanted))
    }

    /// When the running thread's turn ends without a call. None: not before its next call.
    pub(crate) fn end_of_turn(&self) -> Option<Instant> {
        if self.others.is_empty() {
            return None;
        }
        let is_awaited = self.others.iter().any(Thread::is_ready);
        let its_own = self.since.filter(|_| is_awaited).map(|since| since + TURN);
        its_own.into_iter().chain(self.earliest()).min()
    }

    /// Whether another thread takes its turn now.
    pub(crate) fn turn_is_over(&mut self) -> bool {
        if self.others.is_empty() {
            return false;
        }
        let now = Instant::now();
        let had = self.since.map(|since| now.duration_since(since));
        let had_enough = had.is_none_or(|had| had >= TURN);
        let others_first =
            self.expire(now) || had_enough && self.others.iter().any(Thread::is_ready);
        if others_first && had.is_some_and(|had| had >= TURN) {
            self.passed = None;
        }
        others_first
    }

    /// Ends the waits whose deadline has come, and gives these threads the next turns, in the order
    /// of their deadlines. After more than a turn of that they go last, so that many short sleeps
    /// do not starve others. A thread that waits for a change repeats its call, which finds that
    /// its time is over. Returns whether any of them goes first.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        let mut next = VecDeque::new();
        let are_awaited = self.others.iter().any(Thread::is_ready);
        while let Some(until) = self.earliest().filter(|until| *until <= now) {
            let over = |thread: &Thread| matches!(thread.state, State::Waiting(_, Some(at)) if at == until);
            let Some(at) = self.others.iter().position(over) else { break };
            let Some(mut thread) = self.others.remove(at) else { break };
            match thread.state {
                State::Waiting(Wait::Change, until) => thread.state = State::Again(until),
                State::Waiting(wait, _) => thread.answer(wait.over()),
                State::Ready | State::Again(_) => {}
            }
            next.push_back(thread);
        }
        if !are_awaited {
            self.passed = None;
        } else if !next.is_empty() {
            let passed = *self.passed.get_or_insert(now);
            if now.duration_since(passed) >= TURN {
                self.others.append(&mut next);
            }
        }
        let come_first = !next.is_empty();
        next.append(&mut self.others);
        self.others = next;
        come_first
    }

    pub(crate) fn earliest(&self) -> Option<Instant> {
        let until = |thread: &Thread| match thread.state {
            State::Waiting(_, until) => until,
            State::Ready | State::Again(_) => None,
        };
        self.others.iter().filter_map(until).min()
    }

    /// Wakes threads that wait at an address for one of these reasons; returns how many.
    pub(crate) fn wake(&mut self, address: u64, most: usize, reasons: u32) -> u64 {
        let waits = |thread: &&mut Thread| match thread.state {
            State::Waiting(Wait::Futex(at, why), _) => at == address && why & reasons != 0,
            _ => false,
        };
        let woken = self.others.iter_mut().filter(waits).take(most);
        woken.map(|thread| thread.answer(Ok(0))).count() as u64
    }

    /// Wakes some threads that wait at an address, and moves others to another address, behind
    /// those that wait there; returns how many both are.
    pub(crate) fn requeue(&mut self, from: u64, woken: usize, to: u64, most: usize) -> u64 {
        let woken = self.wake(from, woken, ANY);
        let (mut moved, mut at) = (Vec::new(), 0);
        while at < self.others.len() && moved.len() < most {
            match &mut self.others[at].state {
                State::Waiting(Wait::Futex(address, _), _) if *address == from => {
                    *address = to;
                    moved.extend(self.others.remove(at));
                }
                _ => at += 1,
            }
        }
        let count = moved.len() as u64;
        self.others.extend(moved);
        woken + count
    }

    /// Index of the thread with this number among those that do not run.
    pub(crate) fn place(&self, number: u64) -> Option<usize> {
        self.others.iter().position(|thread| thread.identity.number == number)
    }

    /// The thread that a signal to the process goes to; `runs`: whether the running one takes it.
    pub(crate) fn receiver(&self, signal: usize, runs: bool) -> u64 {
        let takers = || self.others.iter().filter(|thread| !thread.signals.block(signal));
        let numbers = || takers().map(|thread| thread.identity.number);
        let first = numbers().find(|number| *number == FIRST_THREAD);
        let running = runs.then_some(self.running.number);
        first.or(running).or_else(|| numbers().next()).unwrap_or(self.running.number)
    }

    /// Whether a thread that does not run blocks a signal.
    pub(crate) fn blocks(&self, number: u64, signal: usize) -> bool {
        self.place(number).is_some_and(|at| self.others[at].signals.block(signal))
    }

    /// Makes a signal pending for a thread that does not run.
    pub(crate) fn keep(&mut self, number: u64, signal: usize) {
        if let Some(at) = self.place(number) {
            self.others[at].signals.keep(signal);
        }
    }

    /// Bytes of the monitor's memory for threads that do not run.
    pub(crate) fn held(&self) -> u64 {
        self.others.len() as u64 * (size_of::<Thread>() as u64 + Context::HELD)
    }

    /// Numbers and states of all threads, to compare two machines.
    pub(crate) fn summary(&self) -> String {
        let others = self.others.iter().map(|thread| (thread.identity, thread.state));
        format!("{:?} {:?}", self.running, others.collect::<Vec<_>>())
    }
}
