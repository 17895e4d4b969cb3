//! How a guest hands over to the monitor, and why a machine cannot go on. Plain data.

use std::io;

use thiserror::Error;

/// The vector of a page fault.
pub(super) const PAGE_FAULT: u8 = 14;

/// Why the guest stopped running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// A Linux system call; registers as the guest set them.
    Syscall {
        /// The address of the `syscall` instruction, unless it was patched already.
        site: Option<u64>,
    },
    /// A hypercall of a unikernel: `out` to its port.
    Hypercall,
    /// An exception at CPL 3.
    Fault(Fault),
    /// [`Stopper::stop`](super::Stopper::stop), or a timer of the monitor's.
    Stopped,
}

impl Fault {
    /// Whether the guest touched a page without the right to it.
    pub(crate) fn is_of_page(&self) -> bool {
        self.vector == PAGE_FAULT
    }
}

/// An exception of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The vector: 0 division, 6 invalid opcode, 13 general protection, 14 page.
    pub vector: u8,
    /// The error code that the processor pushed, or 0.
    pub code: u64,
    /// The address that was touched; 0 unless this is a page fault.
    pub address: u64,
    /// Address of the instruction that faulted.
    pub rip: u64,
    /// The stack pointer at that instruction.
    pub rsp: u64,
    /// The flags at that instruction.
    pub rflags: u64,
}

/// Why a machine could not be made, or cannot be used any more.
#[derive(Debug, Error)]
pub enum VcpuError {
    /// KVM refused a step.
    #[error("{step}")]
    Kvm {
        /// What the monitor wanted of KVM.
        step: &'static str,
        /// The error of the ioctl.
        #[source]
        source: io::Error,
    },
    /// An exit of KVM's that no guest of ours can cause.
    #[error("the machine is lost: KVM came back with {0}")]
    Lost(String),
}

/// An error of KVM's, as a failure of the named step.
pub(crate) fn step<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> VcpuError {
    move |source| VcpuError::Kvm { step, source: source.into() }
}
