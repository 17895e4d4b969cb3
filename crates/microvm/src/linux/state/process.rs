//! A Linux process in a machine: everything that the monitor knows of it.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use crate::linux::abi::registers::signed;
use crate::linux::state::clock_page::ClockPage;
use crate::linux::state::cpu_time::CpuTime;
use crate::linux::state::deferred::Deferred;
use crate::linux::state::files::Stream;
use crate::linux::state::ids::FIRST_THREAD;
use crate::linux::state::kernel::Kernel;
use crate::machine::Stopper;
use crate::machine::Vcpu;
use crate::memory::layout::USER_END;
use crate::memory::space::Space;
use crate::memory::tables;
use crate::vfs::{Branch, NodeId};

/// A Linux process in a machine.
#[derive(Debug)]
pub struct Process {
    // Before the space: KVM's slots refer to it.
    pub(crate) vcpu: Vcpu,
    pub(crate) space: Space,
    pub(crate) kernel: Kernel,
    /// Its number, as it sees itself: another one in each clone, and after each reset.
    pub(crate) pid: u64,
    pub(crate) used: CpuTime,
    /// None where the guest has to ask for the time.
    pub(crate) clock: Option<ClockPage>,
    /// What the worker said and the process has not read yet; whether more may come.
    pub(crate) incoming: VecDeque<u8>,
    pub(crate) open: bool,
    pub(crate) outgoing: Vec<u8>,
    pub(crate) output: Vec<(Stream, Vec<u8>)>,
    pub(crate) untaken: usize,
    /// Whether it pauses whenever it has said something.
    pub(crate) prompt: bool,
    pub(crate) stopper: Stopper,
    pub(crate) unknown: BTreeSet<u64>,
    /// And those that programs do without.
    pub(crate) optional: BTreeSet<u64>,
    pub(crate) calls: u64,
    pub(crate) patched: u64,
    /// Whether its page tables tell what it has touched: [`Process::watch`].
    pub(crate) watched: bool,
    /// A mapping whose bytes are not there yet: none while it pauses.
    pub(crate) deferred: Option<Deferred>,
}

impl Process {
    /// With nothing said and nothing done yet.
    pub(crate) fn assemble(
        vcpu: Vcpu,
        space: Space,
        kernel: Kernel,
        pid: u64,
        clock: Option<ClockPage>,
        used: CpuTime,
    ) -> Self {
        let mut process = Self {
            vcpu,
            space,
            kernel,
            pid,
            used,
            clock,
            incoming: VecDeque::new(),
            open: true,
            outgoing: Vec::new(),
            output: Vec::new(),
            untaken: 0,
            prompt: false,
            stopper: Stopper::default(),
            unknown: BTreeSet::new(),
            optional: BTreeSet::new(),
            calls: 0,
            patched: 0,
            watched: false,
            deferred: None,
        };
        process.enforce_limits();
        process
    }

    /// Has it stopped by this from now on.
    pub fn stop_by(&mut self, stopper: Stopper) {
        self.stopper = stopper;
    }

    /// Has it pause whenever it has said something, so that nobody has to wait for what was said until it waits itself.
    pub fn be_prompt(&mut self) {
        self.prompt = true;
    }

    /// Puts a branch into its tree. Before it runs on, since it may know what was there.
    ///
    /// # Errors
    /// See [`Tree::attach`](crate::vfs::Tree::attach).
    pub fn attach(&mut self, at: &str, branch: Arc<Branch>) -> Result<(), Errno> {
        self.kernel.tree.attach(at, branch)
    }

    /// Has it note from now on what it touches, for [`Template::learn`](crate::linux::Template::learn): a clone before it runs. It
    /// takes some hundred microseconds, and a copy of its page tables.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn watch(&mut self) -> io::Result<()> {
        for part in self.space.arena().inherited(0..USER_END) {
            tables::forget_use(self.space.arena_mut(), part)?;
        }
        self.watched = true;
        Ok(())
    }

    /// What the guest is told a thread's number to be: the first one's is the process's.
    pub(crate) fn seen_number(&self, thread: u64) -> u64 {
        if thread == FIRST_THREAD { self.pid } else { thread }
    }

    /// Which thread the guest means. A C library may go on calling the first one as it was called before the process was cloned.
    pub(crate) fn meant_thread(&self, number: u64) -> u64 {
        if number == self.pid { FIRST_THREAD } else { number }
    }

    /// ESRCH for a number of another process's: there is none.
    pub(crate) fn check_own(&self, number: u64) -> Result<(), Errno> {
        let number = u64::from(signed(number).cast_unsigned());
        if number == 0 || number == self.pid || number == FIRST_THREAD {
            Ok(())
        } else {
            Err(Errno::SRCH)
        }
    }

    /// Has descriptors and memory know the limits as they are now: after each change, and where a process begins.
    pub(crate) fn enforce_limits(&mut self) {
        let limits = &self.kernel.limits;
        self.space.set_own_limit(limits.soft(libc::RLIMIT_AS));
        self.kernel.files.set_most(limits.descriptors());
    }

    /// Lets go of a node that no name leads to, unless it is open, mapped, or the current directory.
    pub(crate) fn release(&mut self, node: NodeId) {
        // Most files that are closed are of layers, which stay.
        if !node.is_scratch() {
            return;
        }
        let Kernel { files, directory, .. } = &self.kernel;
        let held = files.has_open(node) || *directory == node || self.space.files().show(node);
        if !held {
            self.kernel.tree.release(node);
        }
    }

    /// What stops it from another thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// System calls that it tried and that do not exist here.
    #[must_use]
    pub fn unknown_calls(&self) -> &BTreeSet<u64> {
        &self.unknown
    }

    /// The same of those that libraries usually do without: [`OPTIONAL_CALLS`](crate::linux::OPTIONAL_CALLS).
    #[must_use]
    pub fn optional_calls(&self) -> &BTreeSet<u64> {
        &self.optional
    }

    /// How many system calls it made, and how many places were patched that made them.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.calls, self.patched)
    }

    /// Its memory.
    #[must_use]
    pub fn space(&self) -> &Space {
        &self.space
    }
}
