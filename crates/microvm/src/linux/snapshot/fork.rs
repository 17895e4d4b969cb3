//! Clones by `fork` of the monitor, as HyperFork has them (§4.1).
//!
//! ```text
//!   original                                     clone, a process of its own
//!   ────────                                     ───────────────────────────
//!   prepare  KVM finishes what it left half
//!            done; the processor is saved
//!   fork ──────────────────────────────────────► memory is there, copied when it is written
//!   goes on                                      adopt  drops the original's machine
//!                                                       makes one of its own around the same memory
//!                                                       loads the processor's state into it
//! ```
//!
//! KVM answers requests about a machine only in the address space that made it (EIO elsewhere), so
//! the inherited descriptors are of no use to the clone. `/dev/kvm` itself can be used by both.
//!
//! An ablation beside [`Template`](crate::linux::Template), whose clones live in one process and
//! whose cost does not grow with the page tables that `fork` copies. When preparing or `fork`
//! fails, the process is lost; when adopting fails, the clone has to end, and the original goes on.

use std::{fs, io};

use rustix::process::Pid;
use thiserror::Error;

use crate::linux::state::alarm::Alarm;
use crate::linux::state::clock_page::{ClockPage, clock_page_for};
use crate::linux::state::ids::another;
use crate::linux::state::process::Process;
use crate::machine::Hypervisor;
use crate::machine::cpu::CpuState;
use crate::machine::{Vcpu, VcpuError};

/// The two sides of a fork.
#[derive(Debug)]
pub enum ForkSide {
    /// In the monitor that was forked: its guest as before, and the process to be waited for.
    Original(Process, Pid),
    /// In the new process: a guest that stands where the original does. Its randomness is a
    /// sibling's until it is woken. A [`crate::memory::scan::Scanner`] of the original's asks about
    /// the original: open another one.
    Clone(Process),
}

