//! The one test double: sandboxes without a kernel's help, for the engine's tests and the
//! simulator.
//!
//! ```text
//!   FakeProvider ──► FakeZygote ──fork──► FakeInstance ─── a real socket pair ─── guest (a tokio task)
//!        │ latencies, memory, faults on the nth operation        behaves as its module's name says
//!        └ census(): what was made, what lives, what is paused
//! ```
//!
//! Faults are scheduled by operation and number ([`FakeProvider::fail`]). The name of a handler's
//! module says how its guest behaves (the table in `fake/guest.rs`). The name of an import says
//! what importing it does: `threads` leaves a thread behind, `shares` leaves memory that forks
//! would share, `missing` cannot be imported, `dies` ends its process, `stray` loads a file from
//! `/tmp`, `slow:40` takes 40 ms. A module with a recorded cost ([`FakeProvider::record`]) takes
//! that.
//!
//! Everything must be made inside a tokio runtime. Its clock may be paused as long as there are
//! only zygotes: instances have real sockets, and tokio advances a paused clock while they are
//! polled.

mod guest;
mod instance;
mod process;
mod recorded;
mod zygote;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::{Instance, InstanceSpec};
use crate::{Pending, Provider, ProviderError, SandboxId, Zygote, ZygoteSpec};
use instance::FakeInstance;
pub use recorded::Recorded;
use zygote::FakeZygote;

/// An operation of the seam that a [`FakeProvider`] counts and can let fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// [`Provider::create_zygote`]
    CreateZygote,
    /// [`Provider::create_instance`]
    CreateInstance,
    /// [`Zygote::derive`]
    Derive,
    /// [`Zygote::fork`]
    Fork,
}

/// How an operation goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// [`ProviderError::Exhausted`]
    Exhausted,
    /// [`ProviderError::ZygoteLost`]
    Lost,
    /// [`ProviderError::Killed`]
    Killed,
    /// [`ProviderError::Impostor`]
    Impostor,
    /// [`ProviderError::Step`]
    Step,
    /// [`ProviderError::Interpreter`]
    Interpreter,
    /// The operation never ends.
    Hang,
}

/// Latencies and sizes that a [`FakeProvider`] pretends.
#[derive(Clone, Copy, Debug)]
pub struct FakeSettings {
    /// Time to start an interpreter, for a zygote or an instance.
    pub create: Duration,
    /// Time to derive a zygote, imports apart.
    pub derive: Duration,
    /// Time to fork an instance.
    pub fork: Duration,
    /// Memory in bytes that each instance made from now on reports; none: it cannot be measured.
    pub instance_bytes: Option<u64>,
    /// Memory in bytes that each zygote made from now on reports, without that of recorded imports.
    pub zygote_bytes: u64,
    /// Output of every instance outside its channel, and how long it takes to collect it.
    pub untold: (&'static str, Duration),
    /// Age that each zygote made from now on reports.
    pub zygote_age: Duration,
}

impl Default for FakeSettings {
    fn default() -> Self {
        Self {
            create: Duration::ZERO,
            derive: Duration::ZERO,
            fork: Duration::ZERO,
            instance_bytes: Some(1 << 20),
            zygote_bytes: 8 << 20,
            untold: ("", Duration::ZERO),
            zygote_age: Duration::ZERO,
        }
    }
}

/// Counts of sandboxes: ever made, and still alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Zygotes that live.
    pub zygotes: usize,
    /// Instances that were not dropped yet.
    pub instances: usize,
    /// Instances that are paused.
    pub paused: usize,
    /// Zygotes ever made from nothing.
    pub created_zygotes: usize,
    /// Zygotes ever derived.
    pub derived_zygotes: usize,
    /// Instances ever made with no zygote.
    pub created_instances: usize,
    /// Instances ever forked.
    pub forked_instances: usize,
    /// Pauses of a paused instance and resumes of a running one: misuse of the seam.
    pub misuses: usize,
}

/// Makes fake sandboxes.
#[derive(Clone, Debug, Default)]
pub struct FakeProvider {
    shared: Arc<Shared>,
}

/// State that all fake sandboxes of a provider share.
#[derive(Debug, Default)]
struct Shared {
    next: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    settings: FakeSettings,
    census: Census,
    begun: HashMap<Operation, u64>,
    faults: HashMap<(Operation, u64), Fault>,
    instances: BTreeMap<SandboxId, Weak<process::Process>>,
    zygotes: BTreeMap<SandboxId, Weak<zygote::Process>>,
    forked_from: Vec<(SandboxId, Vec<String>)>,
    recorded: Arc<HashMap<String, Recorded>>,
    derived_ms: f64,
    /// The provider has ended: nothing can be made or examined any more.
    gone: bool,
}

impl FakeProvider {
    /// A provider with these settings.
    #[must_use]
    pub fn new(settings: FakeSettings) -> Self {
        let provider = Self::default();
        provider.set(|kept| *kept = settings);
        provider
    }

