//! The one processor of a machine: how it enters the guest, and the few ways in which it returns.
//!
//! ```text
//!   CPL 3 ── out 0xf1 (a patched `syscall`) ──────────────────────► Exit::Syscall, no ring 0 at all
//!   CPL 3 ── syscall ──► ring 0 stub ── out 0xf0 ─────────────────► Exit::Syscall { site }
//!         └── where the hypervisor stays at CPL 3: #PF at the stub ► the same
//!   CPL 3 ── out 0xf2 ────────────────────────────────────────────► Exit::Hypercall
//!   CPL 3 ── exception ──► ring 0 stub ── out vector ─────────────► Exit::Fault
//!   any   ── signal of the Stopper ───────────────────────────────► Exit::Stopped
//! ```
//!
//! After a system call the processor is back at CPL 3, behind the call; the monitor writes the
//! result to RAX. After a fault it is still in ring 0, until [`Vcpu::enter`].

use std::io;
use std::os::fd::AsRawFd;

use kvm_bindings::{
    KVM_VCPU_TSC_CTRL, KVM_VCPU_TSC_OFFSET, Msrs, kvm_device_attr, kvm_msr_entry, kvm_regs,
    kvm_segment, kvm_sregs, kvm_userspace_memory_region, kvm_xcr, kvm_xcrs,
};
use kvm_ioctls::{SyncReg, VcpuExit, VcpuFd, VmFd};

use super::exit::{Exit, Fault, PAGE_FAULT, VcpuError, step};
use super::extended_states::ExtendedStates;
use super::hypervisor::Hypervisor;
use super::stop;
use crate::memory::layout::{
    ARENA_BYTES, HIGH, MONITOR, MONITOR_BYTES, USER_HALF_END, ring0, tables,
};
use crate::memory::ring0::{
    GDT_LIMIT, HYPERCALL, IDT_LIMIT, KERNEL_CODE, PATCHED, SYSCALL, TASK, TASK_LIMIT, USER_CODE,
    USER_DATA,
};
use crate::memory::space::{Space, Units};

/// KVM_SET_DEVICE_ATTR of a processor, for which `kvm-ioctls` has no method on x86-64.
const KVM_SET_DEVICE_ATTR: libc::c_ulong = 0x4018_aee1;
const GENERAL_PROTECTION: u8 = 13;
/// RFLAGS that a guest may choose (CF PF AF ZF SF TF DF OF AC ID), and those that are always set:
/// bit 1, and IOPL 3, because some hypervisors check it and others the I/O bitmap. Interrupts stay
/// off: no device sends any.
const FLAGS_OF_GUEST: u64 = 0x24_0dd5;
const FLAGS_ALWAYS: u64 = 0x3002;

/// A KVM machine with its only processor.
#[derive(Debug)]
pub struct Vcpu {
    fd: VcpuFd,
    vm: VmFd,
    /// Address of the arena that the memory slots refer to.
    memory: u64,
    /// Memory slots made so far, and the units that they cover.
    slots: u32,
    units: Units,
    states: ExtendedStates,
}

/// The flags with those bits that a guest may choose.
pub(crate) const fn flags_of_guest(rflags: u64) -> u64 {
    rflags & FLAGS_OF_GUEST | FLAGS_ALWAYS
}

impl Vcpu {
    /// A machine whose memory is `space`'s, at CPL 3, about to execute `rip`.
    ///
    /// # Errors
    /// When KVM refuses: mostly for want of memory or descriptors.
    pub fn new(host: &Hypervisor, space: &Space, rip: u64, rsp: u64) -> Result<Self, VcpuError> {
        let vm = host.kvm.create_vm().map_err(step("create a virtual machine"))?;
        let fd = vm.create_vcpu(0).map_err(step("create a processor"))?;
        let memory = space.arena().address();
        let mut vcpu =
            Self { fd, vm, memory, slots: 0, units: Units::default(), states: host.states };
        vcpu.add_slot(space, MONITOR, MONITOR_BYTES)?;
        vcpu.cover(space)?;
        vcpu.fd.set_cpuid2(&host.cpuid).map_err(step("say what the processor has"))?;
        vcpu.boot(host)?;
        for register in [SyncReg::Register, SyncReg::SystemRegister, SyncReg::VcpuEvents] {
            vcpu.fd.set_sync_valid_reg(register);
        }
        stop::only_in_guest(&vcpu.fd).map_err(step("choose the signal that stops a guest"))?;
        let mut regs = kvm_regs { rip, rsp, ..kvm_regs::default() };
        regs.rflags = FLAGS_ALWAYS;
        vcpu.fd.set_regs(&regs).map_err(step("set registers"))?;
        Ok(vcpu)
    }