/// Why there is no clone.
#[derive(Debug, Error)]
pub enum ForkError {
    /// Both sides would write to the same pages.
    #[error(
        "the guest's memory is a file, which a fork does not copy: start it in anonymous memory"
    )]
    Shared,
    /// A lock that another thread holds would never be free again in the clone.
    #[error("this process has more than one thread: only a monitor of one thread can be forked")]
    Threads,
    /// The threads of this process cannot be counted.
    #[error("count the threads in /proc/self/task")]
    Count(#[source] io::Error),
    /// The kernel refused to fork.
    #[error("fork the monitor")]
    Fork(#[source] io::Error),
    /// The host has no randomness.
    #[error("choose the clone's number")]
    Number(#[source] io::Error),
    /// The clone cannot ask which of its pages were touched.
    #[error("open /proc/self/pagemap in the clone")]
    Measure(#[source] io::Error),
    /// The processor could not be saved, or the clone got no machine.
    #[error(transparent)]
    Vcpu(#[from] VcpuError),
}

impl Process {
    /// Forks the whole monitor. To be called between two runs, in a process of one thread; it
    /// returns twice.
    ///
    /// # Errors
    /// When `fork` does not copy the memory, when there are other threads, or when the host
    /// refuses.
    pub fn fork(mut self, host: &Hypervisor) -> Result<ForkSide, ForkError> {
        if !self.space.arena().is_copied_by_fork() {
            return Err(ForkError::Shared);
        }
        if !is_alone().map_err(ForkError::Count)? {
            return Err(ForkError::Threads);
        }
        let prepared = CpuState::save(&mut self.vcpu)?;
        // SAFETY: no other thread holds a lock or is in the middle of anything.
        match unsafe { libc::fork() } {
            -1 => Err(ForkError::Fork(io::Error::last_os_error())),
            0 => Ok(ForkSide::Clone(self.adopt(host, &prepared)?)),
            child => match Pid::from_raw(child) {
                Some(child) => Ok(ForkSide::Original(self, child)),
                None => Err(ForkError::Fork(io::ErrorKind::InvalidData.into())),
            },
        }
    }

    /// Runs in the clone, before anything else.
    fn adopt(mut self, host: &Hypervisor, prepared: &CpuState) -> Result<Self, ForkError> {
        let told = self.clock.as_ref().map_or(0, ClockPage::latest_seen);
        // First: as long as it is open here, the original's machine outlives the original.
        drop(self.vcpu);
        self.vcpu = Vcpu::new(host, &self.space, 0, 0)?;
        prepared.restore(&mut self.vcpu)?;
        self.clock = clock_page_for(host, &self.vcpu, told)?;
        // The original's would tell what was touched there.
        self.space.measure_anew().map_err(ForkError::Measure)?;
        self.pid = another(self.pid).map_err(ForkError::Number)?;
        self.kernel.alarm = Alarm::default();
        Ok(self)
    }
}

/// Whether this is the process's only thread, but for the kernel's own threads that KVM adds to it
/// (Linux ≥ 6.14: one that splits huge pages). These never run in user mode, and hold no lock of
/// ours.
fn is_alone() -> io::Result<bool> {
    const PF_USER_WORKER: u64 = 0x4000;
    let mut ours = 0;
    for task in fs::read_dir("/proc/self/task")? {
        let stat = fs::read_to_string(task?.path().join("stat"))?;
        // proc(5): the flags are the 9th field, the 7th behind the name, which may hold blanks.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let flags = fields.split_ascii_whitespace().nth(6).and_then(|flags| flags.parse().ok());
        ours += u32::from(flags.unwrap_or(0) & PF_USER_WORKER == 0);
    }
    Ok(ours == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::state::clock_page::monotonic_base;
    use crate::linux::{Options, Template};
    use crate::memory::arena::MemoryKind;
    use crate::vfs::TreeBuilder;

    /// It is never run.
    const PROGRAM: &[u8] = include_bytes!("../../../../../fuzz/corpus/unikernels/static");
    const SECOND: u64 = 1_000_000_000;

    /// A host whose guests tell the time by themselves.
    fn host() -> Option<Hypervisor> {
        let required = std::env::var("LAMBSWOOL_REQUIRE").unwrap_or_default();
        let required = required.split(',').any(|name| name == "kvm");
        let host = match Hypervisor::open() {
            Ok(host) => host,
            Err(error) => {
                assert!(!required, "{error}, and LAMBSWOOL_REQUIRE says that this machine has kvm");
                eprintln!("SKIPPED: {error}");
                return None;
            }
        };
        host.ticks().map(|_| host).map_err(|reason| eprintln!("SKIPPED: {reason}")).ok()
    }

    /// What a machine's guest takes the monotonic clock to be when it runs on.
    fn tells(process: &mut Process) -> u64 {
        let Process { clock, space, .. } = process;
        clock.as_mut().unwrap().refresh(space);
        monotonic_base(space)
    }

    /// A machine whose guest was told a minute more than it is, as if the host's clock had been
    /// slewed for long; and what it was told.
    fn ahead(host: &Hypervisor, memory: MemoryKind) -> (Process, u64) {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("program"), PROGRAM).unwrap();
        let tree = TreeBuilder::default().layer("/", directory.path()).unwrap().devices();
        let options = Options { program: vec!["/program".into()], ..Options::default() };
        let mut process = Process::start_in(memory, host, tree.build(0, 0), &options).unwrap();
        let now = tells(&mut process);
        process.clock = Some(ClockPage::new(host.ticks().unwrap(), now + 60 * SECOND));
        let told = tells(&mut process);
        assert!(told >= now + 60 * SECOND);
        (process, told)
    }

    #[test]
    fn a_forked_clones_clock_does_not_go_back_behind_its_originals() {
        let Some(host) = host() else { return };
        let (mut process, told) = ahead(&host, MemoryKind::Anonymous);
        let prepared = CpuState::save(&mut process.vcpu).unwrap();
        // On the same side, where nothing else is different: a test's process has threads, and
        // cannot be forked.
        let mut clone = process.adopt(&host, &prepared).unwrap();
        assert!(tells(&mut clone) >= told);
    }

    #[test]
    fn clones_begin_where_their_templates_clock_was_and_have_a_page_each() {
        let Some(host) = host() else { return };
        let (process, told) = ahead(&host, MemoryKind::File);
        let template = Template::seal(process).unwrap();
        let [mut first, mut second] = [0; 2].map(|_| template.spawn(&host).unwrap());
        let began = tells(&mut first);
        assert!(began >= told);
        assert_eq!(monotonic_base(second.space()), told, "the second's page is not the first's");
        assert!(tells(&mut second) >= told);
        assert_eq!(monotonic_base(first.space()), began);
    }
}
