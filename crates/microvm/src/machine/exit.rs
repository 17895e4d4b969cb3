//! How a guest hands over to the monitor, and how a machine is lost. Plain data.

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
    /// A unikernel's hypercall.
    Hypercall,
    /// An exception.
    Fault(Fault),
    /// Somebody outside asked for it.
    Stopped,
}

impl Fault {
    /// Whether something was touched that may not be.
    pub(crate) fn is_of_page(&self) -> bool {
        self.vector == PAGE_FAULT
    }
}

/// An exception of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its number: 0 division, 6 invalid opcode, 13 general protection, 14 page.
    pub vector: u8,
    /// What the processor says beside, or 0.
    pub code: u64,
    /// The address that was touched, if this is a page fault.
    pub address: u64,
    /// The instruction.
    pub rip: u64,
    /// The stack pointer.
    pub rsp: u64,
    /// The flags.
    pub rflags: u64,
}

/// Why a machine can no longer be used, or was never made.
#[derive(Debug, Error)]
pub enum VcpuError {
    /// KVM refused a step.
    #[error("{step}")]
    Kvm {
        /// Which.
        step: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// KVM came back in a way in which no guest of ours can make it come back.
    #[error("the machine is lost: KVM came back with {0}")]
    Lost(String),
}

/// An error of KVM's as the named step's.
pub(crate) fn step<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> VcpuError {
    move |source| VcpuError::Kvm { step, source: source.into() }
}
