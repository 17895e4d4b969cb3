//! A KVM machine with one processor: how it is made, entered, left, stopped, saved and restored.
//!
//! ```text
//!   hypervisor   /dev/kvm, opened once for all machines
//!   vcpu         enters the guest and comes back with an `Exit` or a `VcpuError`
//!   cpu          the processor's state, to be saved and put back
//!   ticks        whether guests can tell the time from the processor's counter
//!   cpuinfo      what a guest reads in /proc/cpuinfo
//!   stop         interrupts a guest from another thread
//! ```

pub mod cpu;
mod cpuinfo;
mod exit;
mod extended_states;
mod hypervisor;
mod stop;
mod ticks;
mod vcpu;

pub use exit::{Exit, Fault, VcpuError};
pub use hypervisor::{Hypervisor, HypervisorError, NoTicks, Ticks};
pub(crate) use stop::RunGuard;
pub use stop::Stopper;
pub(crate) use ticks::read_ticks;
pub use vcpu::Vcpu;
