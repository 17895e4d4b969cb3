//! Runs a process until it pauses, and answers its faults and system calls meanwhile.
//!
//! ```text
//!   start ──► run ──► Pause::Idle     its channel is empty: feed it, run again
//!              ▲  ├──► Pause::Spoke    it wrote to its channel: take that, run again
//!              │  └──► Pause::Stopped  its stopper asked for it: run again
//!              └──────┘
//!                 └──► Pause::Exited | Killed | OutOfMemory   over
//! ```
//!
//! An idle process stands before its `read`, with nothing half done: there it can be frozen.

use rustix::io::Errno;

use crate::linux::abi::registers::register;
use crate::linux::mapped_files::deferred;
use crate::linux::scheduling::switch::give_way;
use crate::linux::scheduling::timers;
use crate::linux::state::error::ProcessError;
use crate::linux::state::flow::{Flow, Pause};
use crate::linux::state::kernel::Kernel;
use crate::linux::state::process::Process;
use crate::linux::state::threads::ThreadPosition;
use crate::linux::syscalls::table;
use crate::machine::{Exit, Fault, RunGuard};
use crate::memory::rights::Rights;
use crate::memory::ring0::PATCHED;

/// A number beyond all of Linux's system calls.
const MAX_CALLS: u64 = 1024;

impl Process {
    /// Runs the process until it pauses. Not after [`Pause::Exited`],
    /// [`Pause::Killed`] or [`Pause::OutOfMemory`].
    ///
    /// # Errors
    /// When the machine is lost.
    pub fn run(&mut self) -> Result<Pause, ProcessError> {
        let stopper = self.stopper.clone();
        let mut running = stopper.on_this_thread()?;
        self.used.begin();
        self.space.begin_run();
        let pause = self.run_until(&mut running)?;
        deferred::settle(self);
        self.used.pause();
        Ok(pause)
    }

    fn run_until(&mut self, running: &mut RunGuard<'_>) -> Result<Pause, ProcessError> {
        loop {
            if running.is_stopped() {
                return Ok(Pause::Stopped);
            }
            if self.prompt && !self.outgoing.is_empty() {
                return Ok(Pause::Spoke);
            }
            if let Some(clock) = &mut self.clock {
                clock.refresh(&mut self.space);
            }
            let Kernel { threads, alarm, .. } = &self.kernel;
            let moments = [threads.end_of_turn(), alarm.at(), timers::due(self)];
            running.interrupt_at(moments.into_iter().flatten().min())?;
            let free = self.kernel.tree.lend(self.space.borrowed());
            self.space.borrow(free);
            let pause = match self.vcpu.run(&mut self.space)? {
                Exit::Stopped => {
                    running.was_interrupted();
                    if self.vcpu.is_in_between() { self.interrupt()? } else { None }
                }
                Exit::Syscall { site } => self.serve(site)?,
                Exit::Fault(fault) if fault.is_of_page() && self.supply(fault.address) => {
                    self.vcpu.enter(fault.rip, fault.rsp, fault.rflags);
                    None
                }
                Exit::Fault(fault) => self.deliver(fault),
                // A port of unikernels, which is closed to Linux programs.
                Exit::Hypercall => {
                    let registers = self.vcpu.registers();
                    let (rip, rsp, rflags) = (registers.rip, registers.rsp, registers.rflags);
                    self.deliver(Fault { vector: 13, code: 0, address: 0, rip, rsp, rflags })
                }
            };
            if self.space.is_exhausted() {
                return Ok(Pause::OutOfMemory);
            }
            if let Some(pause) = pause {
                return Ok(pause);
            }
        }
    }

    /// Between two instructions of the guest: a timer may be due, or another thread's turn.
    fn interrupt(&mut self) -> Result<Option<Pause>, ProcessError> {
        for come in [timers::ring, timers::spend] {
            match come(self, ThreadPosition::Between) {
                Some(Flow::Kill(signal)) => return Ok(Some(Pause::Killed(signal, None))),
                Some(Flow::Lost(error)) => return Err(error.into()),
                _ => {}
            }
        }
        if self.kernel.threads.turn_is_over() {
            give_way(self)?;
        }
        Ok(None)
    }

    /// Provides memory that was promised when the guest touches it. Returns whether it was
    /// promised.
    fn supply(&mut self, address: u64) -> bool {
        let is_owed = deferred::is_owed(self, address);
        if is_owed {
            deferred::settle(self);
        }
        is_owed || self.space.supply(address)
    }

    fn serve(&mut self, site: Option<u64>) -> Result<Option<Pause>, ProcessError> {
        let registers = *self.vcpu.registers();
        if let Some(site) = site {
            self.patch(site);
        }
        self.calls += 1;
        self.kernel.threads.begin_call();
        let number = registers.rax;
        let arguments = [
            registers.rdi,
            registers.rsi,
            registers.rdx,
            registers.r10,
            registers.r8,
            registers.r9,
        ];
        deferred::before_call(self, number, arguments);
        let flow = table::answer(self, number, arguments);
        if let Flow::Answer(answer) = &flow {
            tracing::trace!(number, ?arguments, ?answer, "system call");
        }
        let answer = match flow {
            Flow::Answer(answer) => answer,
            Flow::Unknown => {
                // Bounded, because a guest can invent numbers.
                if number < MAX_CALLS && self.unknown.insert(number) {
                    tracing::info!(
                        number,
                        "the guest tried a system call that does not exist here"
                    );
                }
                Err(Errno::NOSYS)
            }
            Flow::Optional => {
                self.optional.insert(number);
                Err(Errno::NOSYS)
            }
            Flow::Resumed => return Ok(None),
            Flow::Lost(error) => return Err(error.into()),
            Flow::Exit(status) => return Ok(Some(Pause::Exited(status))),
            Flow::Kill(signal) => return Ok(Some(Pause::Killed(signal, None))),
            Flow::Again(pause) => {
                self.vcpu.before_call()?;
                return Ok(Some(pause));
            }
        };
        self.vcpu.registers().rax = register(answer);
        self.kernel.threads.call_answered();
        if self.kernel.threads.turn_is_over() {
            give_way(self)?;
        }
        Ok(None)
    }

    /// Patches an instruction that made a system call, so that it leaves the machine without ring 0
    /// next time. Both instructions are two bytes long. Only code that cannot be written is
    /// patched: writable code may be data, or be compared by the program.
    fn patch(&mut self, site: u64) {
        const SYSCALL_BYTES: [u8; 2] = [0x0f, 0x05];
        let in_one_page = site % crate::memory::layout::PAGE < crate::memory::layout::PAGE - 1;
        let code = Rights::EXECUTE;
        let rights = self.space.regions().at(site).map_or(Rights::NONE, |(_, rights)| rights);
        if !in_one_page || rights != code {
            return;
        }
        let bytes = self.space.arena_mut().bytes_mut(site..site + 2);
        if bytes == SYSCALL_BYTES {
            bytes.copy_from_slice(&[0xe6, PATCHED.to_le_bytes()[0]]);
            self.patched += 1;
        }
    }
}
