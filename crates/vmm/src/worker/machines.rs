//! The provider.

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
use crate::lacking::Lacking;

/// Clones that a family keeps ready, at most: each costs about a megabyte and some milliseconds.
const MAX_SPARES: usize = 2;

/// Makes micro-VMs.
#[derive(Debug, Clone)]
pub struct Machines {
    shared: Arc<Shared>,
}

/// What is kept of reference machines on disk.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// Bytes of all snapshots together; 0: none are kept, and those that are there are removed.
    pub bytes: u64,
    /// How old a machine can be that is restored.
    pub age: Duration,
}

impl Machines {
    /// A provider on top of the containers' warden, on a state directory; `spares` are the clones
    /// that each family keeps ready, `cpu` is what all machines of one family have of the
    /// processors together, `keep` is what stays on disk.
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
        // Whether it can be used is seen when the first monitor starts, as root.
        Absent::check(HAS_MACHINES, Path::new("/dev/kvm"))?;
        let (containers, lacking) = (containers.clone(), Arc::new(Lacking::open(state)));
        let (spares, snapshots) = (spares.min(MAX_SPARES), open(state, keep));
        let (saving, absent) = (Semaphore::new(1), OnceLock::new());
        let shared = Shared { containers, cpu, spares, lacking, snapshots, saving, absent };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Why there can be none after all, if a monitor has found out.
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

/// What is on disk; none where nothing is to be, or can be.
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
            // The instance keeps its family.
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
        // Monitors are among those that the containers' provider counts.
        0
    }

    fn renew(&self) {
        self.shared.snapshots.iter().for_each(|snapshots| snapshots.forget_all());
    }
}
