//! The reference machine: an interpreter that imports the modules of its clones, and is then
//! frozen.

use std::os::fd::OwnedFd;

use microvm::linux::{Options, Pause, Process, ProcessError, RestoreError, SaveError, Template};
use microvm::machine::Hypervisor;
use microvm::vfs::{LayerError, Tree, TreeBuilder};
use rustix::io::Errno;
use sandbox::Imports;
use sandbox::wire::{Decoder, Frame, FrameError, Reply};
use serde::Serialize;
use thiserror::Error;

const AGENT: &str = "/opt/lambswool/lambswool_guest/__main__.py";
/// Bytes of the report of an import.
const REPORT_BYTES: usize = 64 << 20;
/// Bytes of an ended guest's output that are told.
const WORDS: usize = 4096;
/// The environment of a zygote's interpreter. Numeric pools start with one thread, and stay there,
/// since a machine has one processor.
const ENVIRONMENT: [&str; 9] = [
    "PATH=/usr/bin",
    "LANG=C.UTF-8",
    "HOME=/tmp",
    "TMPDIR=/tmp",
    "OPENBLAS_NUM_THREADS=1",
    "OMP_NUM_THREADS=1",
    "MKL_NUM_THREADS=1",
    "NUMEXPR_NUM_THREADS=1",
    "LD_BIND_NOW=1",
];

/// Why a machine could not be made, or was lost.
#[derive(Debug, Error)]
pub(super) enum MonitorError {
    #[error(transparent)]
    Layer(#[from] LayerError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("restore the snapshot")]
    Restore(#[from] RestoreError),
    #[error("save the snapshot")]
    Save(#[from] SaveError),
    #[error("put a layer in its place: {0}")]
    Attach(Errno),
    #[error("{0:?}: {1}")]
    Ended(Pause, String),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("the guest's answer does not fit the order")]
    Unexpected,
    #[error(transparent)]
    Host(#[from] std::io::Error),
    #[error("a defect of the monitor: its thread panicked")]
    Panicked,
}

/// An order of the monitor's own to a guest.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(super) enum GuestOrder<'a> {
    /// To a reference machine.
    Import { modules: &'a [String], path: &'a [String] },
    /// To a reference machine after its last import, or to a clone that has loaded: it will be
    /// cloned.
    Settle {},
    /// To a first clone: do all that a load and a call do.
    Rehearse {},
}

impl GuestOrder<'_> {
    pub(super) fn encoded(&self) -> Result<Vec<u8>, FrameError> {
        let mut bytes = Vec::new();
        // Plain data always serialises.
        Frame::encode(&serde_json::to_vec(self).unwrap_or_default(), b"", &mut bytes)?;
        Ok(bytes)
    }
}

/// A machine that imports modules.
#[derive(Debug)]
pub(super) struct Reference {
    process: Process,
    decoder: Decoder,
}

impl Reference {
    /// Starts it from its layers, and waits until its interpreter is up.
    pub(super) fn start(
        host: &Hypervisor,
        interpreter: &str,
        layers: impl IntoIterator<Item = (String, OwnedFd)>,
    ) -> Result<Self, MonitorError> {
        let tree = tree(host, layers)?;
        let program = [interpreter, "-I", "-S", "-B", AGENT, "reference"];
        let program = program.map(str::to_owned).to_vec();
        let environment = ENVIRONMENT.map(str::to_owned).to_vec();
        let options = Options { program, environment, channel: true };
        let process = Process::start(host, tree, &options)?;
        let mut reference = Self { process, decoder: Decoder::new(REPORT_BYTES) };
        let ready = reference.hear()?.ok_or(MonitorError::Unexpected)?;
        match Reply::decode(ready) {
            Ok((Reply::Ready { .. }, _)) => Ok(reference),
            _ => Err(MonitorError::Unexpected),
        }
    }

    /// Has it import modules.
    pub(super) fn import(
        &mut self,
        modules: &[String],
        path: &[String],
    ) -> Result<Imports, MonitorError> {
        self.say(&GuestOrder::Import { modules, path })?;
        let report = self.hear()?.ok_or(MonitorError::Unexpected)?;
        serde_json::from_slice(&report.body).map_err(|_| MonitorError::Unexpected)
    }

    /// System calls that it made and that do not exist here.
    pub(super) fn missed_calls(&self) -> impl Iterator<Item = u64> + '_ {
        let calls = [self.process.unknown_calls(), self.process.optional_calls()];
        calls.into_iter().flatten().copied()
    }

    /// Freezes it, to be cloned.
    pub(super) fn freeze(mut self) -> Result<Template, MonitorError> {
        self.say(&GuestOrder::Settle {})?;
        match self.hear()? {
            None => Ok(Template::seal(self.process)?),
            Some(_) => Err(MonitorError::Unexpected),
        }
    }

    fn say(&mut self, word: &GuestOrder<'_>) -> Result<(), MonitorError> {
        self.process.feed(&word.encoded()?);
        Ok(())
    }

    /// The frame that it sends before it waits again, if any.
    fn hear(&mut self) -> Result<Option<Frame>, MonitorError> {
        match self.process.run()? {
            Pause::Idle => {
                self.decoder.push(&self.process.take_said());
                Ok(self.decoder.next_frame()?)
            }
            pause => Err(MonitorError::Ended(pause, words(&mut self.process))),
        }
    }
}

/// The tree of a reference machine.
pub(super) fn tree(
    host: &Hypervisor,
    layers: impl IntoIterator<Item = (String, OwnedFd)>,
) -> Result<Tree, LayerError> {
    let mut tree = TreeBuilder::default();
    for (at, directory) in layers {
        tree = tree.layer_of(&at, directory)?;
    }
    // Clones set limits of their own.
    let tree = tree.devices().machine(host.cpuinfo());
    Ok(tree.scratch("/tmp").scratch("/dev/shm").build(64 << 20, 4096))
}

/// The end of what a guest wrote to its standard streams.
fn words(process: &mut Process) -> String {
    let output: Vec<u8> = process.take_output().into_iter().flat_map(|(_, bytes)| bytes).collect();
    let end = &output[output.len().saturating_sub(WORDS)..];
    String::from_utf8_lossy(end).trim().to_owned()
}
