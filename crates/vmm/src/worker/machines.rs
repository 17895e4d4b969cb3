//! The provider of micro-VMs, as the engine sees it.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use container::Containers;
use sandbox::Network;
use sandbox::{Cpu, ProviderError};
use sandbox::{Instance, InstanceSpec, Pending, Provider, Zygote, ZygoteSpec};
use tokio::sync::Semaphore;

use super::shared::{Absent, Shared};
use super::snapshots::Snapshots;
use super::zygote::MachineZygote;
use crate::HAS_MACHINES;
use crate::missing_calls::MissingCalls;

/// Clones that a family keeps ready: each costs about a megabyte and some milliseconds.
const MAX_SPARES: usize = 2;

/// Makes micro-VMs: a [`Provider`].
#[derive(Debug, Clone)]
pub struct Machines {
    shared: Arc<Shared>,
}

/// How snapshots of reference machines are kept on disk.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// Bytes of all snapshots together. With 0, none are kept, and existing ones are removed.
    pub bytes: u64,
    /// Greatest age of a machine that is restored.
    pub age: Duration,
}

impl Machines {
    /// A provider on top of the containers' warden. `state` is the state directory, `spares` the
    /// clones that each family keeps ready, `cpu` the processors of all machines of one family
    /// together, `keep` the snapshots.
    ///
    /// # Errors
    /// Where the machine has no KVM, or another processor.
    pub fn new(
        containers: &Containers,
        state: &Path,
        spares: usize,
        cpu: Cpu,
        keep: Keep,
    ) -> Result<Self, Absent> {
        // Whether it can be used is found out by the first monitor, which starts as root.
        Absent::check(HAS_MACHINES, Path::new("/dev/kvm"))?;
        let (containers, missing_calls) = (containers.clone(), Arc::new(MissingCalls::open(state)));
        let (spares, snapshots) = (spares.min(MAX_SPARES), open(state, keep));
        let (saving, absent) = (Semaphore::new(1), OnceLock::new());
        let shared = Shared { containers, cpu, spares, missing_calls, snapshots, saving, absent };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Why there are no machines after all, if a monitor has found that out.
    #[must_use]
    pub fn absent(&self) -> Option<&Absent> {
        self.shared.absent.get()
    }

    async fn zygote(&self, spec: ZygoteSpec) -> Result<MachineZygote, ProviderError> {
        if spec.network != Network::None {
            return Err(ProviderError::Absent(
                "a micro-VM has no network: set network = \"none\"".to_owned(),
            ));
        }
        let imports = spec.imports.clone();
        MachineZygote::make(Arc::clone(&self.shared), spec, imports).await
    }
}

/// The snapshots on disk; none if none are to be kept, or the directory cannot be used.
fn open(state: &Path, keep: Keep) -> Option<Arc<Snapshots>> {
    if keep.bytes == 0 {
        Snapshots::remove_all(state);
        return None;
    }
    let opened = Snapshots::open(state, keep.bytes, keep.age);
    let opened =
        opened.inspect_err(|error| tracing::warn!(%error, "no snapshots of micro-VMs can be kept"));
    opened.map(Arc::new).ok()
}

impl Provider for Machines {
    fn create_zygote(&self, spec: ZygoteSpec) -> Pending<'_, Box<dyn Zygote>> {
        Box::pin(async move { Ok(Box::new(self.zygote(spec).await?) as Box<dyn Zygote>) })
    }

    fn create_instance(&self, spec: InstanceSpec) -> Pending<'_, Box<dyn Instance>> {
        Box::pin(async move {
            // The instance keeps its family alive.
            let zygote = ZygoteSpec {
                kind: spec.kind,
                python: spec.python.clone(),
                packages: None,
                imports: Vec::new(),
                network: spec.network,
                tenant: spec.tenant().into(),
                limits: spec.limits,
            };
            self.zygote(zygote).await?.fork(spec).await
        })
    }

    fn reaping(&self) -> usize {
        // Monitors are counted by the containers' provider.
        0
    }

    fn renew(&self) {
        self.shared.snapshots.iter().for_each(|snapshots| snapshots.forget_all());
    }
}
