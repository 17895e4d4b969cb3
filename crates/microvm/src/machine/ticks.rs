//! Whether guests can tell the time from the processor's counter of ticks: a tiny guest reads it,
//! and the host compares.

use std::io;

use rustix::io::Errno;

use super::exit::{VcpuError, step};
use super::hypervisor::{Hypervisor, NoTicks, Ticks};
use super::vcpu::Vcpu;
use crate::memory::layout::{PAGE, PROGRAM};
use crate::memory::rights::Rights;
use crate::memory::ring0::HYPERCALL;
use crate::memory::space::{Place, Space};

/// The counter's value now.
pub(crate) fn read_ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux lets every process execute it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

impl Hypervisor {
    /// Whether guests can tell the time from the processor's counter. The first call runs a tiny
    /// guest.
    ///
    /// # Errors
    /// When they cannot: then a guest asks the monitor for the time, each time.
    pub fn ticks(&self) -> Result<Ticks, NoTicks> {
        *self.ticks.get_or_init(|| self.try_ticks())
    }

    fn try_ticks(&self) -> Result<Ticks, NoTicks> {
        if !self.trusts_ticks {
            return Err(NoTicks::Distrusted);
        }
        for unshifted in [false, true] {
            match self.compare_ticks(unshifted) {
                Ok(Some(kilohertz)) => return Ok(Ticks { kilohertz, unshifted }),
                Ok(None) => {}
                Err(_) => return Err(NoTicks::Speed),
            }
        }
        Err(NoTicks::Differs)
    }

    /// The counter's speed in kHz, if a guest reads the host's value.
    fn compare_ticks(&self, unshifted: bool) -> Result<Option<u32>, VcpuError> {
        // rdtsc; shl rdx, 32; or rax, rdx; out 0xf2, al
        const CODE: [u8; 11] = [
            0x0f,
            0x31,
            0x48,
            0xc1,
            0xe2,
            0x20,
            0x48,
            0x09,
            0xd0,
            0xe6,
            HYPERCALL.to_le_bytes()[0],
        ];
        let lost = |error: io::Error| VcpuError::Lost(error.to_string());
        let refused = |errno: Errno| lost(errno.into());
        let mut space = Space::new().map_err(lost)?;
        let at = space.map(Place::Hint(PROGRAM), PAGE, Rights::WRITE).map_err(refused)?;
        let code = space.write(at, CODE.len() as u64).map_err(refused)?;
        code.copy_from_slice(&CODE);
        space.protect(at, PAGE, Rights::EXECUTE).map_err(refused)?;
        let mut vcpu = Vcpu::new(self, &space, at, 0)?;
        if unshifted {
            vcpu.unshift_ticks()?;
        }
        let kilohertz = vcpu.fd().get_tsc_khz().map_err(step("ask for the counter's speed"))?;
        let before = read_ticks();
        vcpu.run(&mut space)?;
        let inside = vcpu.registers().rax;
        Ok(Some(kilohertz).filter(|_| (before..=read_ticks()).contains(&inside)))
    }
}
