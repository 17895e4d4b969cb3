//! A process from which others are cloned, and to which they are reset.
//!
//! ```text
//!   Process, idle ── seal ──► Template ── spawn ──► Process ── run ──► … ── reset ──► as it was spawned
//!                                │                     └─ seal_clone ──► Template    (or lost, and dropped)
//!                                └───────────────► Process …
//! ```
//!
//! A template is everything that a call can change:
//!
//! | | kept as |
//! | --- | --- |
//! | memory and page tables | a sealed file; clones copy pages when they write them |
//! | mappings, the break | plain data |
//! | registers, vectors, events | [`CpuState`] |
//! | files: scratch, descriptors, offsets, pipes | plain data |
//! | signals, umask, limits of its own, current directory, name | plain data |
//! | threads that do not run: registers, vectors, what they wait for | plain data |
//!
//! Time is not part of it: clocks are the host's, and the clock page is rewritten before the guest
//! sees it. A template keeps only the latest time that its guest has seen, so that no clone sees an
//! earlier one, and the processor time that the process has used. Bytes on the channel are not part
//! of it either: a clone starts with an empty one. Its number is another each time, which is how
//! libraries notice that they were copied.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crate::linux::snapshot::touched::{TouchedPages, forget_segments};
use crate::linux::state::alarm::Alarm;
use crate::linux::state::clock_page::{ClockPage, clock_page_for, touching};
use crate::linux::state::cpu_time::CpuTime;
use crate::linux::state::error::ProcessError;
use crate::linux::state::ids::another;
use crate::linux::state::kernel::Kernel;
use crate::linux::state::process::Process;
use crate::machine::Hypervisor;
use crate::machine::Vcpu;
use crate::machine::cpu::CpuState;
use crate::memory::arena::FrozenArena;
use crate::memory::scan::Scanner;
use crate::memory::space::{Reset, Space, SpaceState};

/// A frozen process.
#[derive(Debug)]
pub struct Template {
    pub(crate) frozen: Arc<FrozenArena>,
    pub(crate) space: SpaceState,
    pub(crate) cpu: CpuState,
    pub(crate) kernel: Kernel,
    /// The number of the frozen process.
    pub(crate) pid: u64,
    /// The latest time that its guest has seen, in nanoseconds of the monotonic clock.
    pub(crate) told: u64,
    /// Processor time that the process had used; each clone starts with it.
    pub(crate) used: CpuTime,
    pub(crate) touched: Mutex<Arc<TouchedPages>>,
}

impl Template {
    /// Freezes an idle process. The process itself ends.
    ///
    /// # Errors
    /// When the host refuses; the process is lost.
    pub fn seal(process: Process) -> Result<Self, ProcessError> {
        Self::freeze(process, Ok)
    }

    /// Freezes an idle clone, with a copy of all its memory. The process itself ends.
    ///
    /// # Errors
    /// As for [`Template::seal`]; before Linux 6.7.
    pub fn seal_clone(process: Process, scanner: &Scanner) -> Result<Self, ProcessError> {
        Self::freeze(process, |space| space.into_own(scanner))
    }

    fn freeze(
        process: Process,
        own: impl FnOnce(Space) -> io::Result<Space>,
    ) -> Result<Self, ProcessError> {
        // Each field is named: a field that is added has to be decided about.
        let Process {
            mut vcpu,
            space,
            mut kernel,
            pid,
            used,
            clock,
            incoming: _,
            open: _,
            outgoing: _,
            output: _,
            untaken: _,
            prompt: _,
            stopper: _,
            unknown: _,
            optional: _,
            calls: _,
            patched: _,
            watched: _,
            // Nothing is owed while it pauses.
            deferred: _,
        } = process;
        let cpu = CpuState::save(&mut vcpu)?;
        // Like a child of fork(2), a clone begins without an alarm.
        kernel.alarm = Alarm::default();
        let told = clock.as_ref().map_or(0, ClockPage::latest_seen);
        // KVM's slots refer to the memory.
        drop(vcpu);
        let (frozen, space) = own(space)?.freeze()?;
        Ok(Self { frozen, space, cpu, kernel, pid, told, used, touched: Mutex::default() })
    }

    /// Bytes that clones share with it from the start, beyond their own limit.
    #[must_use]
    pub fn given(&self) -> u64 {
        self.space.given.unwrap_or(0)
    }

    /// Learns which pages a watched clone ([`Process::watch`]) has used, after it rehearsed or
    /// answered a call: later clones get them at once.
    ///
    /// # Errors
    /// When the clone was not watched.
    pub fn learn(&self, clone: &Process, scanner: &Scanner) -> io::Result<()> {
        let mut touched = TouchedPages::clone(&self.touched());
        touched.learn(&self.space, clone, scanner)?;
        *self.touched.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(touched);
        Ok(())
    }

    /// Whether it would still learn from a clone that answers a call: then watch the clone.
    #[must_use]
    pub fn wants_to_learn(&self) -> bool {
        self.touched().wants_to_learn()
    }

