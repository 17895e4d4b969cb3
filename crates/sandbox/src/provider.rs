//! The traits of the seam.
//!
//! ```text
//!   Provider::create_zygote ─► Zygote ──derive──► Zygote ──fork──► Instance ─► connect ─► pause ⇄ resume
//!   Provider::create_instance (no zygote: a fresh interpreter) ───────┘                     │
//!                                                     dropping any of them destroys it ◄────┘
//! ```
//!
//! Destruction happens off the caller's path: `Drop` only hands the sandbox to the provider's
//! reaper. A zygote may be dropped while its children live. A future that is dropped half-way
//! undoes its work.

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::time::Duration;

use crate::{Death, Imports, InstanceSpec, Kind, ProviderError, SandboxId, ZygoteSpec};

/// A boxed future, so that the traits can be used as objects.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, ProviderError>> + Send + 'a>>;

/// Makes sandboxes of one kind.
pub trait Provider: Send + Sync + Debug {
    /// Starts a fresh interpreter that has imported `spec.imports` and waits to be forked.
    fn create_zygote(&self, spec: ZygoteSpec) -> Pending<'_, Box<dyn Zygote>>;

    /// Starts a fresh interpreter for one handler, with no zygote involved.
    fn create_instance(&self, spec: InstanceSpec) -> Pending<'_, Box<dyn Instance>>;

    /// How many sandboxes were dropped and are not yet destroyed.
    fn reaping(&self) -> usize;

    /// Why this machine can make no sandbox of that kind; none when no reason is known. Creating
    /// one nevertheless fails with the same words.
    fn lacks(&self, kind: Kind) -> Option<String> {
        let _ = kind;
        None
    }

    /// Discards what the provider has kept of earlier imports, because the imported files have
    /// changed. Later zygotes import them anew. Blocks for as long as it takes to remove a few
    /// files.
    fn renew(&self) {}
}

/// The operations that zygotes and instances share.
pub trait Sandbox: Send + Sync + Debug {
    /// The sandbox's id, unique in this worker.
    fn id(&self) -> SandboxId;

    /// Memory in bytes that only this sandbox uses. Includes kernel memory and page tables where
    /// the host can tell (11 µs for a cgroup). May be called at any time.
    ///
    /// # Errors
    /// When the host cannot measure, or the sandbox is gone.
    fn memory(&self) -> io::Result<u64>;

    /// Whether the main process still runs. May be called at any time.
    fn alive(&self) -> bool;
}

/// A sandbox that exists to be forked.
pub trait Zygote: Sandbox {
    /// The specification that it was made from.
    fn spec(&self) -> &ZygoteSpec;

    /// Effects of its imports, as the guest reports them.
    fn imports(&self) -> &Imports;

    /// Age of its interpreter when this zygote was made. Long if the interpreter was kept on disk.
    fn age(&self) -> Duration {
        Duration::ZERO
    }

    /// Forks a further zygote from this one, which then imports `spec.imports`. Refused unless
    /// kind, Python, network class and tenant are this zygote's.
    fn derive(&self, spec: ZygoteSpec) -> Pending<'_, Box<dyn Zygote>>;

    /// Forks an instance. Refused unless kind, Python, network class and tenant are this zygote's.
    /// Calls may overlap.
    fn fork(&self, spec: InstanceSpec) -> Pending<'_, Box<dyn Instance>>;
}

/// A sandbox that serves one handler.
pub trait Instance: Sandbox {
    /// Takes the channel: a connected, non-blocking stream socket on which the guest speaks
    /// [`crate::wire`]. Once, before any message.
    ///
    /// # Errors
    /// When the channel was taken already.
    fn connect(&mut self) -> io::Result<OwnedFd>;

    /// Takes the reading end of a pipe that carries all output of its processes on descriptors 1
    /// and 2. Non-blocking; writers wait while the pipe is full. Once. None where the guest sends
    /// its output on the channel.
    fn output(&mut self) -> Option<OwnedFd> {
        None
    }

    /// Stops all its processes until [`Instance::resume`]. Only between calls. Returns when the
    /// host has been told, not when all processes have stopped: waiting costs milliseconds, and the
    /// caller has nothing in flight.
    ///
    /// # Errors
    /// When the host refuses.
    fn pause(&self) -> io::Result<()>;

    /// Lets its processes run again. After `pause`.
    ///
    /// # Errors
    /// When the host refuses.
    fn resume(&self) -> io::Result<()>;

    /// Output of its processes on descriptors 1 and 2 that came neither on the channel nor on
    /// [`Instance::output`]. Called when no more output is expected: the instance has died, or is
    /// about to be destroyed. Empty where the provider cannot tell.
    fn untold(&self) -> Pending<'_, Vec<u8>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// The cause of death. Only once its channel has closed or [`Sandbox::alive`] says no.
    fn autopsy(&self) -> Pending<'_, Death>;
}
