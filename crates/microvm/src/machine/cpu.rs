//! The state of a processor that a guest can change, to be saved and put back.
//!
//! Control registers, descriptor tables and model-specific registers need ring 0, where a guest has
//! two instructions only. They are put back all the same, as part of the system registers.

mod saved;
pub(crate) mod xsave_frame;

use std::sync::Arc;

use kvm_bindings::{kvm_regs, kvm_sregs, kvm_vcpu_events, kvm_xsave};
use kvm_ioctls::{SyncReg, VcpuFd};

use crate::machine::exit::{VcpuError, step};
use crate::machine::vcpu::Vcpu;
use crate::mutant::{self, Mutant};
pub(crate) use saved::SavedCpu;

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
        f.debug_struct("CpuState")
            .field("regs", &self.regs)
            .field("sregs", &self.sregs)
            .field("events", &self.events)
            .field("xsave", &&self.xsave.region[..])
            .finish()
    }
}

impl PartialEq for CpuState {
    fn eq(&self, other: &Self) -> bool {
        let events =
            |state: &Self| kvm_vcpu_events { exception: Default::default(), ..state.events };
        self.regs == other.regs
            && self.sregs == other.sregs
            && events(self) == events(other)
            && extended(self) == extended(other)
    }
}

/// The extended states without XSTATE_BV, the mask of states that differ from their initial values.
/// The processor may set a bit of a state that does not differ (SDM 13.6), after any switch of the
/// host's threads; KVM writes all states out.
fn extended(state: &CpuState) -> (&[u32], &[u32]) {
    const XSTATE_BV: usize = 512 / 4;
    let (before, after) = state.xsave.region.split_at(XSTATE_BV);
    (before, &after[2..])
}

impl CpuState {
    /// Reads the state. The guest must stand between two instructions, with nothing half done.
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
            // What is left of the last exception means nothing, but KVM does not clear it.
            events.exception = Default::default();
        }
        let xsave = Box::new(fd.get_xsave().map_err(step("read extended states"))?);
        Ok(Self { regs, sregs, events, xsave })
    }

    /// Puts the state back, from the next entry on.
    ///
    /// # Errors
    /// When KVM refuses.
    pub(crate) fn restore(&self, vcpu: &mut Vcpu) -> Result<(), VcpuError> {
        let fd = vcpu.fd_mut();
        if !mutant::leaves_out(Mutant::NoXsave) {
            // SAFETY: KVM reads 4 KiB while no state beyond AVX-512 is allowed, which CPUID
            // ensures.
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

/// The part of a processor's state that belongs to a thread, between two of its instructions.
#[derive(Clone)]
pub(crate) struct Context {
    regs: kvm_regs,
    /// Bases of FS and GS.
    bases: [u64; 2],
    xsave: Arc<kvm_xsave>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("regs", &self.regs).finish_non_exhaustive()
    }
}

impl Context {
    /// Bytes that it holds beyond its own size.
    pub(crate) const HELD: u64 = size_of::<kvm_xsave>() as u64;

    /// Saves the thread that has just made a call, as it stands behind the call.
    pub(crate) fn save(vcpu: &mut Vcpu) -> Result<Self, VcpuError> {
        vcpu.settle()?;
        let xsave = Arc::new(vcpu.fd().get_xsave().map_err(step("read extended states"))?);
        let shared = vcpu.fd_mut().sync_regs_mut();
        let bases = [shared.sregs.fs.base, shared.sregs.gs.base];
        Ok(Self { regs: shared.regs, bases, xsave })
    }

    /// Loads the thread into the processor. Nothing of another thread may be half done: see
    /// [`Vcpu::settle`].
    pub(crate) fn restore(&self, vcpu: &mut Vcpu) -> Result<(), VcpuError> {
        let fd = vcpu.fd_mut();
        // SAFETY: as in `CpuState::restore`.
        unsafe { fd.set_xsave(&self.xsave) }.map_err(step("put extended states back"))?;
        let shared = fd.sync_regs_mut();
        shared.regs = self.regs;
        [shared.sregs.fs.base, shared.sregs.gs.base] = self.bases;
        for register in [SyncReg::Register, SyncReg::SystemRegister] {
            fd.set_sync_dirty_reg(register);
        }
        Ok(())
    }

    /// The number of the call in which the thread waits.
    pub(crate) fn call(&self) -> u64 {
        self.regs.rax
    }

    /// Sets what the thread's call returns.
    pub(crate) fn set_answer(&mut self, answer: u64) {
        self.regs.rax = answer;
    }

    /// Moves the thread back before its call, which it makes once more, and returns the address.
    /// `syscall` and its patch are two bytes long.
    pub(crate) fn go_before_call(&mut self) -> u64 {
        self.regs.rip = self.regs.rip.wrapping_sub(2);
        self.regs.rip
    }

    /// Gives the thread its own stack and its own base of FS.
    pub(crate) fn set_stack(&mut self, stack: u64, fs: u64) {
        self.regs.rsp = stack;
        self.bases[0] = fs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn state(word: usize, value: u32) -> CpuState {
        let mut xsave = Box::new(kvm_xsave::default());
        xsave.region[word] = value;
        let (regs, sregs) = (kvm_regs::default(), kvm_sregs::default());
        CpuState { regs, sregs, events: kvm_vcpu_events::default(), xsave }
    }

    #[test]
    fn vector_registers_are_compared_and_the_mask_of_states_in_use_is_not() {
        const XMM0: usize = 160 / 4;
        assert!(state(XMM0, 1) != state(XMM0, 0));
        assert!(state(512 / 4, 2) == state(512 / 4, 0));
        assert!(state(512 / 4 + 2, 2) != state(512 / 4 + 2, 0));
    }
}
