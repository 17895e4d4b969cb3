//! System calls that are allowed with any arguments, in groups with reasons.

use super::{Call, calls};

/// System calls that are allowed for one reason.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The group's name.
    pub name: &'static str,
    /// Why they are allowed, and what limits them.
    pub reason: &'static str,
    /// The system calls of the group.
    pub calls: &'static [Call],
}

/// The allow-list. [`super::build`] adds calls that are judged by their arguments.
pub const GROUPS: &[Group] = &[
    Group {
        name: "files",
        reason: "open files, their content and their paths (`fcntl` and `fadvise64` by their arguments); the root tree decides which files there are",
        calls: calls![
            SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev
            SYS_preadv2 SYS_pwritev2 SYS_openat SYS_openat2 SYS_close SYS_close_range SYS_lseek
            SYS_fstat SYS_newfstatat SYS_statx SYS_faccessat SYS_faccessat2 SYS_getdents64
            SYS_getcwd SYS_chdir SYS_fchdir SYS_mkdirat SYS_unlinkat SYS_renameat SYS_renameat2
            SYS_linkat SYS_symlinkat SYS_readlinkat SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat
            SYS_utimensat SYS_ftruncate SYS_truncate SYS_fallocate SYS_fsync SYS_fdatasync
            SYS_sync_file_range SYS_readahead SYS_copy_file_range
            SYS_sendfile SYS_splice SYS_tee SYS_vmsplice SYS_dup SYS_dup3 SYS_flock SYS_ioctl
            SYS_pipe2 SYS_statfs SYS_fstatfs SYS_umask SYS_mknodat SYS_getxattr SYS_lgetxattr
            SYS_fgetxattr SYS_listxattr SYS_llistxattr SYS_flistxattr SYS_memfd_create
        ],
    },
    Group {
        name: "memory",
        reason: "the caller's own memory",
        calls: calls![
            SYS_mmap SYS_munmap SYS_mremap SYS_mprotect SYS_brk SYS_mlock SYS_mlock2
            SYS_munlock SYS_mlockall SYS_munlockall SYS_msync SYS_mincore SYS_membarrier
            SYS_get_mempolicy SYS_mbind SYS_set_mempolicy SYS_pkey_alloc SYS_pkey_free
            SYS_pkey_mprotect
        ],
    },
    Group {
        name: "processes",
        reason: "the caller's own processes and threads (`clone` and `prctl` by their arguments); signals reach only its own uid and namespace",
        calls: calls![
            SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4 SYS_waitid SYS_kill SYS_tkill
            SYS_tgkill SYS_pidfd_open SYS_pidfd_send_signal SYS_getpid SYS_getppid SYS_gettid
            SYS_getpgid SYS_setpgid SYS_getsid SYS_setsid SYS_set_tid_address SYS_set_robust_list
            SYS_get_robust_list SYS_rseq SYS_futex SYS_futex_waitv SYS_prctl SYS_rt_sigaction
            SYS_rt_sigprocmask SYS_rt_sigpending SYS_rt_sigqueueinfo SYS_rt_sigreturn
            SYS_rt_sigsuspend SYS_rt_sigtimedwait SYS_rt_tgsigqueueinfo SYS_sigaltstack
            SYS_restart_syscall SYS_getpriority SYS_setpriority SYS_getrlimit SYS_setrlimit
            SYS_prlimit64 SYS_getrusage SYS_times SYS_sched_yield SYS_sched_getaffinity
            SYS_sched_setaffinity SYS_sched_getparam SYS_sched_getscheduler SYS_sched_setscheduler
            SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_sched_rr_get_interval
            SYS_sched_getattr SYS_getcpu
        ],
    },
    Group {
        name: "identity",
        reason: "the caller's identity: without capabilities it can take only its own ids, and Landlock only ever restricts",
        calls: calls![
            SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getresuid SYS_getresgid SYS_getgroups
            SYS_setresuid SYS_setresgid SYS_setuid SYS_setgid SYS_setreuid SYS_setregid
            SYS_setgroups SYS_setfsuid SYS_setfsgid SYS_capget SYS_capset
            SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self
        ],
    },
    Group {
        name: "time",
        reason: "time, waiting, randomness, the host's name",
        calls: calls![
            SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep SYS_nanosleep SYS_gettimeofday
            SYS_getitimer SYS_setitimer SYS_timer_create SYS_timer_settime SYS_timer_gettime
            SYS_timer_getoverrun SYS_timer_delete SYS_timerfd_create SYS_timerfd_settime
            SYS_timerfd_gettime SYS_ppoll SYS_pselect6 SYS_epoll_create1 SYS_epoll_ctl
            SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2 SYS_signalfd4 SYS_getrandom SYS_uname
            SYS_sysinfo
        ],
    },
    Group {
        name: "sockets",
        reason: "operations on a socket (`socket` and `socketpair` by their arguments); `listen` not in the host's network",
        calls: calls![
            SYS_bind SYS_listen SYS_accept4 SYS_accept SYS_connect SYS_getsockname SYS_getpeername
            SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg SYS_sendmmsg SYS_recvmmsg
            SYS_setsockopt SYS_getsockopt SYS_shutdown
        ],
    },
    Group {
        name: "older forms",
        reason: "older forms of the calls above, which x86-64 still has",
        calls: OLDER,
    },
];

/// System calls of x86-64 that younger architectures do not have.
#[cfg(target_arch = "x86_64")]
const OLDER: &[Call] = calls![
    SYS_open SYS_creat SYS_stat SYS_lstat SYS_access SYS_getdents SYS_mkdir SYS_rmdir SYS_unlink
    SYS_rename SYS_link SYS_symlink SYS_readlink SYS_chmod SYS_chown SYS_lchown SYS_mknod SYS_utime
    SYS_utimes SYS_futimesat SYS_dup2 SYS_pipe SYS_fork SYS_vfork SYS_getpgrp SYS_alarm SYS_pause
    SYS_time SYS_poll SYS_select SYS_epoll_create SYS_epoll_wait SYS_eventfd SYS_signalfd
    SYS_arch_prctl
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[Call] = &[];
