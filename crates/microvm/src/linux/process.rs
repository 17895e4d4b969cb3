//! The one process of a machine, from its start to its end.
//!
//! ```text
//!   start ──► run ──► Pause::Idle     it waits on the channel for what is not there yet: feed it, run again
//!              ▲  ├──► Pause::Spoke    what it said is there to be taken: run again
//!              │  └──► Pause::Stopped  somebody outside asked for it: run again
//!              └──────┘
//!                 └──► Pause::Exited | Killed                 over
//! ```
//!
//! While a process is idle it stands before its `read`, with nothing half done: that is where it can be snapshot.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use rustix::io::Errno;
use thiserror::Error;

use super::alarm::{self, Alarm};
use super::call::{self, Flow};
use super::clock::Used;
use super::clock_page::ClockPage;
use super::deferred::{self, Deferred};
use super::files::{Files, Object, Stream};
use super::identity::PID;
use super::resource_limits::{self, ResourceLimits};
use super::signals::Signals;
use super::start;
use super::template::Kernel;
use super::threads::{self, Standing, Threads};
use crate::image::{Image, ImageError, Loaded};
use crate::machine::Hypervisor;
use crate::machine::{Exit, Fault, Vcpu, VcpuError};
use crate::machine::{Running, Stopper};
use crate::memory::arena::MemoryKind;
use crate::memory::file_mappings::FileMapping;
use crate::memory::layout::{Places, USER_END};
use crate::memory::rights::Rights;
use crate::memory::ring0::PATCHED;
use crate::memory::space::Space;
use crate::memory::tables;
use crate::vfs::{Branch, NodeId, Tree};

/// Beyond all numbers of system calls that Linux has.
const MOST_CALLS: u64 = 1024;

/// The channel's descriptor.
const CHANNEL: u64 = 3;

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The program's path in the guest's tree, and its arguments from the program's own name on.
    pub program: Vec<String>,
    /// Its environment, `NAME=value`.
    pub environment: Vec<String>,
    /// Whether descriptor 3 is a conversation with the monitor.
    pub channel: bool,
}

/// A Linux process in a machine.
#[derive(Debug)]
pub struct Process {
    // Before the space: KVM's slots refer to it.
    pub(super) vcpu: Vcpu,
    pub(super) space: Space,
    pub(super) kernel: Kernel,
    /// Its number, as it sees itself: another one in each clone, and after each reset.
    pub(super) pid: u64,
    pub(super) used: Used,
    /// None where the guest has to ask for the time.
    pub(super) clock: Option<ClockPage>,
    /// What the worker said and the process has not read yet; whether more may come.
    pub(super) incoming: VecDeque<u8>,
    pub(super) open: bool,
    pub(super) outgoing: Vec<u8>,
    pub(super) output: Vec<(Stream, Vec<u8>)>,
    pub(super) untaken: usize,
    /// Whether it pauses whenever it has said something.
    pub(super) prompt: bool,
    pub(super) stopper: Stopper,
    pub(super) unknown: BTreeSet<u64>,
    /// And those that programs do without.
    pub(super) spared: BTreeSet<u64>,
    pub(super) calls: u64,
    pub(super) patched: u64,
    /// Whether its page tables tell what it has touched: [`Process::watch`].
    pub(super) watched: bool,
    /// A mapping whose bytes are not there yet: none while it pauses.
    pub(super) deferred: Option<Deferred>,
}

/// Why a process does not run at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// It waits for something from the worker.
    Idle,
    /// It has said something: take it and run it again. Only of one that is [`Process::be_prompt`].
    Spoke,
    /// It was stopped from outside.
    Stopped,
    /// It exited with this status.
    Exited(i32),
    /// A signal ended it; the exception that led to it, if one did.
    Killed(i32, Option<Fault>),
    /// It waits for something that only it could do itself.
    Stuck,
}

