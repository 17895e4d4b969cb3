//! The traits of the seam.
//!
//! ```text
//!   Provider::create_zygote ─► Zygote ──derive──► Zygote ──fork──► Instance ─► connect ─► pause ⇄ resume
//!   Provider::create_instance (no zygote: a fresh interpreter) ───────┘                     │
//!                                                     dropping any of them destroys it ◄────┘
//! ```
//!
//! Destruction happens off the caller's path: `Drop` only hands the sandbox to the provider's reaper. A zygote may
//! be dropped while its children live. A future that is dropped half-way unwinds what it had made.

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Death, InstanceSpec, Kind, SandboxId, ZygoteSpec};

/// A boxed future, so that the traits can be used as objects.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, ProviderError>> + Send + 'a>>;

/// Makes sandboxes from nothing.
pub trait Provider: Send + Sync + Debug {
    /// Starts a fresh interpreter that has imported `spec.imports` and waits to be forked.
    fn create_zygote(&self, spec: ZygoteSpec) -> Pending<'_, Box<dyn Zygote>>;

    /// Starts a fresh interpreter for one handler, with no zygote involved.
    fn create_instance(&self, spec: InstanceSpec) -> Pending<'_, Box<dyn Instance>>;

    /// Sandboxes that were dropped and are not yet gone.
    fn reaping(&self) -> usize;

    /// Why no sandbox of that kind can be made here, as far as that is known: what is tried nevertheless is refused with the
    /// same words.
    fn lacks(&self, kind: Kind) -> Option<String> {
        let _ = kind;
        None
    }

    /// Forgets whatever it has kept, for zygotes to come, of what others had imported: files that they imported have changed.
    /// Blocks for as long as it takes to remove some files.
    fn renew(&self) {}
}

/// What zygotes and instances have in common.
pub trait Sandbox: Send + Sync + Debug {
    /// Its name.
    fn id(&self) -> SandboxId;

    /// Bytes that it costs the machine beyond what it shares: kernel memory and page tables included where the host
    /// can tell (11 µs for a cgroup). Any time.
    ///
    /// # Errors
    /// When the host cannot measure, or the sandbox is gone.
    fn memory(&self) -> io::Result<u64>;

    /// Whether its main process still runs. Any time.
    fn alive(&self) -> bool;
}

/// A sandbox that exists to be forked.
pub trait Zygote: Sandbox {
    /// What it was made from.
    fn spec(&self) -> &ZygoteSpec;

    /// What its imports did.
    fn imports(&self) -> &Imports;

    /// How long ago the interpreter was started that it goes on from, when this zygote was made: long, if that was on disk
    /// meanwhile.
    fn age(&self) -> Duration {
        Duration::ZERO
    }

    /// Forks a further zygote from this one and has it import `spec.imports`. Refused unless kind, Python, network class and
    /// tenant are this zygote's.
    fn derive(&self, spec: ZygoteSpec) -> Pending<'_, Box<dyn Zygote>>;

    /// Forks an instance. Refused unless kind, Python, network class and tenant are this zygote's. Calls may overlap.
    fn fork(&self, spec: InstanceSpec) -> Pending<'_, Box<dyn Instance>>;
}

/// A sandbox that serves one handler.
pub trait Instance: Sandbox {
    /// Takes the channel: a connected stream socket, non-blocking, on which the guest speaks [`crate::wire`].
    /// Once; before any other message.
    ///
    /// # Errors
    /// When the channel was taken already.
    fn connect(&mut self) -> io::Result<OwnedFd>;

    /// Takes the end of a pipe at which all is read that its processes write to descriptors 1 and 2: non-blocking. They wait
    /// where nobody reads. Once. None where its guest says that on the channel.
    fn output(&mut self) -> Option<OwnedFd> {
        None
    }

    /// Stops all its processes until [`Instance::resume`]. Returns when the host was told, not when all have stopped
    /// (waiting costs milliseconds and buys nothing: the caller has nothing in flight). Only between calls.
    ///
    /// # Errors
    /// When the host refuses.
    fn pause(&self) -> io::Result<()>;

    /// Lets it run again. After `pause`.
    ///
    /// # Errors
    /// When the host refuses.
    fn resume(&self) -> io::Result<()>;

    /// What its processes have written to descriptors 1 and 2 by now, whoever they are, and neither its guest has said on the
    /// channel nor its output. When nothing more is expected of it: it has died, or is about to be given up. Empty where that
    /// cannot be told.
    fn untold(&self) -> Pending<'_, Vec<u8>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Why it died. Only once its channel has closed or [`Sandbox::alive`] says no.
    fn autopsy(&self) -> Pending<'_, Death>;
}

