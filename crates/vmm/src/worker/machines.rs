//! The provider.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use container::Containers;
use sandbox::Network;
use sandbox::{Cpu, ProviderError};
use sandbox::{Instance, InstanceSpec, Pending, Provider, Zygote, ZygoteSpec};
use thiserror::Error;
use tokio::sync::Semaphore;

use super::snapshots::Snapshots;
use super::zygote::MachineZygote;
use crate::HAS_MACHINES;
use crate::lacking::Lacking;

/// Clones that a family keeps ready, at most: each costs about a megabyte and some milliseconds.
const MOST_SPARES: usize = 2;

/// Why there can be no micro-VMs on this machine.
#[derive(Debug, Error)]
pub enum Absent {
    /// Another processor than they are for.
    #[error(
        "micro-VMs need an x86-64 processor: use a container, or let the function fall back: fallback = \"container\""
    )]
    Processor,
    /// No KVM.
    #[error(
        "this machine has no /dev/kvm: switch virtualisation on in its firmware (or, for a virtual machine, nested virtualisation in its host) and load the module kvm_intel or kvm_amd; or let the function fall back: fallback = \"container\""
    )]
    NoKvm,
    /// KVM is there and cannot be used, as a monitor has found.
    #[error(
        "this machine's KVM cannot be used: {0}; see to that and restart the worker, or let the function fall back: fallback = \"container\""
    )]
    Unusable(String),
    /// The operator does not want them.
    #[error(
        "micro-VMs are switched off on this machine: have `microvms` set to true, or let the function fall back: fallback = \"container\""
    )]
    SwitchedOff,
}

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

/// What all families have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) containers: Containers,
    /// What all machines of one family have of the processors together.
    pub(super) cpu: Cpu,
    /// Clones that each family keeps ready.
    pub(super) spares: usize,
    pub(super) lacking: Arc<Lacking>,
    pub(super) snapshots: Option<Arc<Snapshots>>,
    /// One snapshot is written at a time.
    pub(super) saving: Semaphore,
    /// Why there are none, once a monitor has found out: only it opens KVM with the rights that it has.
    absent: OnceLock<Absent>,
}

impl Shared {
    /// Notes that there can be no machines as long as this worker runs.
    pub(super) fn without_machines(&self, reason: String) -> ProviderError {
        let absent = self.absent.get_or_init(|| {
            let absent = Absent::Unusable(reason);
            tracing::warn!(%absent, "functions run in containers only");
            absent
        });
        ProviderError::Absent(absent.to_string())
    }
}

impl Absent {
    /// What is known without trying KVM out, of a machine that has this file.
    fn check(has_machines: bool, kvm: &Path) -> Result<(), Self> {
        match (has_machines, kvm.exists()) {
            (false, _) => Err(Self::Processor),
            (true, false) => Err(Self::NoKvm),
            (true, true) => Ok(()),
        }
    }
}

impl Machines {
    /// A provider on top of the containers' warden, on a state directory; `spares` are the clones that each family keeps
    /// ready, `cpu` is what all machines of one family have of the processors together, `keep` is what stays on disk.
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
        let (spares, snapshots) = (spares.min(MOST_SPARES), open(state, keep));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_processor_is_the_reason_whether_it_has_kvm_or_not() {
        let (there, missing) = (Path::new("/"), Path::new("/dev/kvm/none"));
        assert!(Absent::check(true, there).is_ok());
        assert!(matches!(Absent::check(true, missing), Err(Absent::NoKvm)));
        for kvm in [there, missing] {
            let absent = Absent::check(false, kvm).unwrap_err();
            assert!(matches!(absent, Absent::Processor));
            assert!(absent.to_string().contains("x86-64"), "{absent}");
        }
    }
}
