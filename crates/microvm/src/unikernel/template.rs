//! A frozen unikernel: others are cloned from it, and reset to it.
//!
//! As [`crate::linux::Template`] for Linux programs, with less to remember: memory, registers, and
//! the size of the heap. Its request is not part of it.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::{Unikernel, UnikernelError};
use crate::machine::Hypervisor;
use crate::machine::Stopper;
use crate::machine::Vcpu;
use crate::machine::cpu::CpuState;
use crate::memory::arena::FrozenArena;
use crate::memory::scan::Scanner;
use crate::memory::space::{Space, SpaceState};

/// A frozen unikernel.
#[derive(Debug)]
pub struct Template {
    frozen: Arc<FrozenArena>,
    space: SpaceState,
    cpu: CpuState,
    argument: Vec<u8>,
    heap: u64,
}

impl Template {
    /// Freezes a unikernel that gave control back, best when it is [`super::UnikernelExit::Ready`].
    /// The unikernel itself ends.
    ///
    /// # Errors
    /// When the host refuses; the unikernel is lost.
    pub fn seal(unikernel: Unikernel) -> Result<Self, UnikernelError> {
        // Each field is named: a field that is added has to be decided about.
        let Unikernel { mut vcpu, space, stopper: _, argument, request: _, started: _, heap } =
            unikernel;
        let cpu = CpuState::save(&mut vcpu)?;
        // KVM's slots refer to the memory.
        drop(vcpu);
        let (frozen, space) = space.freeze().map_err(UnikernelError::Memory)?;
        Ok(Self { frozen, space, cpu, argument, heap })
    }

    /// A clone that goes on where the template stands, and shares its memory until it writes.
    ///
    /// # Errors
    /// When the host refuses a machine.
    pub fn spawn(&self, host: &Hypervisor) -> Result<Unikernel, UnikernelError> {
        let space = Space::clone_of(&self.frozen, self.space.clone());
        let space = space.map_err(UnikernelError::Memory)?;
        let mut vcpu = Vcpu::new(host, &space, 0, 0)?;
        self.cpu.restore(&mut vcpu)?;
        Ok(Unikernel {
            vcpu,
            space,
            stopper: Stopper::default(),
            argument: self.argument.clone(),
            request: Vec::new(),
            started: Instant::now(),
            heap: self.heap,
        })
    }

    /// Puts a clone of this template back to its beginning.
    ///
    /// # Errors
    /// When anything could not be put back. The clone is dropped: a half-reset machine must never
    /// run.
    pub fn reset(
        &self,
        mut unikernel: Unikernel,
        scanner: &Scanner,
    ) -> Result<Unikernel, UnikernelError> {
        let origin = unikernel.space.arena().origin();
        if !origin.is_some_and(|origin| Arc::ptr_eq(origin, &self.frozen)) {
            let stranger = io::Error::other("the unikernel was spawned from another template");
            return Err(UnikernelError::Memory(stranger));
        }
        unikernel.vcpu.settle()?;
        unikernel.space.reset(&self.space, scanner).map_err(UnikernelError::Memory)?;
        self.cpu.restore(&mut unikernel.vcpu)?;
        // A stop that came meanwhile is kept: it would not be sent again.
        let Unikernel { vcpu: _, space: _, stopper: _, argument, request, started, heap } =
            &mut unikernel;
        argument.clone_from(&self.argument);
        request.clear();
        (*started, *heap) = (Instant::now(), self.heap);
        Ok(unikernel)
    }
}