    /// Sets the registers that no guest can change, and the state that it starts in.
    fn boot(&self, host: &Hypervisor) -> Result<(), VcpuError> {
        // PE ET NE WP AM PG MP; PAE OSFXSR OSXMMEXCPT FSGSBASE OSXSAVE; SCE LME LMA NXE.
        const CR0: u64 = 0x8005_0033;
        const CR4: u64 = 0x620 | 1 << 16 | 1 << 18;
        const EFER: u64 = 0xd01;
        let mut sregs = self.fd.get_sregs().map_err(step("read system registers"))?;
        (sregs.cr0, sregs.cr3, sregs.cr4, sregs.efer) = (CR0, tables::ROOT, CR4, EFER);
        sregs.gdt.base = HIGH + ring0::GDT;
        sregs.gdt.limit = GDT_LIMIT;
        sregs.idt.base = HIGH + ring0::IDT;
        sregs.idt.limit = IDT_LIMIT;
        sregs.tr = kvm_segment {
            base: HIGH + ring0::TSS,
            limit: TASK_LIMIT,
            selector: TASK,
            type_: 11,
            present: 1,
            ..kvm_segment::default()
        };
        for segment in [&mut sregs.ds, &mut sregs.es, &mut sregs.fs, &mut sregs.gs] {
            *segment = user_data();
        }
        at_user(&mut sregs);
        self.fd.set_sregs(&sregs).map_err(step("set system registers"))?;

        let msrs = [
            // STAR: selectors of SYSCALL, and of SYSRET, which is never executed.
            (0xc000_0081, u64::from(KERNEL_CODE) << 32 | 0x23 << 48),
            (0xc000_0082, HIGH + ring0::SYSCALL_STUB),
            // SYSCALL clears TF, IF and DF.
            (0xc000_0084, 0x700),
        ]
        .map(|(index, data)| kvm_msr_entry { index, data, ..kvm_msr_entry::default() });
        let msrs = Msrs::from_entries(&msrs)
            .map_err(|_| VcpuError::Lost("more model-specific registers than fit".to_owned()))?;
        let set = self.fd.set_msrs(&msrs).map_err(step("set model-specific registers"))?;
        if set != 3 {
            return Err(VcpuError::Lost("refused model-specific registers".to_owned()));
        }
        let mut xcrs = kvm_xcrs { nr_xcrs: 1, ..kvm_xcrs::default() };
        xcrs.xcrs[0] = kvm_xcr { xcr: 0, value: host.states.allowed, ..kvm_xcr::default() };
        self.fd.set_xcrs(&xcrs).map_err(step("allow extended states"))
    }

    /// Makes memory slots for all units of `space` that have none.
    fn cover(&mut self, space: &Space) -> Result<(), VcpuError> {
        for range in space.units().beyond(&self.units) {
            self.add_slot(space, range.start, range.end - range.start)?;
            self.units.cover(&range);
        }
        Ok(())
    }

    fn add_slot(&mut self, space: &Space, start: u64, length: u64) -> Result<(), VcpuError> {
        debug_assert!(start + length <= ARENA_BYTES);
        let region = kvm_userspace_memory_region {
            slot: self.slots,
            flags: 0,
            guest_phys_addr: start,
            memory_size: length,
            userspace_addr: space.arena().address() + start,
        };
        // SAFETY: the range is the arena's, which is borrowed mutably whenever the guest runs:
        // `run` checks that it gets that very arena. KVM resolves the address at each access, so a
        // mapping that is gone is an error and no access.
        unsafe { self.vm.set_user_memory_region(region) }.map_err(step("add a memory slot"))?;
        self.slots += 1;
        Ok(())
    }

