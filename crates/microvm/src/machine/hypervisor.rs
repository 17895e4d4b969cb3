//! The host's KVM: its capabilities, asked for once.

use std::io;
use std::sync::OnceLock;

use kvm_bindings::{CpuId, KVM_MAX_CPUID_ENTRIES};
use kvm_ioctls::{Cap, Kvm};
use thiserror::Error;

use super::extended_states::ExtendedStates;

/// x87, SSE, AVX, the three parts of AVX-512 and the register of protection keys: the states that
/// fit into the 4 KiB of KVM_GET_XSAVE. No AMX, which needs a permission and 8 KiB more.
///
/// Protection keys themselves stay off. Some hosts let CPL 3 execute WRPKRU all the same; because
/// the register is one of the states, a reset puts it back.
const STATES: u32 = 0x2e7;
/// The leaf of CPUID that enumerates extended states.
const STATE_LEAF: u32 = 0xd;

/// The only version since Linux 2.6.22; Documentation/virt/kvm/api.rst.
const API_VERSION: i32 = 12;

/// Names the clock source of the host's kernel.
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
/// A number that the kernel draws at each start: random(4).
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// An open `/dev/kvm`.
#[derive(Debug)]
pub struct Hypervisor {
    pub(crate) kvm: Kvm,
    pub(crate) cpuid: CpuId,
    pub(crate) states: ExtendedStates,
    /// The start of the host's kernel; none where it does not say.
    pub(crate) boot: Option<String>,
    /// Whether the host's kernel keeps time by the processor's counter of ticks.
    pub(super) trusts_ticks: bool,
    pub(super) ticks: OnceLock<Result<Ticks, NoTicks>>,
}

/// The processor's counter of ticks (TSC), as guests read it: the host's own value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks {
    pub(crate) kilohertz: u32,
    /// Whether KVM has to be told not to shift the counter: otherwise it starts at zero in each
    /// machine.
    pub(crate) unshifted: bool,
}

/// Why guests cannot tell the time from the processor's counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoTicks {
    /// The host's kernel keeps time by another clock source.
    #[error("the host's kernel keeps time by another clock source than the processor's counter")]
    Distrusted,
    /// KVM does not tell the counter's speed.
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

/// Why this host can have no machines.
#[derive(Debug, Error)]
pub enum HypervisorError {
    /// `/dev/kvm` does not exist, or this user may not open it.
    #[error("open /dev/kvm: enable virtualisation, or give this user access (group kvm)")]
    Open(#[source] io::Error),
    /// The file is not KVM's, or of a KVM before Linux 2.6.22.
    #[error("/dev/kvm is not KVM, or none of API version 12: it should be the device 10:232")]
    Foreign,
    /// KVM is older than Linux 4.17, or another processor's.
    #[error("KVM lacks {0}: Linux 4.17 or later is needed")]
    Lacks(&'static str),
    /// KVM does not tell the processor's features.
    #[error("ask KVM what the processor has")]
    Cpuid(#[source] io::Error),
    /// KVM cannot make a machine: no memory, or another hypervisor has the processor (`EBUSY`).
    #[error("have KVM make a machine: if it is busy, unload the module of the other hypervisor")]
    Machine(#[source] io::Error),
}

impl Hypervisor {
    /// Opens `/dev/kvm`.
    ///
    /// # Errors
    /// When the host has none, or this user may not use it.
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
        // A virtual machine's kernel reads the counter through either clock source.
        let trusts_ticks = matches!(source.trim(), "tsc" | "kvm-clock");
        let boot = std::fs::read_to_string(BOOT).ok().map(|id| id.trim().to_owned());
        Ok(Self { kvm, cpuid, states, boot, trusts_ticks, ticks: OnceLock::new() })
    }

    /// Makes a machine and drops it, in a quarter of a millisecond: KVM can be opened also where it
    /// cannot make any.
    ///
    /// # Errors
    /// When it can make none.
    pub fn try_out(&self) -> Result<(), HypervisorError> {
        let made = self.kvm.create_vm().map(drop);
        made.map_err(|error| HypervisorError::Machine(error.into()))
    }

    /// A hash of the processor as guests see it, with the layout of extended states; the same on
    /// each processor of the host.
    pub(crate) fn features(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        for leaf in self.cpuid.as_slice() {
            let mut words =
                [leaf.function, leaf.index, leaf.flags, leaf.eax, leaf.ebx, leaf.ecx, leaf.edx];
            // Numbers of the processor that answered: the initial APIC id, and those of the
            // topology's leaves.
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
