//! Micro-VMs: KVM machines without a guest kernel.

pub mod arena;
pub mod cpu;
pub mod hypervisor;
pub mod image;
pub mod layout;
pub mod linux;
pub mod regions;
pub mod rights;
pub mod ring0;
pub mod scan;
pub mod space;
pub mod stop;
pub mod tables;
pub mod unikernel;
pub mod vcpu;
pub mod vfs;