/// Why there is no process.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// There is no such program in the tree.
    #[error("{path}: {errno}")]
    NoProgram {
        /// Its path.
        path: String,
        /// Why not.
        errno: Errno,
    },
    /// It is none.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Arguments and environment are too long.
    #[error("arguments and environment do not fit on the stack")]
    Arguments,
    /// The host has no memory, or no randomness.
    #[error("prepare the guest")]
    Host(#[from] io::Error),
    /// The machine.
    #[error(transparent)]
    Vcpu(#[from] VcpuError),
}

impl Process {
    /// Loads a program from the tree; it has not run yet.
    ///
    /// # Errors
    /// When there is no such program, or the host refuses a machine.
    pub fn start(host: &Hypervisor, tree: Tree, options: &Options) -> Result<Self, ProcessError> {
        Self::start_in(MemoryKind::File, host, tree, options)
    }

    /// As [`Process::start`], in memory of this kind.
    ///
    /// # Errors
    /// As for [`Process::start`].
    pub fn start_in(
        memory: MemoryKind,
        host: &Hypervisor,
        tree: Tree,
        options: &Options,
    ) -> Result<Self, ProcessError> {
        let path = options.program.first().cloned().unwrap_or_default();
        let (image, file, node) = program(&tree, &path)?;
        let interpreter = image.interpreter.as_ref();
        let interpreter = interpreter.map(|path| program(&tree, &String::from_utf8_lossy(path)));
        let interpreter = interpreter.transpose()?;
        let mut fixed = image.fixed();
        fixed.extend(interpreter.iter().flat_map(|(image, ..)| image.fixed()));
        let places = Places::draw(&fixed)?.ok_or(ImageError::Crowded)?;
        let mut space = Space::made_of(memory)?;
        space.map_from(places.maps);
        let loaded = load(&mut space, &image, &file, node, places.program)?;
        let interpreter = interpreter
            .map(|(image, file, node)| load(&mut space, &image, &file, node, places.interpreter));
        let interpreter = interpreter.transpose()?;
        space.set_break(loaded.end + places.break_gap);
        let stack = start::lay_out(&mut space, &places, &image, loaded, interpreter, options)?;
        let entry = interpreter.unwrap_or(loaded).entry;
        let vcpu = Vcpu::new(host, &space, entry, stack)?;
        let clock = keep_time(host, &vcpu, 0)?;
        let mut files = Files::default();
        let none = |errno: Errno| io::Error::from(errno);
        let null = tree.existing(Tree::ROOT, b"/dev/null", true).map_err(none)?;
        let streams = [
            Object::Node(null, None),
            Object::Output(Stream::Stdout),
            Object::Output(Stream::Stderr),
            Object::Channel,
        ];
        let read_write = u64::from(libc::O_RDWR.cast_unsigned());
        for object in streams.into_iter().take(if options.channel { 4 } else { 3 }) {
            files.open(object, read_write).map_err(none)?;
        }
        debug_assert_eq!(files.get(CHANNEL).is_ok(), options.channel);
        let kernel = Kernel {
            tree,
            files,
            directory: Tree::ROOT,
            umask: 0o022,
            signals: Signals::default(),
            name: start::name(&path),
            threads: Threads::default(),
            alarm: Alarm::default(),
            limits: ResourceLimits::default(),
        };
        Ok(Self::assemble(vcpu, space, kernel, PID, clock, Used::default()))
    }

    /// With nothing said and nothing done yet.
    pub(super) fn assemble(
        vcpu: Vcpu,
        space: Space,
        kernel: Kernel,
        pid: u64,
        clock: Option<ClockPage>,
        used: Used,
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
            spared: BTreeSet::new(),
            calls: 0,
            patched: 0,
            watched: false,
            deferred: None,
        };
        resource_limits::enforce(&mut process);
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
    /// See [`Tree::attach`].
    pub fn attach(&mut self, at: &str, branch: Arc<Branch>) -> Result<(), Errno> {
        self.kernel.tree.attach(at, branch)
    }

    /// Has it note from now on what it touches, for [`Template::learn`](super::Template::learn): a clone before it runs. It
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

    /// Lets go of a node that no name leads to, unless it is open, mapped, or the current directory.
    pub(super) fn release(&mut self, node: NodeId) {
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

    /// The same of those that libraries usually do without: [`SPARED`](super::SPARED).
    #[must_use]
    pub fn spared_calls(&self) -> &BTreeSet<u64> {
        &self.spared
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

    /// Runs it until it pauses. After [`Pause::Exited`] or [`Pause::Killed`] never again.
    ///
    /// # Errors
    /// When the machine is lost.
    pub fn run(&mut self) -> Result<Pause, ProcessError> {
        let stopper = self.stopper.clone();
        let mut running = stopper.on_this_thread()?;
        self.used.begin();
        let pause = self.run_until(&mut running)?;
        deferred::settle(self);
        self.used.pause();
        Ok(pause)
    }

    fn run_until(&mut self, running: &mut Running<'_>) -> Result<Pause, ProcessError> {
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
            let moments = [threads.end_of_turn(), alarm.at(), resource_limits::due(self)];
            running.interrupt_at(moments.into_iter().flatten().min())?;
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
                // Not a unikernel: to it the port is closed.
                Exit::Hypercall => {
                    let registers = self.vcpu.registers();
                    let (rip, rsp, rflags) = (registers.rip, registers.rsp, registers.rflags);
                    self.deliver(Fault { vector: 13, code: 0, address: 0, rip, rsp, rflags })
                }
            };
            if let Some(pause) = pause {
                return Ok(pause);
            }
        }
    }

    /// The guest stands between two of its instructions: another thread may have its turn, or a signal come.
    fn interrupt(&mut self) -> Result<Option<Pause>, ProcessError> {
        for come in [alarm::ring, resource_limits::spend] {
            match come(self, Standing::Between) {
                Some(Flow::Kill(signal)) => return Ok(Some(Pause::Killed(signal, None))),
                Some(Flow::Lost(error)) => return Err(error.into()),
                _ => {}
            }
        }
        if self.kernel.threads.turn_is_over() {
            threads::give_way(self)?;
        }
        Ok(None)
    }

    /// Has there be what the guest touched, if it was promised. Whether it was.
    fn supply(&mut self, address: u64) -> bool {
        let is_owed = deferred::is_owed(self, address);
        if is_owed {
            deferred::settle(self);
        }
        is_owed || self.space.grow(address)
    }

    fn serve(&mut self, site: Option<u64>) -> Result<Option<Pause>, ProcessError> {
        let registers = *self.vcpu.registers();
        if let Some(site) = site {
            self.patch(site);
        }
        self.calls += 1;
        self.kernel.threads.calls();
        self.space.reach(registers.rsp);
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
        let flow = call::answer(self, number, arguments);
        if let Flow::Answer(answer) = &flow {
            tracing::trace!(number, ?arguments, ?answer, "system call");
        }
        let answer = match flow {
            Flow::Answer(answer) => answer,
            Flow::Unknown => {
                // No more than there could be: the guest invents numbers.
                if number < MOST_CALLS && self.unknown.insert(number) {
                    tracing::info!(
                        number,
                        "the guest tried a system call that does not exist here"
                    );
                }
                Err(Errno::NOSYS)
            }
            Flow::Spared => {
                self.spared.insert(number);
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
        self.vcpu.registers().rax = call::register(answer);
        self.kernel.threads.changed();
        if self.kernel.threads.turn_is_over() {
            threads::give_way(self)?;
        }
        Ok(None)
    }

    /// Makes a place that makes system calls hand over by itself next time, without ring 0. Both instructions are two bytes
    /// long. Only code that nobody can write is patched: what can be written may be data, or be checked by its writer.
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

/// What a machine's guest tells the time by, from `floor` on at the earliest: see [`ClockPage::new`].
pub(super) fn keep_time(
    host: &Hypervisor,
    vcpu: &Vcpu,
    floor: u64,
) -> Result<Option<ClockPage>, VcpuError> {
    let Ok(ticks) = host.ticks() else { return Ok(None) };
    if ticks.unshifted {
        vcpu.unshift_ticks()?;
    }
    Ok(Some(ClockPage::new(ticks, floor)))
}

/// A program of the tree: its headers and its bytes, and which file it is.
fn program(tree: &Tree, path: &str) -> Result<(Image, Vec<u8>, NodeId), ProcessError> {
    let missing = |errno| ProcessError::NoProgram { path: path.to_owned(), errno };
    let node = tree.existing(Tree::ROOT, path.as_bytes(), true).map_err(missing)?;
    let host = tree.open(node).map_err(missing)?.ok_or_else(|| missing(Errno::ACCESS))?;
    let mut file = Vec::new();
    io::Read::read_to_end(&mut &*host, &mut file)?;
    Ok((Image::parse(&file)?, file, node))
}

/// Loads a program of the tree, whose pages then are its file's.
fn load(
    space: &mut Space,
    image: &Image,
    file: &[u8],
    node: NodeId,
    base: u64,
) -> Result<Loaded, ImageError> {
    let loaded = image.load(file, space, base)?;
    for (range, offset) in image.shown(loaded) {
        space.show(
            range,
            FileMapping { node, offset, shared: false, writable: false, written: false },
        );
    }
    Ok(loaded)
}
