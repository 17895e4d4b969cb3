//! What all families of a worker have in common, and why a worker may have none.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use container::Containers;
use sandbox::{Cpu, ProviderError};
use thiserror::Error;
use tokio::sync::Semaphore;

use super::snapshots::Snapshots;
use crate::lacking::Lacking;

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

impl Absent {
    /// What is known without trying KVM out, of a machine that has this file.
    pub(super) fn check(has_machines: bool, kvm: &Path) -> Result<(), Self> {
        match (has_machines, kvm.exists()) {
            (false, _) => Err(Self::Processor),
            (true, false) => Err(Self::NoKvm),
            (true, true) => Ok(()),
        }
    }
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
    /// Why there are none, once a monitor has found out: only it opens KVM with the rights that it
    /// has.
    pub(super) absent: OnceLock<Absent>,
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
