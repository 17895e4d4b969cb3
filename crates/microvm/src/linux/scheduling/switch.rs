//! Switches the one processor from one thread of the guest to another.

use std::time::Instant;

use rustix::io::Errno;

use crate::linux::abi::record::Record;
use crate::linux::state::flow::Flow;
use crate::linux::state::process::Process;
use crate::linux::state::threads::{State, Thread, ThreadPosition, Wait};
use crate::machine::VcpuError;
use crate::machine::cpu::Context;

/// Ends the running thread's turn, and runs the next thread that is ready.
pub(crate) fn give_way(process: &mut Process) -> Result<(), VcpuError> {
    put_aside_ready(process)?;
    run_next(process)
}

/// Runs the thread `number`, to which a signal comes, whatever it waits for. The running thread is
/// put aside.
pub(crate) fn turn_to(
    process: &mut Process,
    number: u64,
    standing: ThreadPosition,
    restarts: bool,
) -> Result<(), VcpuError> {
    let Some(at) = process.kernel.threads.place(number) else { return Ok(()) };
    match standing {
        ThreadPosition::Between => put_aside_ready(process)?,
        ThreadPosition::Waiting(wait, until) => put_aside(process, State::Waiting(wait, until))?,
        ThreadPosition::Ended => {}
    }
    let thread = &mut process.kernel.threads.others[at];
    match thread.state {
        State::Waiting(_, None) | State::Again(None)
            if restarts && is_restarted(thread.context.call()) =>
        {
            thread.state = State::Again(None);
        }
        State::Waiting(wait, until) => {
            let told = interrupted(wait, process, until);
            let thread = &mut process.kernel.threads.others[at];
            thread.answer(Err(told.err().unwrap_or(Errno::INTR)));
        }
        State::Again(_) => thread.answer(Err(Errno::INTR)),
        State::Ready => {}
    }
    run(process, at)
}

/// Puts the running thread aside in this state and runs the next one that is ready.
pub(crate) fn switch(process: &mut Process, state: State) -> Result<(), VcpuError> {
    put_aside(process, state)?;
    run_next(process)
}

/// Puts the running thread aside. If it was about to repeat its call, it still is.
fn put_aside_ready(process: &mut Process) -> Result<(), VcpuError> {
    match go_behind_call(process) {
        Some(until) => put_aside(process, State::Again(until)),
        None => put_aside(process, State::Ready),
    }
}

/// Moves the running thread behind the call that it is about to repeat, and returns the call's
/// deadline. None: it is not about to repeat one.
pub(crate) fn go_behind_call(process: &mut Process) -> Option<Option<Instant>> {
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

pub(crate) fn run_next(process: &mut Process) -> Result<(), VcpuError> {
    let at = process.kernel.threads.others.iter().position(Thread::is_ready);
    at.map_or(Ok(()), |at| run(process, at))
}

/// Runs the thread at an index of those that do not run.
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

pub(crate) fn resumed(switched: Result<(), VcpuError>) -> Flow {
    switched.map_or_else(Flow::Lost, |()| Flow::Resumed)
}

/// Ends a thread's wait by a signal.
pub(crate) fn interrupted(
    wait: Wait,
    process: &mut Process,
    until: Option<Instant>,
) -> Result<(), Errno> {
    match wait {
        Wait::Time { rest } => tell_rest(process, rest, until),
        Wait::Futex(..) | Wait::Change => Ok(()),
    }
}

/// Tells an interrupted sleep's remaining time, where the call asked for it.
pub(crate) fn tell_rest(
    process: &mut Process,
    rest: u64,
    until: Option<Instant>,
) -> Result<(), Errno> {
    if rest == 0 {
        return Ok(());
    }
    let left =
        until.map(|until| until.saturating_duration_since(Instant::now())).unwrap_or_default();
    let record =
        Record::<16>::new().long(0, left.as_secs()).long(8, u64::from(left.subsec_nanos()));
    process.space.write(rest, 16)?.copy_from_slice(record.bytes());
    Ok(())
}

/// Whether a call that waited without a limit is repeated behind a handler with SA_RESTART:
/// signal(7).
pub(crate) fn is_restarted(number: u64) -> bool {
    !libc::c_long::try_from(number).is_ok_and(|number| {
        matches!(
            number,
            libc::SYS_poll
                | libc::SYS_ppoll
                | libc::SYS_select
                | libc::SYS_pselect6
                | libc::SYS_nanosleep
                | libc::SYS_clock_nanosleep
                | libc::SYS_pause
        )
    })
}
