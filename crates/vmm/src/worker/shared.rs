//! What all families of a worker have in common, and why a worker may have none.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use container::Containers;
use sandbox::{Cpu, ProviderError};
use thiserror::Error;
use tokio::sync::Semaphore;

use super::snapshots::Snapshots;
use crate::missing_calls::MissingCalls;

/// Why this machine has no micro-VMs.
#[derive(Debug, Error)]
pub enum Absent {
    /// The processor is not an x86-64.
    #[error(
        "micro-VMs need an x86-64 processor: use a container, or let the function fall back: fallback = \"container\""
    )]
    Processor,
    /// There is no `/dev/kvm`.
    #[error(
        "this machine has no /dev/kvm: switch virtualisation on in its firmware (or, for a virtual machine, nested virtualisation in its host) and load the module kvm_intel or kvm_amd; or let the function fall back: fallback = \"container\""
    )]
    NoKvm,
    /// A monitor found that KVM cannot be used.
    #[error(
        "this machine's KVM cannot be used: {0}; see to that and restart the worker, or let the function fall back: fallback = \"container\""
    )]
    Unusable(String),
    /// The operator has switched them off.
    #[error(
        "micro-VMs are switched off on this machine: have `microvms` set to true, or let the function fall back: fallback = \"container\""
    )]
    SwitchedOff,
}

impl Absent {
    /// Checks what can be known without trying KVM: the processor, and the device `kvm`.
    pub(super) fn check(has_machines: bool, kvm: &Path) -> Result<(), Self> {
        match (has_machines, kvm.exists()) {
            (false, _) => Err(Self::Processor),
            (true, false) => Err(Self::NoKvm),
            (true, true) => Ok(()),
        }
    }
}

/// What all families of a worker share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) containers: Containers,
    /// Processors of all machines of one family together.
    pub(super) cpu: Cpu,
    /// Clones that each family keeps ready.
    pub(super) spares: usize,
    pub(super) missing_calls: Arc<MissingCalls>,
    pub(super) snapshots: Option<Arc<Snapshots>>,
    /// One snapshot is written at a time.
    pub(super) saving: Semaphore,
    /// Why there are no machines, once a monitor has found out: only it opens KVM with its own
    /// rights.
    pub(super) absent: OnceLock<Absent>,
}

impl Shared {
    /// Notes that there are no machines as long as this worker runs.
    pub(super) fn without_machines(&self, reason: String) -> ProviderError {
        let absent = self.absent.get_or_init(|| {
            let absent = Absent::Unusable(reason);
            tracing::warn!(%absent, "functions run in containers only");
            absent
        });
        ProviderError::Absent(absent.to_string())
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
