//! Refused system calls, by name: each group is a defence that a test can switch off
//! ([`crate::defence`]).
//!
//! The filter is an allow-list, so calls of later kernels are refused too. This list only has calls
//! that would lead an attacker somewhere, and says where.

use super::{Call, calls};
use crate::defence::Defence;

/// Calls that are refused for one reason.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// The defence that refuses them.
    pub defence: Defence,
    /// Where the calls would lead.
    pub reason: &'static str,
    /// The system calls of the group.
    pub calls: &'static [Call],
}

/// The refused calls that a test can let pass. Flags of `clone`, families of sockets and `fcntl`'s
/// notifications are arguments: see [`super::build`].
pub const REFUSALS: &[Refusal] = &[
    Refusal {
        defence: Defence::FilterNamespaces,
        reason: "a new namespace brings capabilities in it, and with them far more of the kernel; another's brings its view (the filter checks the flags of `clone`; `clone3` hides them)",
        calls: calls![SYS_unshare SYS_setns SYS_clone3],
    },
    Refusal {
        defence: Defence::FilterMounts,
        reason: "a process with a root's descriptor and the namespace's capability could make its layers writable",
        calls: calls![
            SYS_mount SYS_umount2 SYS_pivot_root SYS_open_tree SYS_move_mount SYS_fsopen SYS_fsconfig
            SYS_fsmount SYS_fspick SYS_mount_setattr
        ],
    },
    Refusal {
        defence: Defence::FilterHandles,
        reason: "a handle names a file past every directory above it",
        calls: calls![SYS_name_to_handle_at SYS_open_by_handle_at],
    },
    Refusal {
        defence: Defence::FilterTracing,
        reason: "other processes' memory, registers and descriptors",
        calls: calls![
            SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_pidfd_getfd SYS_kcmp
            SYS_process_madvise
        ],
    },
    Refusal {
        defence: Defence::FilterUring,
        reason: "its operations, sockets of every family among them, pass no filter",
        calls: calls![SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register],
    },
    Refusal {
        defence: Defence::FilterAio,
        reason: "its contexts are counted for the whole host: one sandbox could take them all",
        calls: calls![SYS_io_setup SYS_io_submit SYS_io_getevents SYS_io_cancel SYS_io_destroy],
    },
    Refusal {
        defence: Defence::FilterBpf,
        reason: "programs that run in the kernel",
        calls: calls![SYS_bpf],
    },
    Refusal {
        defence: Defence::FilterPerf,
        reason: "counters that measure other programs on a processor, and a large part of the kernel behind them",
        calls: calls![SYS_perf_event_open],
    },
    Refusal {
        defence: Defence::FilterUserfaultfd,
        reason: "it can stop the kernel in the middle of a copy for any time: a tool for winning races",
        calls: calls![SYS_userfaultfd],
    },
    Refusal {
        defence: Defence::FilterKeys,
        reason: "key rings know no container: all sandboxes inherit the session ring of the user who started the worker",
        calls: calls![SYS_add_key SYS_request_key SYS_keyctl],
    },
    Refusal {
        defence: Defence::FilterSysv,
        reason: "memory, queues and semaphores that all sandboxes would share, and that outlive their makers",
        calls: calls![
            SYS_shmget SYS_shmat SYS_shmctl SYS_shmdt SYS_msgget SYS_msgsnd SYS_msgrcv SYS_msgctl
            SYS_semget SYS_semop SYS_semctl SYS_semtimedop
        ],
    },
    Refusal {
        defence: Defence::FilterQueues,
        reason: "queues that all sandboxes would share, and that outlive their makers",
        calls: calls![
            SYS_mq_open SYS_mq_unlink SYS_mq_timedsend SYS_mq_timedreceive SYS_mq_notify
            SYS_mq_getsetattr
        ],
    },
    Refusal {
        defence: Defence::FilterNotify,
        reason: "layers are shared files: it tells when other sandboxes open them (`fcntl(F_NOTIFY)` likewise)",
        calls: calls![
            SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch SYS_fanotify_init
            SYS_fanotify_mark
        ],
    },
    Refusal {
        defence: Defence::FilterSockets,
        reason: "families that no network namespace confines (vsock), that receive the host's events (uevents), that list or reach other sandboxes (sock_diag, usersock); protocols whose modules no function needs",
        calls: calls![SYS_socket SYS_socketpair],
    },
    Refusal {
        defence: Defence::FilterSecretMemory,
        reason: "memory that the kernel cannot move, swap or look into",
        calls: calls![SYS_memfd_secret],
    },
    Refusal {
        defence: Defence::FilterSegments,
        reason: "descriptor tables that no Python program needs, with a history of vulnerabilities",
        calls: SEGMENTS,
    },
    Refusal {
        defence: Defence::FilterPersonality,
        reason: "it disables address-space randomisation and enables executable memory for the next program",
        calls: calls![SYS_personality],
    },
    Refusal {
        defence: Defence::FilterHost,
        reason: "they concern the whole host: its disks, log, clock, name, modules, quotas, swap",
        calls: calls![
            SYS_sync SYS_syncfs SYS_syslog SYS_reboot SYS_swapon SYS_swapoff SYS_quotactl SYS_acct SYS_settimeofday
            SYS_clock_settime SYS_clock_adjtime SYS_adjtimex SYS_sethostname SYS_setdomainname
            SYS_init_module SYS_finit_module SYS_delete_module SYS_kexec_load SYS_vhangup
        ],
    },
];

#[cfg(target_arch = "x86_64")]
const SEGMENTS: &[Call] = calls![SYS_modify_ldt SYS_iopl SYS_ioperm];
#[cfg(not(target_arch = "x86_64"))]
const SEGMENTS: &[Call] = &[];
