//! The system calls that Python and its libraries may make: an allow-list, a reason for each group.
//!
//! It is installed once, in a root zygote, before Python is executed, and inherited by everything that is forked from
//! it: inheriting costs nothing, and the kernel answers calls that are allowed whatever their arguments from a bitmap.
//! Everything else is ENOSYS, as on a kernel that lacks it, so that libraries take their fallbacks: clone3, whose
//! flags a filter cannot see, io_uring, bpf, ptrace, keyrings, userfaultfd, the mount calls (`mount_setattr` above
//! all: whoever holds a root's descriptor and the namespace's capability could make it writable), inotify,
//! dnotify and fanotify (they see other sandboxes' opens of shared files), vsock and the rest.

pub mod program;

use std::collections::BTreeMap;

use libc::c_long;

use crate::isolation::Namespaces;
use program::{Program, Rule, Test, compile};

/// For whom a filter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Forks into slots: may enter a user namespace, make a PID namespace, chroot.
    Zygote,
    /// None of that.
    Instance,
}

/// Flags that `clone` refuses: namespaces, and a child for the caller's own parent. A root zygote's parent is the
/// warden, which would never wait for such a child.
const CLONE_REFUSED: u32 = (libc::CLONE_PARENT
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET)
    .unsigned_abs();

/// Files: what is open, what they hold, where they are; `fcntl` separately. The root tree decides what can be reached.
const FILES: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_readlinkat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_ftruncate,
    libc::SYS_truncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_vmsplice,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_flock,
    libc::SYS_ioctl,
    libc::SYS_pipe2,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_umask,
    libc::SYS_mknodat,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_fgetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_flistxattr,
    libc::SYS_memfd_create,
];

/// Memory of the caller's own.
const MEMORY: &[c_long] = &[
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_mlockall,
    libc::SYS_munlockall,
    libc::SYS_msync,
    libc::SYS_mincore,
    libc::SYS_membarrier,
    libc::SYS_get_mempolicy,
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect,
];

/// Processes and threads of the caller's own; `clone` separately. Signals reach only its own uid and namespace.
const PROCESSES: &[c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getpgid,
    libc::SYS_setpgid,
    libc::SYS_getsid,
    libc::SYS_setsid,
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_prctl,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    libc::SYS_getrlimit,
    libc::SYS_setrlimit,
    libc::SYS_prlimit64,
    libc::SYS_getrusage,
    libc::SYS_times,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_rr_get_interval,
    libc::SYS_sched_getattr,
    libc::SYS_getcpu,
    libc::SYS_seccomp,
];

/// Who the caller is. Without capabilities nothing but its own ids can be taken.
const IDENTITY: &[c_long] = &[
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setgroups,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
];

/// Time, waiting, randomness, the host's name.
const TIME: &[c_long] = &[
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getitimer,
    libc::SYS_setitimer,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_gettime,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_delete,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_signalfd4,
    libc::SYS_getrandom,
    libc::SYS_uname,
    libc::SYS_sysinfo,
];

/// Sockets; `socket` and `socketpair` separately.
const SOCKETS: &[c_long] = &[
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept4,
    libc::SYS_accept,
    libc::SYS_connect,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_setsockopt,
    libc::SYS_getsockopt,
    libc::SYS_shutdown,
];

/// The older forms that x86-64 still has beside the ones above.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_getdents,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_readlink,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_mknod,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_getpgrp,
    libc::SYS_alarm,
    libc::SYS_pause,
    libc::SYS_time,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_signalfd,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];

/// Builds the filter. `unix_sockets` is false where abstract sockets have no Landlock scope (before Linux 6.12): all
/// sandboxes of a network class share one network namespace, and with it the abstract names. `own` are the namespaces
/// that a zygote's forks make for themselves.
#[must_use]
pub fn build(role: Role, unix_sockets: bool, own: Namespaces) -> Program {
    let groups = [FILES, MEMORY, PROCESSES, IDENTITY, TIME, SOCKETS, OLDER];
    let mut rules: BTreeMap<c_long, Rule> =
        groups.into_iter().flatten().map(|call| (*call, Rule::Always)).collect();
    let is = |value: i32| Test::Is(value.unsigned_abs());
    // No namespace by clone. A filter sees these flags; it could not see clone3's.
    let no_namespace = Test::Masked { mask: CLONE_REFUSED, value: 0 };
    rules.insert(libc::SYS_clone, Rule::When(vec![vec![(0, no_namespace)]]));
    // getaddrinfo and getifaddrs ask the kernel for addresses; no other netlink family (no namespace stops AF_VSOCK).
    let mut sockets = vec![
        vec![(0, is(libc::AF_INET))],
        vec![(0, is(libc::AF_INET6))],
        vec![(0, is(libc::AF_NETLINK)), (2, is(libc::NETLINK_ROUTE))],
    ];
    // The kernel makes both sockets of a pair before their family says that it has no pairs: AF_UNIX only. Without a
    // scope no datagrams, because such a socket could still be bound and connected by an abstract name.
    let mut pairs = Vec::new();
    if unix_sockets {
        sockets.push(vec![(0, is(libc::AF_UNIX))]);
        pairs.push(vec![(0, is(libc::AF_UNIX))]);
    } else {
        for kind in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET] {
            // Above the type stand flags.
            let kind = Test::Masked { mask: 0xf, value: kind.unsigned_abs() };
            pairs.push(vec![(0, is(libc::AF_UNIX)), (1, kind)]);
        }
    }
    rules.insert(libc::SYS_socket, Rule::When(sockets));
    rules.insert(libc::SYS_socketpair, Rule::When(pairs));
    // dnotify sees other sandboxes' opens of shared files, as inotify does.
    let other = Test::IsNot(libc::F_NOTIFY.unsigned_abs());
    rules.insert(libc::SYS_fcntl, Rule::When(vec![vec![(1, other)]]));
    if role == Role::Zygote {
        // Not by pidfd: that takes a process's namespaces, whatever the flags of the slot's own.
        rules.insert(libc::SYS_setns, Rule::When(vec![vec![(1, is(libc::CLONE_NEWUSER))]]));
        // Exactly what an instance's landing makes, and what a further zygote's makes.
        let mut unshared = vec![libc::CLONE_NEWPID | own.bits()];
        if own != Namespaces::NONE {
            unshared.push(own.bits());
        }
        let allowed = unshared.into_iter().map(|kinds| vec![(0, is(kinds))]).collect();
        rules.insert(libc::SYS_unshare, Rule::When(allowed));
        rules.insert(libc::SYS_chroot, Rule::Always);
    }
    compile(&rules)
}
