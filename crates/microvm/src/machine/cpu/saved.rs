//! A processor's state, as a snapshot on disk has it: what a guest can set. Everything else is what a machine has that has
//! not run, and never comes from a file.

use kvm_bindings::kvm_regs;
use serde::{Deserialize, Serialize};

use super::CpuState;
use crate::machine::vcpu::flags_of_guest;
use crate::memory::layout::USER_HALF_END;

/// What a guest can set of its processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedCpu {
    /// In the order of KVM's structure.
    registers: [u64; 18],
    /// Of FS and GS.
    bases: [u64; 2],
    /// As KVM_GET_XSAVE has it.
    xsave: Vec<u32>,
}

impl CpuState {
    /// What a snapshot has of it; none where more than that differs from a `fresh` machine's.
    pub(crate) fn to_saved(&self, fresh: &Self) -> Option<SavedCpu> {
        let bases = [self.sregs.fs.base, self.sregs.gs.base];
        let mut usual = fresh.sregs;
        [usual.fs.base, usual.gs.base] = bases;
        // Where the last page fault was: only ring 0 could look.
        usual.cr2 = self.sregs.cr2;
        if usual != self.sregs || fresh.events != self.events {
            return None;
        }
        let registers = words(&self.regs);
        Some(SavedCpu { registers, bases, xsave: self.xsave.region.to_vec() })
    }

    /// The state of a `fresh` machine with what a snapshot has; none where no guest can have that. Whether KVM takes the
    /// extended states it says itself.
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

/// Whether it is an address at all: the bits above the 47th are as that one.
const fn is_canonical(address: u64) -> bool {
    let above = address.cast_signed() >> 47;
    above == 0 || above == -1
}

fn words(regs: &kvm_regs) -> [u64; 18] {
    // Each field is named: one that is added has to be decided about.
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
    fn what_a_guest_set_comes_back_and_nothing_of_the_systems() {
        let mut before = state(40, 7);
        before.regs.r11 = 5;
        before.regs.rflags = 0x3006;
        before.sregs.fs.base = 0x7000;
        before.sregs.cr2 = 99;
        let saved = before.to_saved(&state(0, 0)).unwrap();
        let after = state(0, 0).with_saved(&saved).unwrap();
        before.sregs.cr2 = 0;
        assert!(after == before, "{after:x?} and not {before:x?}");
        // A page table of its own is not a guest's to have.
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