/// What a zygote's imports did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Imports {
    /// Milliseconds that the imports took, all together. Not more than they took as seen from outside.
    pub milliseconds: f64,
    /// The modules now in `sys.modules` that were loaded from files outside the standard library, in the order in which
    /// their imports ended: what was imported before what imports it.
    pub files: Vec<LoadedFile>,
    /// Threads and processes that were left running beside the main one. Not zero: do not fork from it.
    pub threads: u32,
    /// Files that were left open. Not zero: do not fork from it.
    pub fds: u32,
    /// Mappings that were left and would be shared, for writing, with whatever is forked. Not zero: do not fork from it.
    #[serde(default)]
    pub shared: u32,
    /// Files were left in the scratch that are too many, or of such a kind, that a fork cannot be given the same: do not fork
    /// from it.
    #[serde(default)]
    pub scratch: bool,
    /// An interval timer was left set, which a fork does not have: do not fork from it.
    #[serde(default)]
    pub timers: bool,
    /// The modules whose imports left any of these.
    pub left_by: Vec<String>,
    /// Modules that could not be imported, with the exception's own words.
    pub failed: Vec<(String, String)>,
    /// Modules that were asked for, and the environment variables that were looked up on their behalf by what is in no file:
    /// see [`LoadedFile::variables`].
    #[serde(default)]
    pub variables: Vec<(String, Vec<String>)>,
}

impl Imports {
    /// Keeps what a zygote says of its own time within the time that it had, as seen from outside: its word is a package's.
    pub fn bound(&mut self, elapsed: Duration) {
        let most = elapsed.as_secs_f64() * 1e3;
        // Also of what is no number.
        let within = |said: f64| said.max(0.0).min(most);
        self.milliseconds = within(self.milliseconds);
        self.files.iter_mut().for_each(|file| file.milliseconds = within(file.milliseconds));
        let sum: f64 = self.files.iter().map(|file| file.milliseconds).sum();
        if sum > most {
            self.files.iter_mut().for_each(|file| file.milliseconds *= most / sum);
        }
    }
}

/// A module that was loaded from a file. A guest may say it as a list of these fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadedFile {
    /// Its name.
    pub module: String,
    /// The file's path inside the sandbox.
    pub path: String,
    /// Milliseconds that its import took, imports inside it apart: its own word, within what all imports took together.
    pub milliseconds: f64,
    /// The module whose import first imported it; empty when it was asked for.
    pub importer: String,
    /// Names of the environment variables that were looked up meanwhile, imports inside it apart; `A_*` for all that begin
    /// with `A_`.
    #[serde(default)]
    pub variables: Vec<String>,
}

/// The one signal that nobody raises by accident.
const SIGKILL: i32 = 9;

/// Why a provider could not do what it was asked.
#[derive(Debug, Error)]
pub enum ProviderError {
    /// The host is out of something (pids, memory, fds, cgroups): try later, or evict.
    #[error("the host is out of {what}")]
    Exhausted {
        /// What is missing.
        what: String,
    },
    /// The zygote is gone or does not answer: make another.
    #[error("zygote {id} does not answer: {reason}")]
    ZygoteLost {
        /// Which.
        id: SandboxId,
        /// What happened.
        reason: String,
    },
    /// Somebody killed it before it was of use. That says nothing about its zygote, nor about the next one.
    #[error("it was killed while it was made: {reason}")]
    Killed {
        /// What happened.
        reason: String,
    },
    /// What answered is not the sandbox that was asked for. Never retried with the same zygote.
    #[error("zygote {id} answered with a process that is not the slot's: {reason}")]
    Impostor {
        /// Which zygote.
        id: SandboxId,
        /// What did not match.
        reason: String,
    },
    /// A step failed.
    #[error("{step}")]
    Step {
        /// Which step.
        step: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// This machine cannot make such sandboxes: what to do about it.
    #[error("{0}")]
    Absent(String),
    /// The privileged helper refused.
    #[error("the warden could not: {0}")]
    Refused(String),
    /// The privileged helper is gone; nothing can be made any more.
    #[error("the warden is gone: restart the worker")]
    WardenGone,
    /// The interpreter did not come up.
    #[error("the interpreter did not start: {0}")]
    Interpreter(String),
}

impl ProviderError {
    /// Names the step that failed.
    pub fn step<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Step { step, source: source.into() }
    }

    /// Why `what` was not up before it ended: `stderr` is what it said.
    pub fn ended_early(what: &str, death: Death, stderr: &str) -> Self {
        let words = stderr.trim();
        let words = if words.is_empty() { "it said nothing" } else { words };
        let reason = format!("{what} ended: {death:?}: {words}");
        match death {
            Death::Signal(SIGKILL) => Self::Killed { reason },
            _ => Self::Interpreter(reason),
        }
    }
}
