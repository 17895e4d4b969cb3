//! `clone` for a thread, and `exit`.

use std::time::Instant;

use rustix::io::Errno;

use crate::linux::abi::registers::Answer;
use crate::linux::scheduling::switch::{resumed, run_next};
use crate::linux::scheduling::timers;
use crate::linux::scheduling::wait::sleep_until;
use crate::linux::state::flow::Flow;
use crate::linux::state::process::Process;
use crate::linux::state::threads::{ANY, Identity, MAX_THREADS, State, Thread, ThreadPosition};
use crate::machine::VcpuError;
use crate::machine::cpu::Context;
use crate::memory::layout::USER_HALF_END;

/// `clone`, as C libraries call it for a thread. Other flags would make a process, which does not
/// exist here: ENOSYS.
pub(crate) fn start(process: &mut Process, arguments: [u64; 6]) -> Flow {
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
    let most = process.kernel.limits.tasks().min(MAX_THREADS as u64);
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

/// `exit`: ends the running thread, or the process if it is the last one.
pub(crate) fn exit(process: &mut Process, status: i32) -> Flow {
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
        if let Some(flow) = timers::ring(process, ThreadPosition::Ended) {
            return flow;
        }
        let threads = &mut process.kernel.threads;
        threads.expire(Instant::now());
        if threads.others.iter().any(Thread::is_ready) {
            return resumed(run_next(process));
        }
        let alarm = process.kernel.alarm.at();
        let errno = match threads.earliest().into_iter().chain(alarm).min() {
            Some(next) if sleep_until(process, next).is_ok() => continue,
            Some(_) => Errno::INTR,
            None => Errno::DEADLK,
        };
        process.kernel.threads.others.iter_mut().take(1).for_each(|first| first.interrupt(errno));
    }
}
