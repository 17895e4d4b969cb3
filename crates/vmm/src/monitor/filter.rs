//! The system calls of a monitor in its jail; all others are ENOSYS. The list is shorter than a
//! container's: nothing is executed, and no process and no socket is made.

use std::collections::BTreeMap;

use libc::c_long;
use warden::filter::program::{ForeignAbi, Program, Rule, Test, compile};
use warden::filter::unmerged;

/// Reading layers, by descriptors only; messages; the files behind guests' memory.
const FILES: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_lseek,
    libc::SYS_fcntl,
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_shutdown,
];

/// Its own memory, and guests'; `madvise` separately.
const MEMORY: &[c_long] =
    &[libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_mprotect, libc::SYS_brk];

/// Threads, and stopping the one that runs a guest; `clone` separately.
const THREADS: &[c_long] = &[
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_tgkill,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
];

/// Clocks and randomness, for guests, too. Timers end the turns of a guest's threads.
const TIME: &[c_long] = &[
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_delete,
];

/// Requests of KVM and of `/proc/self/pagemap`, by the kernel's names.
const REQUESTS: &[u32] = &[
    0xae01,      // KVM_CREATE_VM
    0xae03,      // KVM_CHECK_EXTENSION
    0xae04,      // KVM_GET_VCPU_MMAP_SIZE
    0xae41,      // KVM_CREATE_VCPU
    0xae80,      // KVM_RUN
    0x4020_ae46, // KVM_SET_USER_MEMORY_REGION
    0x8090_ae81, // KVM_GET_REGS
    0x4090_ae82, // KVM_SET_REGS
    0x8138_ae83, // KVM_GET_SREGS
    0x4138_ae84, // KVM_SET_SREGS
    0x4008_ae89, // KVM_SET_MSRS
    0x0000_aea3, // KVM_GET_TSC_KHZ
    0x4018_aee1, // KVM_SET_DEVICE_ATTR
    0x4004_ae8b, // KVM_SET_SIGNAL_MASK
    0x4008_ae90, // KVM_SET_CPUID2
    0x8040_ae9f, // KVM_GET_VCPU_EVENTS
    0x9000_aea4, // KVM_GET_XSAVE
    0x5000_aea5, // KVM_SET_XSAVE
    0x4188_aea7, // KVM_SET_XCRS
    0xc060_6610, // PAGEMAP_SCAN
];

/// Compiles the filter.
#[must_use]
pub(super) fn build() -> Program {
    let groups = [FILES, MEMORY, THREADS, TIME];
    let mut rules: BTreeMap<c_long, Rule> =
        groups.into_iter().flatten().map(|call| (*call, Rule::Always)).collect();
    let requests = REQUESTS.iter().map(|request| vec![(1, Test::Is(*request))]);
    rules.insert(libc::SYS_ioctl, Rule::When(requests.collect()));
    // A thread, not a process. The C library tries clone3 first, which is ENOSYS.
    let thread = (libc::CLONE_VM | libc::CLONE_THREAD).unsigned_abs();
    let thread = Test::Masked { mask: thread, value: thread };
    rules.insert(libc::SYS_clone, Rule::When(vec![vec![(0, thread)]]));
    let name = Test::Is(libc::PR_SET_NAME.unsigned_abs());
    rules.insert(libc::SYS_prctl, Rule::When(vec![vec![(0, name)]]));
    rules.insert(libc::SYS_madvise, unmerged());
    compile(&rules, ForeignAbi::Killed)
}

/// Allows everything: in place of the filter, for tests that take it away.
#[must_use]
pub(super) fn all() -> Program {
    let allow = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
    vec![allow]
}
