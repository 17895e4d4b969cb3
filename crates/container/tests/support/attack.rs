//! Python that attacks from inside: as a handler, and as a package that a zygote imports.

use sandbox::{InstanceSpec, Kind, Limits, Network, Zygote, ZygoteSpec};

use super::World;

/// The numbers of system calls on this architecture.
fn numbers() -> String {
    let mut numbers = vec![];
    macro_rules! number {
        ($($name:ident = $call:ident),* $(,)?) => {
            $(numbers.push(format!("'{}': {}", stringify!($name), libc::$call));)*
        };
    }
    number! {
        mount = SYS_mount, umount2 = SYS_umount2, pivot_root = SYS_pivot_root, open_tree = SYS_open_tree,
        move_mount = SYS_move_mount, fsopen = SYS_fsopen, fspick = SYS_fspick, mount_setattr = SYS_mount_setattr,
        clone3 = SYS_clone3, ptrace = SYS_ptrace, process_vm_readv = SYS_process_vm_readv,
        process_vm_writev = SYS_process_vm_writev, pidfd_getfd = SYS_pidfd_getfd, kcmp = SYS_kcmp,
        io_uring_setup = SYS_io_uring_setup, bpf = SYS_bpf, userfaultfd = SYS_userfaultfd, keyctl = SYS_keyctl,
        add_key = SYS_add_key, request_key = SYS_request_key, perf_event_open = SYS_perf_event_open,
        inotify_init1 = SYS_inotify_init1, fanotify_init = SYS_fanotify_init,
        open_by_handle_at = SYS_open_by_handle_at, name_to_handle_at = SYS_name_to_handle_at, shmget = SYS_shmget,
        msgget = SYS_msgget, mq_open = SYS_mq_open, personality = SYS_personality, quotactl = SYS_quotactl,
        reboot = SYS_reboot, init_module = SYS_init_module, sethostname = SYS_sethostname,
        clock_settime = SYS_clock_settime, memfd_secret = SYS_memfd_secret, socket = SYS_socket,
        socketpair = SYS_socketpair, clone = SYS_clone, getpid = SYS_getpid, unshare = SYS_unshare,
        setns = SYS_setns, chroot = SYS_chroot, fchdir = SYS_fchdir, pidfd_open = SYS_pidfd_open,
        pidfd_send_signal = SYS_pidfd_send_signal, setresuid = SYS_setresuid, setresgid = SYS_setresgid,
        setgroups = SYS_setgroups, capget = SYS_capget, capset = SYS_capset, getcpu = SYS_getcpu,
        ioctl = SYS_ioctl, prlimit64 = SYS_prlimit64, close_range = SYS_close_range, shmat = SYS_shmat,
        msgsnd = SYS_msgsnd, msgrcv = SYS_msgrcv, semget = SYS_semget, semctl = SYS_semctl,
        mq_timedsend = SYS_mq_timedsend, mq_timedreceive = SYS_mq_timedreceive,
        inotify_add_watch = SYS_inotify_add_watch, fanotify_mark = SYS_fanotify_mark,
        io_uring_enter = SYS_io_uring_enter, io_setup = SYS_io_setup, sync = SYS_sync, syncfs = SYS_syncfs, syslog = SYS_syslog,
        timer_create = SYS_timer_create, bind = SYS_bind, listen = SYS_listen, seccomp = SYS_seccomp, prctl = SYS_prctl,
    }
    #[cfg(target_arch = "x86_64")]
    {
        numbers.push("'x32': 0x40000000".to_owned());
        number! { modify_ldt = SYS_modify_ldt }
    }
    format!("NR = {{{}}}\n", numbers.join(", "))
}

/// A handler's source with the means of attack in front of it.
pub(crate) fn handler(source: &str) -> String {
    format!("{}{}\n{source}", numbers(), include_str!("attack.py"))
}

/// A handler that answers with the findings of its zygote's malicious package.
pub(crate) const REPORT: &str = "
import sys

def handler(event, context):
    return sys.modules['evil'].REPORT
";

impl World {
    /// A zygote with a malicious package: `attack` defines the function of that name
    /// (support/evil.py).
    pub(crate) fn evil(&self, attack: &str) -> ZygoteSpec {
        let source = format!(
            "{}{}\n{}\n{attack}",
            numbers(),
            include_str!("attack.py"),
            include_str!("evil.py")
        );
        ZygoteSpec {
            kind: Kind::Container,
            python: self.python.clone(),
            packages: Some(self.package("evil", &source)),
            imports: vec!["evil".to_owned()],
            network: Network::None,
            tenant: "test".into(),
            limits: Limits::default(),
        }
    }

    /// Forks an instance, which reports what its zygote's package has found.
    pub(crate) async fn report(&self, zygote: &dyn Zygote) -> serde_json::Value {
        assert_eq!(zygote.imports().failed, [], "the malicious package does not run");
        let mut instance = zygote.fork(self.instance(REPORT)).await.unwrap();
        super::ask(instance.as_mut(), "{}").await
    }

    /// An instance whose code may use the means of attack.
    pub(crate) fn attacker(&self, source: &str) -> InstanceSpec {
        self.instance(&handler(source))
    }
}
