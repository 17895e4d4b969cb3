//! A template on disk, for a later monitor of the same build on the same host.
//!
//! ```text
//!   "WOOLSNAP"  version │ length, facts │ length, state │ start, length, bytes; …; 0, 0
//!                         must be equal   all state       the pages that hold data,
//!                         on this host    but memory      by address
//! ```
//!
//! The happy path: [`Template::save`] writes the file. [`Template::restore`] compares the facts one
//! by one, makes an address space with the state's mappings, reads the memory into it, and freezes
//! it like any other.
//!
//! | a file that | is refused as |
//! | --- | --- |
//! | is no snapshot, or of another format | [`RestoreError::Foreign`], [`RestoreError::Version`] |
//! | another build of the monitor wrote | [`RestoreError::Build`]: addresses of ports and stubs are the build's |
//! | was written where guests see another processor | [`RestoreError::Processor`]: a C library has chosen its routines |
//! | was written before the host was started | [`RestoreError::Boot`]: the guest's time would lie in the future |
//! | was written where the counter of ticks is another | [`RestoreError::Ticks`]: time would run too fast |
//! | belongs to other layers | [`RestoreError::Layers`]: files are opened by name later |
//! | holds impossible state, or ends early | [`RestoreError::Damaged`], [`RestoreError::Read`] |
//!
//! **The writer of the file controls the guest**, as the author of its packages does; the caller
//! has to know that the file is its own. It controls no more than that: page tables and ring 0 are
//! made anew, only registers that a guest can set come from the file, and every number is one that
//! a guest could have asked for. No bytes make the monitor panic.
//!
//! Only the usual machine is saved: one thread, no file of a layer open, no pipe, socket or lock,
//! and nothing in scratch but empty files without a name. Imports that leave more than that make
//! [`SaveError::Unusual`], and the machine is made anew each time.

mod facts;
mod memory;

use std::fs::File;
use std::io::{self, Read, Seek as _, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::linux::snapshot::template::Template;
use crate::linux::state::alarm::Alarm;
use crate::linux::state::cpu_time::CpuTime;
use crate::linux::state::error::ProcessError;
use crate::linux::state::files::{Files, SavedFiles};
use crate::linux::state::kernel::Kernel;
use crate::linux::state::resource_limits::ResourceLimits;
use crate::linux::state::signals::{SavedSignals, Signals};
use crate::linux::state::threads::{SavedThreads, Threads};
use crate::machine::Hypervisor;
use crate::machine::Vcpu;
use crate::machine::cpu::{CpuState, SavedCpu};
use crate::memory::arena::FrozenArena;
use crate::memory::space::{SavedSpace, Space, SpaceRestoreError, SpaceState};
use crate::vfs::{Kind, NodeId, SavedScratch, Tree};
use facts::Facts;

/// Version of the format. Older versions are not converted.
pub const VERSION: u32 = 8;
const MAGIC: &[u8; 8] = b"WOOLSNAP";
/// Bytes of the facts, and of the state, which has up to 65 530 mappings.
const MAX_FACTS: usize = 16 << 10;
const MAX_STATE: usize = 8 << 20;
/// Nanoseconds by which a guest's clock may be ahead of the host's: far more than it ever is.
const MAX_AHEAD: u64 = 3600 * 1_000_000_000;

/// A build of the monitor, by the hash of its executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build([u8; 32]);

impl Build {
    /// The build of an executable.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of(mut executable: &File) -> io::Result<Self> {
        executable.rewind()?;
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(executable)?;
        Ok(Self(*hasher.finalize().as_bytes()))
    }
}

