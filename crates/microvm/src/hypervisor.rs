//! The host's KVM: what of it a machine needs, found out once.

use kvm_bindings::{CpuId, KVM_MAX_CPUID_ENTRIES};
use kvm_ioctls::{Cap, Kvm};
use thiserror::Error;

/// x87, SSE, AVX, the three parts of AVX-512 and the rights of protection keys: what fits into the 4 KiB that
/// KVM_GET_XSAVE returns. No AMX, which needs a permission and 8 KiB more.
///
/// Protection keys themselves stay off. Some hosts let CPL 3 execute WRPKRU all the same; as a state of its own the
/// register is put back by a reset.
const STATES: u32 = 0x2e7;
/// The leaf of CPUID that says which states there are.
const STATE_LEAF: u32 = 0xd;

/// An open `/dev/kvm`.
#[derive(Debug)]
pub struct Hypervisor {
    pub(crate) kvm: Kvm,
    pub(crate) cpuid: CpuId,
    pub(crate) xcr0: u64,
}

/// Why there can be no machines on this host.
#[derive(Debug, Error)]
pub enum HypervisorError {
    /// No KVM, or no permission.
    #[error("open /dev/kvm: enable virtualisation, or give this user access (group kvm)")]
    Open(#[source] kvm_ioctls::Error),
    /// KVM is older than Linux 4.17, or another architecture's.
    #[error("KVM lacks {0}: Linux 4.17 or later is needed")]
    Lacks(&'static str),
    /// KVM did not say what the processor has.
    #[error("ask KVM what the processor has")]
    Cpuid(#[source] kvm_ioctls::Error),
}

impl Hypervisor {
    /// Opens `/dev/kvm`.
    ///
    /// # Errors
    /// When the host has none, or not for us.
    pub fn open() -> Result<Self, HypervisorError> {
        let kvm = Kvm::new().map_err(HypervisorError::Open)?;
        let needed = [
            (Cap::SyncRegs, "registers in shared memory"),
            (Cap::ImmediateExit, "immediate exits"),
            (Cap::Xcrs, "extended states"),
        ];
        for (capability, name) in needed {
            if !kvm.check_extension(capability) {
                return Err(HypervisorError::Lacks(name));
            }
        }
        let mut cpuid =
            kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).map_err(HypervisorError::Cpuid)?;
        let mut xcr0 = 0;
        for leaf in cpuid.as_mut_slice() {
            if (leaf.function, leaf.index) == (STATE_LEAF, 0) {
                (leaf.eax, leaf.edx) = (leaf.eax & STATES, 0);
                xcr0 = u64::from(leaf.eax);
            }
        }
        Ok(Self { kvm, cpuid, xcr0 })
    }
}
