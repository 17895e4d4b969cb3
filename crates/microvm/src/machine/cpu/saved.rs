//! A processor's state in a snapshot on disk: the registers that a guest can set. All others come
//! from a machine that has not run, never from the file.

use kvm_bindings::kvm_regs;
use serde::{Deserialize, Serialize};

use super::CpuState;
use crate::machine::vcpu::flags_of_guest;
use crate::memory::layout::USER_HALF_END;

/// The registers that a guest can set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedCpu {
    /// General registers, in the order of `struct kvm_regs`.
    registers: [u64; 18],
    /// Bases of FS and GS.
    bases: [u64; 2],
    /// The area of KVM_GET_XSAVE.
    xsave: Vec<u32>,
}

impl CpuState {
    /// The state for a snapshot; none if anything but that differs from a `fresh` machine's.
    pub(crate) fn to_saved(&self, fresh: &Self) -> Option<SavedCpu> {
        let bases = [self.sregs.fs.base, self.sregs.gs.base];
        let mut usual = fresh.sregs;
        [usual.fs.base, usual.gs.base] = bases;
        // The address of the last page fault, which only ring 0 could read.
        usual.cr2 = self.sregs.cr2;
        if usual != self.sregs || fresh.events != self.events {
            return None;
        }
        let registers = words(&self.regs);
        Some(SavedCpu { registers, bases, xsave: self.xsave.region.to_vec() })
    }

    /// A `fresh` machine's state with a snapshot's registers; none if no guest can have these. KVM
    /// itself refuses extended states that it cannot load.
    pub(crate) fn with_saved(mut self, saved: &SavedCpu) -> Option<Self> {
        let SavedCpu { registers, bases, xsave } = saved;
        let mut regs = of_words(*registers);
        regs.rflags = flags_of_guest(regs.rflags);
        if regs.rip >= USER_HALF_END || !bases.iter().all(|base| is_canonical(*base)) {
            return None;
        }
        self.regs = regs;
        [self.sregs.fs.base, self.sregs.gs.base] = *bases;
        self.xsave.region = xsave.as_slice().try_into().ok()?;
        Some(self)
    }
}

/// Whether bits 48 to 63 of an address repeat bit 47.
const fn is_canonical(address: u64) -> bool {
    let above = address.cast_signed() >> 47;
    above == 0 || above == -1
}

fn words(regs: &kvm_regs) -> [u64; 18] {
    // Each field is named: a field that is added has to be decided about.
    let kvm_regs {
        rax,
        rbx,
        rcx,
        rdx,
        rsi,
        rdi,
        rsp,
        rbp,
        r8,
        r9,
        r10,
        r11,
        r12,
        r13,
        r14,
        r15,
        rip,
        rflags,
    } = *regs;
    [rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp, r8, r9, r10, r11, r12, r13, r14, r15, rip, rflags]
}

fn of_words(words: [u64; 18]) -> kvm_regs {
    let [rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp, r8, r9, r10, r11, r12, r13, r14, r15, rip, rflags] =
        words;
    kvm_regs {
        rax,
        rbx,
        rcx,
        rdx,
        rsi,
        rdi,
        rsp,
        rbp,
        r8,
        r9,
        r10,
        r11,
        r12,
        r13,
        r14,
        r15,
        rip,
        rflags,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::state;
    use super::*;

    #[test]
    fn a_guests_registers_are_restored_and_the_systems_are_not() {
        let mut before = state(40, 7);
        before.regs.r11 = 5;
        before.regs.rflags = 0x3006;
        before.sregs.fs.base = 0x7000;
        before.sregs.cr2 = 99;
        let saved = before.to_saved(&state(0, 0)).unwrap();
        let after = state(0, 0).with_saved(&saved).unwrap();
        before.sregs.cr2 = 0;
        assert!(after == before, "{after:x?} and not {before:x?}");
        // A guest cannot have page tables of its own.
        before.sregs.cr3 = 0x1000;
        assert_eq!(before.to_saved(&state(0, 0)), None);
    }

    #[test]
    fn a_file_cannot_say_what_no_guest_can_have() {
        let good = state(0, 0).to_saved(&state(0, 0)).unwrap();
        let with = |change: fn(&mut SavedCpu)| {
            let mut saved = good.clone();
            change(&mut saved);
            state(0, 0).with_saved(&saved)
        };
        assert!(with(|saved| saved.registers[16] = USER_HALF_END).is_none());
        assert!(with(|saved| saved.bases[1] = 1 << 50).is_none());
        assert!(with(|saved| saved.xsave.truncate(1023)).is_none());
        // Interrupts stay off and IOPL stays 3.
        let flags = with(|saved| saved.registers[17] = u64::MAX).unwrap().regs.rflags;
        assert_eq!(flags, flags_of_guest(u64::MAX));
    }
}
