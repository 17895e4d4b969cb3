//! A Linux process in a machine, with all that the monitor knows of it.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use crate::linux::abi::registers::signed;
use crate::linux::state::clock_page::ClockPage;
use crate::linux::state::cpu_time::CpuTime;
use crate::linux::state::deferred::DeferredCopy;
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
    // Before the space, because KVM's slots refer to it.
    pub(crate) vcpu: Vcpu,
    pub(crate) space: Space,
    pub(crate) kernel: Kernel,
    /// The number that it sees as its own: another one in each clone, and after each reset.
    pub(crate) pid: u64,
    pub(crate) used: CpuTime,
    /// None where the guest has to ask the monitor for the time.
    pub(crate) clock: Option<ClockPage>,
    /// Bytes of the channel that the process has not read; whether more may come.
    pub(crate) incoming: VecDeque<u8>,
    pub(crate) open: bool,
    pub(crate) outgoing: Vec<u8>,
    pub(crate) output: Vec<(Stream, Vec<u8>)>,
    pub(crate) untaken: usize,
    /// Whether it pauses whenever it wrote to its channel.
    pub(crate) prompt: bool,
    pub(crate) stopper: Stopper,
    pub(crate) unknown: BTreeSet<u64>,
    /// The unknown calls that programs can do without.
    pub(crate) optional: BTreeSet<u64>,
    pub(crate) calls: u64,
    pub(crate) patched: u64,
    /// Whether its page tables mark the pages that it uses: [`Process::watch`].
    pub(crate) watched: bool,
    /// A mapping whose bytes are not copied yet: none while the process pauses.
    pub(crate) deferred: Option<DeferredCopy>,
}

impl Process {
    /// A process that has written nothing yet.
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

    /// Sets the stopper that stops it.
    pub fn stop_by(&mut self, stopper: Stopper) {
        self.stopper = stopper;
    }

    /// Has it pause whenever it wrote to its channel, so that the bytes are passed on before it
    /// waits.
    pub fn be_prompt(&mut self) {
        self.prompt = true;
    }

    /// Attaches a branch to its tree, before it runs on: a running program may have seen the
    /// directory.
    ///
    /// # Errors
    /// See [`Tree::attach`](crate::vfs::Tree::attach).
    pub fn attach(&mut self, at: &str, branch: Arc<Branch>) -> Result<(), Errno> {
        self.kernel.tree.attach(at, branch)
    }

    /// Marks from now on which pages it uses, for
    /// [`Template::learn`](crate::linux::Template::learn). For a clone that has not run; takes some
    /// hundred microseconds, and a copy of its page tables.
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

    /// The number of a thread as the guest sees it: the first one's is the process's.
    pub(crate) fn seen_number(&self, thread: u64) -> u64 {
        if thread == FIRST_THREAD { self.pid } else { thread }
    }

    /// The thread that the guest means. A C library may still use the first one's number from
    /// before the process was cloned.
    pub(crate) fn meant_thread(&self, number: u64) -> u64 {
        if number == self.pid { FIRST_THREAD } else { number }
    }

    /// ESRCH for the number of another process: none exists.
    pub(crate) fn check_own(&self, number: u64) -> Result<(), Errno> {
        let number = u64::from(signed(number).cast_unsigned());
        if number == 0 || number == self.pid || number == FIRST_THREAD {
            Ok(())
        } else {
            Err(Errno::SRCH)
        }
    }

    /// Applies the limits to descriptors and memory: after each change, and when a process begins.
    pub(crate) fn enforce_limits(&mut self) {
        let limits = &self.kernel.limits;
        self.space.set_own_limit(limits.soft(libc::RLIMIT_AS));
        self.kernel.files.set_most(limits.descriptors());
    }

    /// Frees a node without a name, unless it is open, mapped, or the current directory.
    pub(crate) fn release(&mut self, node: NodeId) {
        // The usual case: a layer's file, which stays.
        if !node.is_scratch() {
            return;
        }
        let Kernel { files, directory, .. } = &self.kernel;
        let held = files.has_open(node) || *directory == node || self.space.files().show(node);
        if !held {
            self.kernel.tree.release(node);
        }
    }

    /// Stops the process from another thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Numbers of the system calls that it made and that do not exist.
    #[must_use]
    pub fn unknown_calls(&self) -> &BTreeSet<u64> {
        &self.unknown
    }

    /// Those of them that libraries can do without:
    /// [`OPTIONAL_CALLS`](crate::linux::OPTIONAL_CALLS).
    #[must_use]
    pub fn optional_calls(&self) -> &BTreeSet<u64> {
        &self.optional
    }

    /// Number of its system calls, and of the instructions that were patched.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.calls, self.patched)
    }

    /// Its address space.
    #[must_use]
    pub fn space(&self) -> &Space {
        &self.space
    }
}
