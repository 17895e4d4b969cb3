//! What a processor holds that a guest can change, to be put back.
//!
//! Control registers, descriptor tables and model-specific registers are out of a guest's reach: they need ring 0, of
//! which it has two instructions. They are part of the system registers all the same, and are put back with them.

use kvm_bindings::{kvm_regs, kvm_sregs, kvm_vcpu_events, kvm_xsave};
use kvm_ioctls::{SyncReg, VcpuFd};

use crate::mutant::{self, Mutant};
use crate::vcpu::{Vcpu, VcpuError, step};

/// The state of a processor between two instructions of its guest.
pub struct CpuState {
    regs: kvm_regs,
    sregs: kvm_sregs,
    events: kvm_vcpu_events,
    /// Floating point and vectors.
    xsave: Box<kvm_xsave>,
}

impl std::fmt::Debug for CpuState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuState").field("regs", &self.regs).finish_non_exhaustive()
    }
}

impl PartialEq for CpuState {
    fn eq(&self, other: &Self) -> bool {
        let events =
            |state: &Self| kvm_vcpu_events { exception: Default::default(), ..state.events };
        self.regs == other.regs
            && self.sregs == other.sregs
            && events(self) == events(other)
            && self.xsave.region[..] == other.xsave.region[..]
    }
}

impl CpuState {
    /// Reads it. The guest must stand between two instructions: nothing half done.
    ///
    /// # Errors
    /// When KVM refuses.
    pub(crate) fn save(vcpu: &mut Vcpu) -> Result<Self, VcpuError> {
        vcpu.settle()?;
        let fd: &VcpuFd = vcpu.fd();
        let regs = fd.get_regs().map_err(step("read registers"))?;
        let sregs = fd.get_sregs().map_err(step("read system registers"))?;
        let mut events = fd.get_vcpu_events().map_err(step("read events"))?;
        if events.exception.injected == 0 && events.exception.pending == 0 {
            // What is left of the last exception means nothing, and KVM leaves it standing.
            events.exception = Default::default();
        }
        let xsave = Box::new(fd.get_xsave().map_err(step("read extended states"))?);
        Ok(Self { regs, sregs, events, xsave })
    }

    /// Puts it back; it holds from the next entry on.
    ///
    /// # Errors
    /// When KVM refuses.
    pub(crate) fn restore(&self, vcpu: &mut Vcpu) -> Result<(), VcpuError> {
        let fd = vcpu.fd_mut();
        if !mutant::leaves_out(Mutant::NoXsave) {
            // SAFETY: 4 KiB is all that KVM reads while no state beyond AVX-512 is allowed, which CPUID sees to.
            unsafe { fd.set_xsave(&self.xsave) }.map_err(step("put extended states back"))?;
        }
        let shared = fd.sync_regs_mut();
        (shared.regs, shared.sregs, shared.events) = (self.regs, self.sregs, self.events);
        for register in [SyncReg::Register, SyncReg::SystemRegister, SyncReg::VcpuEvents] {
            fd.set_sync_dirty_reg(register);
        }
        Ok(())
    }
}
