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

use super::call::{Flow, register};
use super::identity::FIRST_THREAD;
use super::process::{Pause, Process};
use super::signals::{self, OwnSignals};
use super::{Answer, alarm, clock};
use crate::machine::VcpuError;
use crate::machine::cpu::Context;
use crate::memory::layout::USER_HALF_END;
pub(super) use saved::SavedThreads;

/// Threads of a process at most.
pub(super) const MOST: usize = 128;
/// A thread that has run for so long makes room for others.
const TURN: Duration = Duration::from_millis(5);
/// Longest wait that is told from an endless one.
pub(super) const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Any reason to wait for a futex.
pub(super) const ANY: u32 = u32::MAX;

/// A process's threads.
#[derive(Clone, Debug)]
pub(super) struct Threads {
    running: Identity,
    /// Since when it runs; none: it has had its turn.
    since: Option<Instant>,
    /// Until when the call waits that it makes once more.
    until: Option<Instant>,
    /// In the order in which they will have their turns.
    others: VecDeque<Thread>,
    /// The highest number that any has had.
    last: u64,
    /// Since when those whose time was over have had turns before others that were ready.
    passed: Option<Instant>,
    /// Where the call is that the running thread is about to make once more.
    repeats: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    number: u64,
    /// Where the end of the thread is told: a futex that becomes 0. 0: nowhere.
    tells: u64,
}

/// One that does not run.
#[derive(Clone, Debug)]
struct Thread {
    identity: Identity,
    context: Context,
    signals: OwnSignals,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Ready,
    /// For this, and until then at the latest.
    Waiting(Wait, Option<Instant>),
    /// It makes its call once more, which still waits until then at the latest.
    Again(Option<Instant>),
}

/// Where the running thread stands when a signal comes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Standing {
    /// Between two instructions.
    Between,
    /// In a call that waits for this, until then at the latest.
    Waiting(Wait, Option<Instant>),
    /// It is no more, and no other one is ready.
    Ended,
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    /// That somebody wakes those who wait at this address for one of these reasons.
    Futex(u64, u32),
    /// That time passes. What is left when a signal comes is told there; 0: nowhere.
    Time { rest: u64 },
    /// That another thread changes what its call found.
    Change,
}

impl Wait {
    /// What the call returns when its time is over.
    fn over(self) -> Answer {
        match self {
            Self::Futex(..) => Err(Errno::TIMEDOUT),
            Self::Time { .. } | Self::Change => Ok(0),
        }
    }