    /// Changes the settings of sandboxes that are made from now on.
    pub fn set(&self, change: impl FnOnce(&mut FakeSettings)) {
        change(&mut self.shared.state().settings);
    }

    /// Lets the `nth` operation of this kind go wrong. Counted from 1 since the provider was made.
    pub fn fail(&self, operation: Operation, nth: u64, fault: Fault) {
        self.shared.state().faults.insert((operation, nth), fault);
    }

    /// Sets what importing each of these modules costs from now on.
    pub fn record(&self, costs: HashMap<String, Recorded>) {
        self.shared.state().recorded = Arc::new(costs);
    }

    /// All modules that a zygote has imported; none when the zygote is gone.
    #[must_use]
    pub fn imported(&self, zygote: SandboxId) -> Option<Vec<String>> {
        let process = self.shared.state().zygotes.get(&zygote).and_then(Weak::upgrade);
        process.map(|process| process.modules.clone())
    }

    /// How many operations of this kind have begun.
    #[must_use]
    pub fn begun(&self, operation: Operation) -> u64 {
        self.shared.state().begun.get(&operation).copied().unwrap_or(0)
    }

    /// A copy of the counts.
    #[must_use]
    pub fn census(&self) -> Census {
        self.shared.state().census
    }

    /// Milliseconds that the imports of all zygotes ever derived took.
    #[must_use]
    pub fn derived_ms(&self) -> f64 {
        self.shared.state().derived_ms
    }

    /// For each fork that succeeded, in order: the zygote's modules.
    #[must_use]
    pub fn forked_from(&self) -> Vec<Vec<String>> {
        self.shared.state().forked_from.iter().map(|(_, imports)| imports.clone()).collect()
    }

    /// The zygote that the last instance was forked from.
    #[must_use]
    pub fn last_forked_from(&self) -> Option<SandboxId> {
        self.shared.state().forked_from.last().map(|(zygote, _)| *zygote)
    }

    /// Ends all instances' processes, paused ones too, as a host under memory pressure might.
    pub fn kill_instances(&self) {
        let all: Vec<_> =
            self.shared.state().instances.values().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|process| process.kill());
    }

    /// Ends as a provider ends whose privileged helper was killed: all processes end, nothing can
    /// be made any more, and no cause of death can be found out.
    pub fn end(&self) {
        self.shared.state().gone = true;
        self.kill_instances();
        self.kill_zygotes();
    }

    /// Ends all zygotes' processes: the next fork from one fails with
    /// [`ProviderError::ZygoteLost`].
    pub fn kill_zygotes(&self) {
        let all: Vec<_> = self.shared.state().zygotes.values().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|process| process.kill());
    }
}

impl Provider for FakeProvider {
    fn create_zygote(&self, spec: ZygoteSpec) -> Pending<'_, Box<dyn Zygote>> {
        Box::pin(async move {
            let latency = self.shared.settings().create;
            self.shared.begin(Operation::CreateZygote, None, latency).await?;
            Ok(Box::new(FakeZygote::make(&self.shared, spec, None).await?) as Box<dyn Zygote>)
        })
    }

    fn create_instance(&self, _spec: InstanceSpec) -> Pending<'_, Box<dyn Instance>> {
        Box::pin(async move {
            let latency = self.shared.settings().create;
            self.shared.begin(Operation::CreateInstance, None, latency).await?;
            let made = FakeInstance::make(&self.shared, None, Vec::new())
                .map_err(ProviderError::step("socketpair"))?;
            Ok(Box::new(made) as Box<dyn Instance>)
        })
    }

    fn reaping(&self) -> usize {
        0
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settings(&self) -> FakeSettings {
        self.state().settings
    }

    fn id(&self) -> SandboxId {
        SandboxId(self.next.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Counts an operation, lets its time pass, and fails it if [`FakeProvider::fail`] asked for
    /// that.
    async fn begin(
        &self,
        operation: Operation,
        zygote: Option<SandboxId>,
        latency: Duration,
    ) -> Result<(), ProviderError> {
        let fault = {
            let mut state = self.state();
            let count = state.begun.entry(operation).or_default();
            *count += 1;
            let nth = *count;
            if state.gone {
                return Err(ProviderError::WardenGone);
            }
            state.faults.remove(&(operation, nth))
        };
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        let id = zygote.unwrap_or(SandboxId(0));
        let reason = "asked to fail".to_owned();
        match fault {
            None => Ok(()),
            Some(Fault::Exhausted) => Err(ProviderError::Exhausted { what: "patience".to_owned() }),
            Some(Fault::Lost) => Err(ProviderError::ZygoteLost { id, reason }),
            Some(Fault::Killed) => Err(ProviderError::Killed { reason }),
            Some(Fault::Impostor) => Err(ProviderError::Impostor { id, reason }),
            Some(Fault::Step) => {
                Err(ProviderError::Step { step: "fake", source: io::Error::other(reason) })
            }
            Some(Fault::Interpreter) => Err(ProviderError::Interpreter(reason)),
            Some(Fault::Hang) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests;