    /// Runs the guest until it needs the monitor. `space` is the one that the processor was made
    /// for, and stays borrowed while the guest may write to it.
    ///
    /// # Errors
    /// When the machine is lost. It cannot be used any more.
    pub fn run(&mut self, space: &mut Space) -> Result<Exit, VcpuError> {
        if space.arena().address() != self.memory {
            return Err(VcpuError::Lost("another machine's memory".to_owned()));
        }
        self.cover(space)?;
        let port = match self.fd.run() {
            Ok(VcpuExit::IoOut(port, _)) => Some(port),
            // Reading a port, which has no meaning here.
            Ok(VcpuExit::IoIn(..)) => None,
            Ok(other) => return Err(VcpuError::Lost(format!("{other:?}"))),
            Err(error) if error.errno() == libc::EINTR => {
                stop::acknowledge();
                return Ok(Exit::Stopped);
            }
            Err(error) => return Err(step("run the guest")(error)),
        };
        let shared = self.fd.sync_regs_mut();
        let (regs, sregs) = (&shared.regs, &shared.sregs);
        let in_ring0 = sregs.cs.selector & 3 == 0;
        match port {
            Some(PATCHED) if !in_ring0 => Ok(Exit::Syscall { site: None }),
            Some(HYPERCALL) if !in_ring0 => Ok(Exit::Hypercall),
            Some(SYSCALL) if in_ring0 => {
                let (rip, rsp, rflags) = (regs.rcx, regs.rsp, regs.r11);
                self.enter(rip, rsp, rflags);
                Ok(Exit::Syscall { site: Some(rip.wrapping_sub(2)) })
            }
            Some(vector @ 0..32) if in_ring0 => {
                let fault = fault(space, vector.to_le_bytes()[0], sregs.cr2);
                let at_stub = fault.vector == PAGE_FAULT && fault.rip == HIGH + ring0::SYSCALL_STUB;
                // RCX holds where it came from, unless the guest jumped to the stub by itself.
                if at_stub && regs.rcx < USER_HALF_END {
                    let (rip, rflags) = (regs.rcx, regs.r11);
                    self.enter(rip, fault.rsp, rflags);
                    return Ok(Exit::Syscall { site: Some(rip.wrapping_sub(2)) });
                }
                Ok(Exit::Fault(fault))
            }
            Some(port) if in_ring0 => Err(VcpuError::Lost(format!("port {port:#x} from ring 0"))),
            // A port without a meaning, on a hypervisor that checks IOPL: as the bitmap would have
            // answered.
            _ => Ok(Exit::Fault(Fault {
                vector: GENERAL_PROTECTION,
                code: 0,
                address: 0,
                rip: regs.rip,
                rsp: regs.rsp,
                rflags: regs.rflags,
            })),
        }
    }

    /// Whether the guest was interrupted between two of its own instructions, so that its registers
    /// are its whole state: not in ring 0, or on the way there or back.
    pub(crate) fn is_in_between(&self) -> bool {
        let shared = self.fd.sync_regs();
        let events = &shared.events;
        let is_coming = [events.exception.injected, events.exception.pending, events.nmi.injected];
        shared.sregs.cs.selector & 3 == 3 && shared.regs.rip < USER_HALF_END && is_coming == [0; 3]
    }

    /// Which extended states its guest has.
    pub(crate) fn states(&self) -> ExtendedStates {
        self.states
    }

    pub(crate) fn fd(&self) -> &VcpuFd {
        &self.fd
    }

    pub(crate) fn fd_mut(&mut self) -> &mut VcpuFd {
        &mut self.fd
    }

    /// The guest's registers, after an exit only. Changes hold from the next entry on.
    pub fn registers(&mut self) -> &mut kvm_regs {
        self.fd.set_sync_dirty_reg(SyncReg::Register);
        &mut self.fd.sync_regs_mut().regs
    }