    /// A signal ends it.
    pub(super) fn interrupted(
        self,
        process: &mut Process,
        until: Option<Instant>,
    ) -> Result<(), Errno> {
        match self {
            Self::Time { rest } => clock::tell_rest(process, rest, until),
            Self::Futex(..) | Self::Change => Ok(()),
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
    fn answer(&mut self, answer: Answer) {
        self.context.set_answer(register(answer));
        self.state = State::Ready;
    }

    /// Ends its waiting, whatever for.
    fn interrupt(&mut self, errno: Errno) {
        match self.state {
            State::Waiting(Wait::Change, until) => self.state = State::Again(until),
            State::Waiting(..) => self.answer(Err(errno)),
            State::Ready | State::Again(_) => {}
        }
    }

    fn is_ready(&self) -> bool {
        !matches!(self.state, State::Waiting(..))
    }
}

impl Threads {
    /// The number of the one that runs.
    pub(super) fn running(&self) -> u64 {
        self.running.number
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.others.len() as u64 + 1
    }

    /// Whether one of this number lives.
    pub(super) fn live(&self, number: u64) -> bool {
        number == self.running.number
            || self.others.iter().any(|thread| thread.identity.number == number)
    }

    /// `set_tid_address`.
    pub(super) fn tell_end_at(&mut self, address: u64) -> u64 {
        self.running.tells = address;
        self.running.number
    }

    /// The running one makes a call.
    pub(super) fn calls(&mut self) {
        self.repeats = None;
    }

    /// `sched_yield`.
    pub(super) fn tire(&mut self) {
        self.since = None;
    }

    /// A call was answered: what it changed another may have waited for.
    pub(super) fn changed(&mut self) {
        self.until = None;
        for thread in &mut self.others {
            if let State::Waiting(Wait::Change, until) = thread.state {
                thread.state = State::Again(until);
            }
        }
    }

    /// Until when the call waits at the latest that is made with this wish: or was made, if it is made once more.
    pub(super) fn limit(&mut self, wanted: Duration) -> Instant {
        self.until.take().unwrap_or_else(|| deadline(wanted))
    }

    /// When the turn of the one that runs is over, if it makes no call until then; none: not before it makes one.
    pub(super) fn end_of_turn(&self) -> Option<Instant> {
        if self.others.is_empty() {
            return None;
        }
        let is_awaited = self.others.iter().any(Thread::is_ready);
        let its_own = self.since.filter(|_| is_awaited).map(|since| since + TURN);
        its_own.into_iter().chain(self.earliest()).min()
    }

    /// Whether another one shall have its turn.
    pub(super) fn turn_is_over(&mut self) -> bool {
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
    fn expire(&mut self, now: Instant) -> bool {
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

    fn earliest(&self) -> Option<Instant> {
        let until = |thread: &Thread| match thread.state {
            State::Waiting(_, until) => until,
            State::Ready | State::Again(_) => None,
        };
        self.others.iter().filter_map(until).min()
    }

    /// Wakes those who wait at an address for one of these reasons; how many.
    pub(super) fn wake(&mut self, address: u64, most: usize, reasons: u32) -> u64 {
        let waits = |thread: &&mut Thread| match thread.state {
            State::Waiting(Wait::Futex(at, why), _) => at == address && why & reasons != 0,
            _ => false,
        };
        let woken = self.others.iter_mut().filter(waits).take(most);
        woken.map(|thread| thread.answer(Ok(0))).count() as u64
    }

    /// Wakes some who wait at an address, and has some more wait at another from now on, behind those who are there
    /// already; how many both are.
    pub(super) fn requeue(&mut self, from: u64, woken: usize, to: u64, most: usize) -> u64 {
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
    fn place(&self, number: u64) -> Option<usize> {
        self.others.iter().position(|thread| thread.identity.number == number)
    }

    /// Which one a signal to the process comes to; whether the one that runs would take it.
    pub(super) fn receiver(&self, signal: usize, runs: bool) -> u64 {
        let takers = || self.others.iter().filter(|thread| !thread.signals.block(signal));
        let numbers = || takers().map(|thread| thread.identity.number);
        let first = numbers().find(|number| *number == FIRST_THREAD);
        let running = runs.then_some(self.running.number);
        first.or(running).or_else(|| numbers().next()).unwrap_or(self.running.number)
    }

    /// Whether one that does not run blocks a signal.
    pub(super) fn blocks(&self, number: u64, signal: usize) -> bool {
        self.place(number).is_some_and(|at| self.others[at].signals.block(signal))
    }

    /// Has a signal wait for one that does not run.
    pub(super) fn keep(&mut self, number: u64, signal: usize) {
        if let Some(at) = self.place(number) {
            self.others[at].signals.keep(signal);
        }
    }

    /// Bytes of the monitor's memory that those take that do not run.
    pub(super) fn held(&self) -> u64 {
        self.others.len() as u64 * (size_of::<Thread>() as u64 + Context::HELD)
    }

    /// Which there are, and what they wait for: for comparing two machines.
    pub(super) fn summary(&self) -> String {
        let others = self.others.iter().map(|thread| (thread.identity, thread.state));
        format!("{:?} {:?}", self.running, others.collect::<Vec<_>>())
    }
}

/// So long from now on.
pub(super) fn deadline(wanted: Duration) -> Instant {
    Instant::now() + wanted.min(LONGEST)
}

/// Has the running thread wait, and another one run; alone, it sleeps.
pub(super) fn wait(process: &mut Process, wait: Wait, until: Option<Instant>) -> Flow {
    loop {
        if let Some(flow) = alarm::ring(process, Standing::Waiting(wait, until)) {
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
            // C libraries end the program then, which says so.
            return match wait {
                Wait::Change => Flow::Again(Pause::Stuck),
                Wait::Futex(..) | Wait::Time { .. } => Flow::Answer(Err(Errno::DEADLK)),
            };
        };
        if clock::sleep_until(process, next).is_err() {
            return Flow::Answer(Err(Errno::INTR));
        }
    }
}

/// Gives the next one that is ready its turn.
pub(super) fn give_way(process: &mut Process) -> Result<(), VcpuError> {
    put_aside_ready(process)?;
    run_next(process)
}

/// Has a thread run that does not, whatever it waits for: a signal comes. Whoever runs is put aside.
pub(super) fn turn_to(
    process: &mut Process,
    number: u64,
    standing: Standing,
    restarts: bool,
) -> Result<(), VcpuError> {
    let Some(at) = process.kernel.threads.place(number) else { return Ok(()) };
    match standing {
        Standing::Between => put_aside_ready(process)?,
        Standing::Waiting(wait, until) => put_aside(process, State::Waiting(wait, until))?,
        Standing::Ended => {}
    }
    let thread = &mut process.kernel.threads.others[at];
    match thread.state {
        State::Waiting(_, None) | State::Again(None)
            if restarts && signals::is_restarted(thread.context.call()) =>
        {
            thread.state = State::Again(None);
        }
        State::Waiting(wait, until) => {
            let told = wait.interrupted(process, until);
            let thread = &mut process.kernel.threads.others[at];
            thread.answer(Err(told.err().unwrap_or(Errno::INTR)));
        }
        State::Again(_) => thread.answer(Err(Errno::INTR)),
        State::Ready => {}
    }
    run(process, at)
}

/// Puts the running thread aside and lets the next ready one run. There is one.
fn switch(process: &mut Process, state: State) -> Result<(), VcpuError> {
    put_aside(process, state)?;
    run_next(process)
}

/// As it is: one that was just about to make its call once more still is.
fn put_aside_ready(process: &mut Process) -> Result<(), VcpuError> {
    match go_behind_call(process) {
        Some(until) => put_aside(process, State::Again(until)),
        None => put_aside(process, State::Ready),
    }
}

/// Goes behind the call that the running thread is about to make once more, and says until when that waits at the latest; none: it
/// is about to do something else.
pub(super) fn go_behind_call(process: &mut Process) -> Option<Option<Instant>> {
    let threads = &mut process.kernel.threads;
    let (repeats, until) = (threads.repeats.take(), threads.until.take());
    let registers = process.vcpu.registers();
    let is_there = repeats == Some(registers.rip);
    if is_there {
        registers.rip = registers.rip.wrapping_add(2);
    }
    is_there.then_some(until)
}

fn put_aside(process: &mut Process, state: State) -> Result<(), VcpuError> {
    let context = Context::save(&mut process.vcpu)?;
    let (identity, signals) = (process.kernel.threads.running, process.kernel.signals.own());
    process.kernel.threads.others.push_back(Thread { identity, context, signals, state });
    Ok(())
}

fn run_next(process: &mut Process) -> Result<(), VcpuError> {
    let at = process.kernel.threads.others.iter().position(Thread::is_ready);
    at.map_or(Ok(()), |at| run(process, at))
}

/// Has the one at a place run.
fn run(process: &mut Process, at: usize) -> Result<(), VcpuError> {
    let threads = &mut process.kernel.threads;
    let Some(mut next) = threads.others.remove(at) else { return Ok(()) };
    (threads.until, threads.repeats) = (None, None);
    if let State::Again(until) = next.state {
        threads.until = until;
        threads.repeats = Some(next.context.go_before_call());
    }
    (threads.running, threads.since) = (next.identity, Some(Instant::now()));
    process.kernel.signals.set_own(next.signals);
    next.context.restore(&mut process.vcpu)
}

fn resumed(switched: Result<(), VcpuError>) -> Flow {
    switched.map_or_else(Flow::Lost, |()| Flow::Resumed)
}

/// `clone`, as C libraries call it for a thread. Anything else would be a process: there are none, however often one asks.
pub(super) fn start(process: &mut Process, arguments: [u64; 6]) -> Flow {
    match try_start(process, arguments) {
        Ok(started) => Flow::Answer(started),
        Err(error) => Flow::Lost(error),
    }
}

fn try_start(process: &mut Process, arguments: [u64; 6]) -> Result<Answer, VcpuError> {
    // VM, FS, FILES, SIGHAND, THREAD, SETTLS.
    const THREAD: u64 = 0x9_0f00;
    const TELL_PARENT: u64 = 0x10_0000;
    const TELL_END: u64 = 0x20_0000;
    const TELL_CHILD: u64 = 0x100_0000;
    let [flags, stack, parent, child, tls, _] = arguments;
    if flags & THREAD != THREAD {
        return Ok(Err(Errno::NOSYS));
    }
    let most = process.kernel.limits.tasks().min(MOST as u64);
    if process.kernel.threads.count() >= most {
        return Ok(Err(Errno::AGAIN));
    }
    if tls >= USER_HALF_END {
        return Ok(Err(Errno::PERM));
    }
    let number = process.kernel.threads.last + 1;
    for (flag, at) in [(TELL_PARENT, parent), (TELL_CHILD, child)] {
        if flags & flag == 0 {
            continue;
        }
        match process.space.write(at, 4) {
            Ok(word) => word.copy_from_slice(&number.to_le_bytes()[..4]),
            Err(errno) => return Ok(Err(errno)),
        }
    }
    let mut context = Context::save(&mut process.vcpu)?;
    context.set_answer(0);
    context.set_stack(stack, tls);
    let identity = Identity { number, tells: if flags & TELL_END == 0 { 0 } else { child } };
    let signals = process.kernel.signals.own().of_child();
    let threads = &mut process.kernel.threads;
    threads.others.push_back(Thread { identity, context, signals, state: State::Ready });
    threads.last = number;
    threads.since.get_or_insert_with(Instant::now);
    Ok(Ok(number))
}

/// `exit`: of the running thread alone, unless it is the last one.
pub(super) fn exit(process: &mut Process, status: i32) -> Flow {
    if process.kernel.threads.others.is_empty() {
        return Flow::Exit(status);
    }
    let tells = process.kernel.threads.running.tells;
    if tells != 0
        && let Ok(word) = process.space.write(tells, 4)
    {
        word.fill(0);
        process.kernel.threads.wake(tells, 1, ANY);
    }
    if let Err(error) = process.vcpu.settle() {
        return Flow::Lost(error);
    }
    loop {
        if let Some(flow) = alarm::ring(process, Standing::Ended) {
            return flow;
        }
        let threads = &mut process.kernel.threads;
        threads.expire(Instant::now());
        if threads.others.iter().any(Thread::is_ready) {
            return resumed(run_next(process));
        }
        let alarm = process.kernel.alarm.at();
        let errno = match threads.earliest().into_iter().chain(alarm).min() {
            Some(next) if clock::sleep_until(process, next).is_ok() => continue,
            Some(_) => Errno::INTR,
            None => Errno::DEADLK,
        };
        process.kernel.threads.others.iter_mut().take(1).for_each(|first| first.interrupt(errno));
    }
}
