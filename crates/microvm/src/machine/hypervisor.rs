//! The host's KVM: what of it a machine needs, found out once.

use std::io;
use std::sync::OnceLock;

use kvm_bindings::{CpuId, KVM_MAX_CPUID_ENTRIES};
use kvm_ioctls::{Cap, Kvm};
use thiserror::Error;

use super::extended_states::ExtendedStates;

/// x87, SSE, AVX, the three parts of AVX-512 and the rights of protection keys: what fits into the 4 KiB that
/// KVM_GET_XSAVE returns. No AMX, which needs a permission and 8 KiB more.
///
/// Protection keys themselves stay off. Some hosts let CPL 3 execute WRPKRU all the same; as a state of its own the
/// register is put back by a reset.
const STATES: u32 = 0x2e7;
/// The leaf of CPUID that says which states there are.
const STATE_LEAF: u32 = 0xd;

/// The only one there has been since Linux 2.6.22; Documentation/virt/kvm/api.rst.
const API_VERSION: i32 = 12;

/// What the host's kernel keeps its own time by.
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
/// A number that is drawn when the host starts: random(4).
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// An open `/dev/kvm`.
#[derive(Debug)]
pub struct Hypervisor {
    pub(crate) kvm: Kvm,
    pub(crate) cpuid: CpuId,
    pub(crate) states: ExtendedStates,
    /// Which start of the host's this is; none where it does not say.
    pub(crate) boot: Option<String>,
    /// Whether the host's kernel keeps time by the processor's counter of ticks.
    pub(super) trusts_ticks: bool,
    pub(super) ticks: OnceLock<Result<Ticks, NoTicks>>,
}

/// The processor's counter of ticks (TSC), as guests read it: the host's own value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks {
    pub(crate) kilohertz: u32,
    /// Whether KVM had to be told not to shift it: otherwise it starts at zero with each machine.
    pub(crate) unshifted: bool,
}

/// Why guests cannot tell the time from the processor's counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoTicks {
    /// The host itself does not.
    #[error("the host's kernel keeps time by something else than the processor's counter")]
    Distrusted,
    /// KVM does not say how fast it runs.
    #[error("KVM does not say how fast the processor's counter runs")]
    Speed,
    /// A guest reads another value than the host.
    #[error("a guest reads another counter than the host")]
    Differs,
}

impl Ticks {
    /// Length of a tick, in 2⁻³² ns.
    pub(crate) fn rate(self) -> u64 {
        (1_000_000 << 32) / u64::from(self.kilohertz)
    }
}

/// Why there can be no machines on this host.
#[derive(Debug, Error)]
pub enum HypervisorError {
    /// No KVM, or no permission.
    #[error("open /dev/kvm: enable virtualisation, or give this user access (group kvm)")]
    Open(#[source] io::Error),
    /// Something else has its name, or it speaks as no KVM since Linux 2.6.22 does.
    #[error("/dev/kvm is not KVM, or none of API version 12: it should be the device 10:232")]
    Foreign,
    /// KVM is older than Linux 4.17, or another architecture's.
    #[error("KVM lacks {0}: Linux 4.17 or later is needed")]
    Lacks(&'static str),
    /// KVM did not say what the processor has.
    #[error("ask KVM what the processor has")]
    Cpuid(#[source] io::Error),
    /// KVM makes no machines, for want of something or because another hypervisor has the processor (`EBUSY`).
    #[error("have KVM make a machine: if it is busy, unload the module of the other hypervisor")]
    Machine(#[source] io::Error),
}

impl Hypervisor {
    /// Opens `/dev/kvm`.
    ///
    /// # Errors
    /// When the host has none, or not for us.
    pub fn open() -> Result<Self, HypervisorError> {
        let kvm = Kvm::new().map_err(|error| HypervisorError::Open(error.into()))?;
        if kvm.get_api_version() != API_VERSION {
            return Err(HypervisorError::Foreign);
        }
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
        let cpuid = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES);
        let mut cpuid = cpuid.map_err(|error| HypervisorError::Cpuid(error.into()))?;
        let mut allowed = 0;
        for leaf in cpuid.as_mut_slice() {
            if (leaf.function, leaf.index) == (STATE_LEAF, 0) {
                (leaf.eax, leaf.edx) = (leaf.eax & STATES, 0);
                allowed = u64::from(leaf.eax);
            }
        }
        let parts = cpuid.as_slice().iter().filter(|leaf| leaf.function == STATE_LEAF);
        let states =
            ExtendedStates::of(allowed, parts.map(|leaf| (leaf.index, leaf.eax, leaf.ebx)));
        let source = std::fs::read_to_string(CLOCK_SOURCE).unwrap_or_default();
        // A virtual machine's kernel reads the counter through either of the two.
        let trusts_ticks = matches!(source.trim(), "tsc" | "kvm-clock");
        let boot = std::fs::read_to_string(BOOT).ok().map(|id| id.trim().to_owned());
        Ok(Self { kvm, cpuid, states, boot, trusts_ticks, ticks: OnceLock::new() })
    }

    /// Makes a machine and drops it, a quarter of a millisecond: KVM opens also where it can make none.
    ///
    /// # Errors
    /// When it can make none.
    pub fn try_out(&self) -> Result<(), HypervisorError> {
        let made = self.kvm.create_vm().map(drop);
        made.map_err(|error| HypervisorError::Machine(error.into()))
    }

    /// A hash of all that a guest sees of the processor, extended states and their layout included; the same on each
    /// processor of the host.
    pub(crate) fn features(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        for leaf in self.cpuid.as_slice() {
            let mut words =
                [leaf.function, leaf.index, leaf.flags, leaf.eax, leaf.ebx, leaf.ecx, leaf.edx];
            // Numbers of the processor on which KVM was asked: the initial APIC id, and those of the topology's leaves.
            match leaf.function {
                1 => words[4] &= 0x00ff_ffff,
                0xb | 0x1f => words[6] = 0,
                0x8000_001e => words[3..].fill(0),
                _ => {}
            }
            for word in words {
                hasher.update(&word.to_le_bytes());
            }
        }
        hasher.update(&self.states.allowed.to_le_bytes());
        *hasher.finalize().as_bytes()
    }
}