    /// Puts the processor at CPL 3, to execute `rip` next.
    pub fn enter(&mut self, rip: u64, rsp: u64, rflags: u64) {
        self.fd.set_sync_dirty_reg(SyncReg::Register);
        self.fd.set_sync_dirty_reg(SyncReg::SystemRegister);
        let shared = self.fd.sync_regs_mut();
        (shared.regs.rip, shared.regs.rsp) = (rip, rsp);
        shared.regs.rflags = flags_of_guest(rflags);
        at_user(&mut shared.sregs);
    }

    /// Moves the guest back before the system call that is being answered: it will make the call
    /// again.
    ///
    /// # Errors
    /// When the machine is lost.
    pub fn before_call(&mut self) -> Result<(), VcpuError> {
        self.settle()?;
        // `syscall` and its patch are two bytes long.
        let registers = self.registers();
        registers.rip = registers.rip.wrapping_sub(2);
        Ok(())
    }

    /// Lets KVM complete an exit that it left half done (an `out` behind which the guest does not
    /// stand yet), so that the registers are the whole state.
    pub(crate) fn settle(&mut self) -> Result<(), VcpuError> {
        self.fd.set_kvm_immediate_exit(1);
        let came_back = self.fd.run().map(|exit| format!("{exit:?}"));
        self.fd.set_kvm_immediate_exit(0);
        match came_back {
            Err(error) if error.errno() == libc::EINTR => Ok(()),
            Err(error) => Err(step("let KVM finish an exit")(error)),
            Ok(exit) => Err(VcpuError::Lost(format!("{exit} where it was not to run"))),
        }
    }

    /// Has the guest read the host's value of the processor's counter. Before it runs.
    ///
    /// # Errors
    /// Before Linux 5.16.
    pub(crate) fn unshift_ticks(&self) -> Result<(), VcpuError> {
        let shift = 0_u64;
        let attribute = kvm_device_attr {
            group: KVM_VCPU_TSC_CTRL,
            attr: u64::from(KVM_VCPU_TSC_OFFSET),
            addr: (&raw const shift).addr() as u64,
            flags: 0,
        };
        let fd = self.fd.as_raw_fd();
        // SAFETY: KVM reads the attribute, and eight bytes at its address: both live on.
        match unsafe { libc::ioctl(fd, KVM_SET_DEVICE_ATTR, &raw const attribute) } {
            0 => Ok(()),
            _ => Err(step("leave the counter unshifted")(io::Error::last_os_error())),
        }
    }

    /// The base that [`Vcpu::set_fs_base`] sets. After an exit only.
    pub fn fs_base(&mut self) -> u64 {
        self.fd.sync_regs_mut().sregs.fs.base
    }

    /// Sets the base of the FS segment, where a C library keeps a thread's own data.
    pub fn set_fs_base(&mut self, base: u64) {
        self.fd.set_sync_dirty_reg(SyncReg::SystemRegister);
        self.fd.sync_regs_mut().sregs.fs.base = base;
    }
}

/// The exception that the processor has pushed onto the stack of ring 0.
fn fault(space: &Space, vector: u8, address: u64) -> Fault {
    let top = MONITOR + ring0::STACK_TOP;
    let word = |from_top: u64| space.arena().word(top - from_top * 8);
    let has_code = matches!(vector, 8 | 10..=14 | 17 | 21);
    Fault {
        vector,
        code: if has_code { word(6) } else { 0 },
        address: if vector == PAGE_FAULT { address } else { 0 },
        rip: word(5),
        rsp: word(2),
        rflags: word(3),
    }
}

fn at_user(sregs: &mut kvm_sregs) {
    sregs.cs = kvm_segment { selector: USER_CODE, type_: 11, l: 1, db: 0, ..user_data() };
    sregs.ss = user_data();
}

fn user_data() -> kvm_segment {
    kvm_segment {
        limit: u32::MAX,
        selector: USER_DATA,
        type_: 3,
        present: 1,
        dpl: 3,
        db: 1,
        s: 1,
        g: 1,
        ..kvm_segment::default()
    }
}
