//! Threads: several of the guest's on the one processor of its machine.
//!
//! ```text
//!            ┌── a lock, a sleep, a pipe: it has to wait ──► waiting ── woken, or its time is over ──┐
//!   running ─┤                                                                                       ├─► ready ─► running
//!            └── it yields, or its turn is over ─────────────────────────────────────────────────────┘
//! ```
//! A turn is over after [`TURN`] if another thread is ready, or at once when the time is over for which one waits: who has waited
//! often has little to do, and CPython's threads ask for the interpreter in this way. That is looked at when a thread makes a
//! call, and by a timer, which interrupts whoever computes. Where all wait for each other the last one to wait gets EDEADLK. While the process
//! waits for its channel no thread runs, as in a container that is paused between calls; a template holds all of them. Where a
//! thread keeps it from waiting there when a call is over, it is the monitor that stops the machine until the next one.

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

/// Threads of a process at most.
pub(crate) const MAX_THREADS: usize = 128;

/// A thread that has run for so long makes room for others.
const TURN: Duration = Duration::from_millis(5);

/// Any reason to wait for a futex.
pub(crate) const ANY: u32 = u32::MAX;

/// A process's threads.
#[derive(Clone, Debug)]
pub(crate) struct Threads {
    pub(crate) running: Identity,
    /// Since when it runs; none: it has had its turn.
    pub(crate) since: Option<Instant>,
    /// Until when the call waits that it makes once more.
    pub(crate) until: Option<Instant>,
    /// In the order in which they will have their turns.
    pub(crate) others: VecDeque<Thread>,
    /// The highest number that any has had.
    pub(crate) last: u64,
    /// Since when those whose time was over have had turns before others that were ready.
    passed: Option<Instant>,
    /// Where the call is that the running thread is about to make once more.
    pub(crate) repeats: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) number: u64,
    /// Where the end of the thread is told: a futex that becomes 0. 0: nowhere.
    pub(crate) tells: u64,
}

/// One that does not run.
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
    /// For this, and until then at the latest.
    Waiting(Wait, Option<Instant>),
    /// It makes its call once more, which still waits until then at the latest.
    Again(Option<Instant>),
}

/// Where the running thread stands when a signal comes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ThreadPosition {
    /// Between two instructions.
    Between,
    /// In a call that waits for this, until then at the latest.
    Waiting(Wait, Option<Instant>),
    /// It is no more, and no other one is ready.
    Ended,
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// That somebody wakes those who wait at this address for one of these reasons.
    Futex(u64, u32),
    /// That time passes. What is left when a signal comes is told there; 0: nowhere.
    Time { rest: u64 },
    /// That another thread changes what its call found.
    Change,
}

impl Wait {
    /// What the call returns when its time is over.
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

    /// Ends its waiting, whatever for.
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
    /// The number of the one that runs.
    pub(crate) fn running(&self) -> u64 {
        self.running.number
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.others.len() as u64 + 1
    }

    /// Whether one of this number lives.
    pub(crate) fn live(&self, number: u64) -> bool {
        number == self.running.number
            || self.others.iter().any(|thread| thread.identity.number == number)
    }

    /// `set_tid_address`.
    pub(crate) fn tell_end_at(&mut self, address: u64) -> u64 {
        self.running.tells = address;
        self.running.number
    }

    /// The running one makes a call.
    pub(crate) fn calls(&mut self) {
        self.repeats = None;
    }

    /// `sched_yield`.
    pub(crate) fn tire(&mut self) {
        self.since = None;
    }

    /// A call was answered: what it changed another may have waited for.
    pub(crate) fn changed(&mut self) {
        self.until = None;
        for thread in &mut self.others {
            if let State::Waiting(Wait::Change, until) = thread.state {
                thread.state = State::Again(until);
            }
        }
    }

    /// Until when the call waits at the latest that is made with this wish: or was made, if it is made once more.
    pub(crate) fn limit(&mut self, wanted: Duration) -> Instant {
        self.until.take().unwrap_or_else(|| deadline(wanted))
    }

    /// When the turn of the one that runs is over, if it makes no call until then; none: not before it makes one.
    pub(crate) fn end_of_turn(&self) -> Option<Instant> {
        if self.others.is_empty() {
            return None;
        }
        let is_awaited = self.others.iter().any(Thread::is_ready);
        let its_own = self.since.filter(|_| is_awaited).map(|since| since + TURN);
        its_own.into_iter().chain(self.earliest()).min()
    }

    /// Whether another one shall have its turn.
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

    /// Ends the waiting of those whose time is over, and gives them the next turns: whose was over first has the first. But where that
    /// has gone on for longer than a turn they are the last, so that many short sleeps keep nobody waiting for ever. Who waits for
    /// a change looks once more, and says himself that his time is over. Whether there are any that have the next turns.
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

    /// Wakes those who wait at an address for one of these reasons; how many.
    pub(crate) fn wake(&mut self, address: u64, most: usize, reasons: u32) -> u64 {
        let waits = |thread: &&mut Thread| match thread.state {
            State::Waiting(Wait::Futex(at, why), _) => at == address && why & reasons != 0,
            _ => false,
        };
        let woken = self.others.iter_mut().filter(waits).take(most);
        woken.map(|thread| thread.answer(Ok(0))).count() as u64
    }

    /// Wakes some who wait at an address, and has some more wait at another from now on, behind those who are there
    /// already; how many both are.
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

    /// Where among those that do not run the one of this number is.
    pub(crate) fn place(&self, number: u64) -> Option<usize> {
        self.others.iter().position(|thread| thread.identity.number == number)
    }

    /// Which one a signal to the process comes to; whether the one that runs would take it.
    pub(crate) fn receiver(&self, signal: usize, runs: bool) -> u64 {
        let takers = || self.others.iter().filter(|thread| !thread.signals.block(signal));
        let numbers = || takers().map(|thread| thread.identity.number);
        let first = numbers().find(|number| *number == FIRST_THREAD);
        let running = runs.then_some(self.running.number);
        first.or(running).or_else(|| numbers().next()).unwrap_or(self.running.number)
    }

    /// Whether one that does not run blocks a signal.
    pub(crate) fn blocks(&self, number: u64, signal: usize) -> bool {
        self.place(number).is_some_and(|at| self.others[at].signals.block(signal))
    }

    /// Has a signal wait for one that does not run.
    pub(crate) fn keep(&mut self, number: u64, signal: usize) {
        if let Some(at) = self.place(number) {
            self.others[at].signals.keep(signal);
        }
    }

    /// Bytes of the monitor's memory that those take that do not run.
    pub(crate) fn held(&self) -> u64 {
        self.others.len() as u64 * (size_of::<Thread>() as u64 + Context::HELD)
    }

    /// Which there are, and what they wait for: for comparing two machines.
    pub(crate) fn summary(&self) -> String {
        let others = self.others.iter().map(|thread| (thread.identity, thread.state));
        format!("{:?} {:?}", self.running, others.collect::<Vec<_>>())
    }
}