/// Why a template is not saved. The template itself is unchanged.
#[derive(Debug, Error)]
pub enum SaveError {
    /// It has state that snapshots do not hold.
    #[error("the machine has {0}")]
    Unusual(&'static str),
    /// The host has no machine to compare it with.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The file could not be written.
    #[error("write the snapshot")]
    Write(#[from] io::Error),
}

/// Why a snapshot is refused.
#[derive(Debug, Error)]
pub enum RestoreError {
    /// The file is no snapshot.
    #[error("it is no snapshot")]
    Foreign,
    /// The file has another version of the format.
    #[error("its format has version {0}, and this monitor writes {VERSION}")]
    Version(u32),
    /// Another build of the monitor wrote it.
    #[error("another build of the monitor wrote it")]
    Build,
    /// Guests saw another processor, or other extended states.
    #[error("it was made on another processor")]
    Processor,
    /// The host was started since it was written.
    #[error("the host was started since it was made")]
    Boot,
    /// Guests read another counter of ticks.
    #[error("the processor's counter of ticks was another")]
    Ticks,
    /// The tree is made from other layers.
    #[error("it was made from other layers")]
    Layers,
    /// It holds state that is impossible.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// The file could not be read to its end.
    #[error("read the snapshot")]
    Read(#[from] io::Error),
    /// The host has no machine for it, or KVM refuses its registers.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// The state of a template, but for its memory and its tree.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    space: SavedSpace,
    cpu: SavedCpu,
    files: SavedFiles,
    scratch: SavedScratch,
    umask: u32,
    signals: SavedSignals,
    threads: SavedThreads,
    limits: ResourceLimits,
    name: [u8; 16],
    pid: u64,
    told: u64,
    /// Processor time used, in nanoseconds.
    used: u64,
}

impl Template {
    /// Writes the template. `build` is that of this program.
    ///
    /// # Errors
    /// When it is not a usual machine, or cannot be written.
    pub fn save(
        &self,
        host: &Hypervisor,
        build: Build,
        mut to: impl Write,
    ) -> Result<(), SaveError> {
        let facts = Facts::of(host, build, &self.kernel.tree);
        let facts = facts.ok_or(SaveError::Unusual("a host that does not name its start"))?;
        let parts = [part(&facts, MAX_FACTS)?, part(&self.state(host)?, MAX_STATE)?];
        to.write_all(MAGIC)?;
        to.write_all(&VERSION.to_le_bytes())?;
        to.write_all(&parts.concat())?;
        memory::write(&self.frozen, &self.space.regions, &mut to)?;
        Ok(to.flush()?)
    }

    fn state(&self, host: &Hypervisor) -> Result<State, SaveError> {
        let fresh = fresh(host, &self.frozen, &self.space)?;
        // Each field is named: a field that is added has to be decided about. The touched pages are
        // learnt anew.
        let Self { frozen: _, space, cpu, kernel, pid, told, used, touched: _ } = self;
        // A template has no alarm.
        let Kernel { tree, files, directory, umask, signals, threads, alarm: _, limits, name } =
            kernel;
        let limits = limits.clone();
        if *directory != Tree::ROOT {
            return Err(SaveError::Unusual("another current directory than the root"));
        }
        if space.files.show_scratch() {
            return Err(SaveError::Unusual("files of its own mapped"));
        }
        let (umask, name, pid, told) = (*umask, *name, *pid, *told);
        let used = u64::try_from(used.now().as_nanos()).unwrap_or(u64::MAX);
        let (unusual, signals) = (SaveError::Unusual, signals.to_saved());
        let space = space.to_saved().ok_or(unusual("too many mappings"))?;
        let scratch = tree.to_saved().ok_or(unusual("files of its own, or branches"))?;
        let files =
            files.to_saved().ok_or(unusual("files of layers open, pipes, sockets or locks"))?;
        let threads = threads.to_saved().ok_or(unusual("more than one thread"))?;
        let cpu = cpu.to_saved(&fresh).ok_or(unusual("system registers that no guest sets"))?;
        Ok(State {
            space,
            cpu,
            files,
            scratch,
            umask,
            signals,
            threads,
            limits,
            name,
            pid,
            told,
            used,
        })
    }

    /// Makes a template of a snapshot. `build` is that of this program; `tree` is built from the
    /// same layers as the first one, in the same way.
    ///
    /// # Errors
    /// When the snapshot cannot be used here; see [`RestoreError`].
    pub fn restore(
        host: &Hypervisor,
        build: Build,
        tree: Tree,
        mut from: impl Read,
    ) -> Result<Self, RestoreError> {
        read_head(&mut from)?;
        let facts: Facts = read_part(&mut from, MAX_FACTS)?;
        let here = Facts::of(host, build, &tree).ok_or(RestoreError::Boot)?;
        facts.are(&here)?;
        let state: State = read_part(&mut from, MAX_STATE)?;
        let State {
            space,
            cpu,
            files,
            scratch,
            umask,
            signals,
            threads,
            limits,
            name,
            pid,
            told,
            used,
        } = state;
        let damaged = RestoreError::Damaged;
        let tree = tree.with_saved(&scratch).ok_or(damaged("scratch"))?;
        let files = Files::of_saved(&files, &tree).ok_or(damaged("descriptors"))?;
        let signals = Signals::of_saved(&signals).ok_or(damaged("signals"))?;
        let threads = Threads::of_saved(&threads).ok_or(damaged("threads"))?;
        if told > now().saturating_add(MAX_AHEAD) {
            return Err(damaged("the time"));
        }
        let (directory, umask) = (Tree::ROOT, umask & 0o777);
        let alarm = Alarm::default();
        let kernel =
            Kernel { tree, files, directory, umask, signals, threads, alarm, limits, name };
        // A saved machine has no other files mapped.
        let is_file = |node: NodeId| {
            !node.is_scratch() && kernel.tree.existing_kind(node) == Some(Kind::File)
        };
        if !space.nodes().all(is_file) {
            return Err(damaged("mappings of files"));
        }
        let mut space = space.to_space()?;
        memory::read(&mut space, &mut from)?;
        let (frozen, space) = space.freeze().map_err(ProcessError::Host)?;
        let fresh = fresh(host, &frozen, &space)?;
        let cpu = fresh.with_saved(&cpu).ok_or(damaged("registers"))?;
        let used = CpuTime::stopped_at(Duration::from_nanos(used));
        let touched = Mutex::default();
        let template = Self { frozen, space, cpu, kernel, pid, told, used, touched };
        // Registers that KVM refuses are found now, not during a call.
        drop(template.spawn(host)?);
        Ok(template)
    }
}

impl From<SpaceRestoreError> for RestoreError {
    fn from(impossible: SpaceRestoreError) -> Self {
        match impossible {
            SpaceRestoreError::Mappings => Self::Damaged("mappings"),
            SpaceRestoreError::Host(error) => ProcessError::Host(error).into(),
        }
    }
}

/// The state of a machine that has not run.
fn fresh(
    host: &Hypervisor,
    frozen: &Arc<FrozenArena>,
    space: &SpaceState,
) -> Result<CpuState, ProcessError> {
    let space = Space::clone_of(frozen, space.clone())?;
    Ok(CpuState::save(&mut Vcpu::new(host, &space, 0, 0)?)?)
}

/// Nanoseconds of the host's monotonic clock.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, rest) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// A part as [`read_part`] reads it: its length, and what it is.
fn part(part: &impl Serialize, most: usize) -> Result<Vec<u8>, SaveError> {
    let bytes = serde_json::to_vec(part).map_err(io::Error::from)?;
    let length = u32::try_from(bytes.len()).ok().filter(|_| bytes.len() <= most);
    let length = length.ok_or(SaveError::Unusual("more state than a snapshot holds"))?;
    Ok([&length.to_le_bytes()[..], &bytes].concat())
}

fn read_head(from: &mut impl Read) -> Result<(), RestoreError> {
    let (mut magic, mut version) = ([0; 8], [0; 4]);
    from.read_exact(&mut magic)?;
    if magic != *MAGIC {
        return Err(RestoreError::Foreign);
    }
    from.read_exact(&mut version)?;
    match u32::from_le_bytes(version) {
        VERSION => Ok(()),
        other => Err(RestoreError::Version(other)),
    }
}

fn read_part<T: for<'de> Deserialize<'de>>(
    from: &mut impl Read,
    most: usize,
) -> Result<T, RestoreError> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > most {
        return Err(RestoreError::Damaged("the length of a part"));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    serde_json::from_slice(&bytes).map_err(|_| RestoreError::Damaged("a part"))
}