    fn touched(&self) -> Arc<TouchedPages> {
        Arc::clone(&self.touched.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A process that goes on where the template stands, and shares its memory until it writes.
    ///
    /// # Errors
    /// When the host refuses a machine.
    pub fn spawn(&self, host: &Hypervisor) -> Result<Process, ProcessError> {
        self.make(host, None)
    }

    /// As [`Template::spawn`], with all pages touched that a call will touch. Takes as long as the
    /// faults that it saves: for clones that are made ahead of time.
    ///
    /// # Errors
    /// As for [`Template::spawn`].
    pub fn spawn_ahead(&self, host: &Hypervisor) -> Result<Process, ProcessError> {
        self.make(host, touching(&self.frozen, &self.space))
    }

    fn make(&self, host: &Hypervisor, routine: Option<u64>) -> Result<Process, ProcessError> {
        let mut space = Space::clone_of(&self.frozen, self.space.clone())?;
        let touched = self.touched();
        touched.place(space.arena_mut());
        let mut vcpu = Vcpu::new(host, &space, 0, 0)?;
        if let Some(routine) = routine {
            touched.touch(routine, &mut vcpu, &mut space)?;
        }
        self.cpu.restore(&mut vcpu)?;
        let clock = clock_page_for(host, &vcpu, self.told)?;
        let (kernel, pid) = (self.kernel.clone(), another(self.pid)?);
        Ok(Process::assemble(vcpu, space, kernel, pid, clock, self.used))
    }

    /// Puts a process that was spawned from here back to its beginning.
    ///
    /// # Errors
    /// When anything could not be put back. The process is dropped: a half-reset machine must never
    /// run.
    pub fn reset(
        &self,
        mut process: Process,
        scanner: &Scanner,
    ) -> Result<(Process, Reset), ProcessError> {
        if !process.space.arena().origin().is_some_and(|origin| Arc::ptr_eq(origin, &self.frozen)) {
            return Err(io::Error::other("the process was spawned from another template").into());
        }
        process.vcpu.settle()?;
        let reset = process.space.reset(&self.space, scanner)?;
        let routine = touching(&self.frozen, &self.space);
        let routine = routine.ok_or_else(|| io::Error::other("its shared object was changed"))?;
        // Before the routine runs, so that no exception of the last call comes now; and after it,
        // because it changes registers.
        self.cpu.restore(&mut process.vcpu)?;
        forget_segments(routine, &mut process.vcpu, &mut process.space)?;
        self.cpu.restore(&mut process.vcpu)?;
        let Process {
            vcpu: _,
            space: _,
            kernel,
            pid,
            used,
            clock,
            incoming,
            open,
            outgoing,
            output,
            untaken,
            prompt: _,
            // A stop that came meanwhile is kept: it would not be sent again.
            stopper: _,
            unknown: _,
            optional: _,
            calls: _,
            patched: _,
            watched,
            deferred,
        } = &mut process;
        let room = kernel.tree.room;
        kernel.clone_from(&self.kernel);
        // Limits belong to the clone, not to the process that was frozen.
        kernel.tree.room = room;
        (*pid, *used) = (another(self.pid)?, self.used);
        if let Some(clock) = clock {
            clock.lose();
        }
        (*incoming, *open) = (VecDeque::new(), true);
        outgoing.clear();
        output.clear();
        // The page tables are the template's again.
        (*untaken, *watched) = (0, false);
        *deferred = None;
        process.enforce_limits();
        Ok((process, reset))
    }

    /// Names each difference between a process and its template.
    ///
    /// # Errors
    /// When KVM does not tell the registers.
    pub fn differences(
        &self,
        process: &mut Process,
        scanner: &Scanner,
    ) -> Result<Vec<String>, ProcessError> {
        let mut found = process.space.differences(&self.space, scanner)?;
        let cpu = CpuState::save(&mut process.vcpu)?;
        if cpu != self.cpu {
            found.push(format!("registers: {cpu:x?} instead of {:x?}", self.cpu));
        }
        let (now, before) = (&process.kernel, &self.kernel);
        for (what, now, before) in [
            ("descriptors", format!("{:?}", now.files), format!("{:?}", before.files)),
            ("signals", format!("{:?}", now.signals), format!("{:?}", before.signals)),
            (
                "scratch",
                format!("{:?}", now.tree.scratch()),
                format!("{:?}", before.tree.scratch()),
            ),
            ("directory", format!("{:?}", now.directory), format!("{:?}", before.directory)),
            ("threads", now.threads.summary(), before.threads.summary()),
            ("alarm", format!("{:?}", now.alarm), format!("{:?}", before.alarm)),
            ("umask", format!("{:?}", now.umask), format!("{:?}", before.umask)),
            ("limits", format!("{:?}", now.limits), format!("{:?}", before.limits)),
            ("name", format!("{:?}", now.name), format!("{:?}", before.name)),
        ] {
            if now != before {
                found.push(format!("{what}: {now} instead of {before}"));
            }
        }
        Ok(found)
    }
}
