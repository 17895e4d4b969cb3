//! The table of system calls: each number, and the function that answers it.

use rustix::io::Errno;

use crate::linux::abi::registers::{Answer, fd, mode, signed};
use crate::linux::scheduling::deliver::raise;
use crate::linux::state::flow::Flow;
use crate::linux::state::ids::USER;
use crate::linux::state::process::Process;
use crate::linux::state::signals::{Addressee, XFSZ};
use crate::linux::syscalls::files::{
    descriptors, inet_sockets, paths, ready, socket_pairs, status, transfer,
};
use crate::linux::syscalls::{
    alarm, clock, futex, identity, memory, random, resource_limits, signals, threads,
};

/// Calls that do not exist here, and that C libraries, allocators and event loops try and can do
/// without.
pub const OPTIONAL_CALLS: &[libc::c_long] = &[
    libc::SYS_epoll_create,
    libc::SYS_epoll_create1,
    libc::SYS_clone3,
    libc::SYS_statx,
    libc::SYS_membarrier,
    libc::SYS_mbind,
    libc::SYS_get_mempolicy,
];

/// Answers a system call.
pub(crate) fn answer(process: &mut Process, number: u64, arguments: [u64; 6]) -> Flow {
    let Ok(number) = libc::c_long::try_from(number) else { return Flow::Unknown };
    if let Some(flow) = waiting_call(process, number, arguments) {
        return flow;
    }
    let answer = memory_call(process, number, arguments)
        .or_else(|| descriptor_call(process, number, arguments))
        .or_else(|| name_call(process, number, arguments))
        .or_else(|| time_or_signal_call(process, number, arguments))
        .or_else(|| identity_call(process, number, arguments))
        .or_else(|| refused_call(number));
    match answer {
        Some(Err(Errno::FBIG)) if process.kernel.limits.signals_length() => {
            raise(process, Addressee::Thread, XFSZ, Err(Errno::FBIG))
        }
        Some(answer) => Flow::Answer(answer),
        None if OPTIONAL_CALLS.contains(&number) => Flow::Optional,
        None => Flow::Unknown,
    }
}

/// Calls that may wait, end a thread, or resume elsewhere.
fn waiting_call(process: &mut Process, number: libc::c_long, arguments: [u64; 6]) -> Option<Flow> {
    let [a, b, c, d, ..] = arguments;
    Some(match number {
        libc::SYS_read => transfer::read(process, a, b, c),
        libc::SYS_readv => transfer::readv(process, a, b, c),
        libc::SYS_write => transfer::write(process, a, b, c),
        libc::SYS_writev => transfer::writev(process, a, b, c),
        libc::SYS_sendto => socket_pairs::send_to(process, arguments),
        libc::SYS_sendmsg => socket_pairs::send_message(process, a, b, c),
        libc::SYS_recvfrom => socket_pairs::receive_from(process, arguments),
        libc::SYS_recvmsg => socket_pairs::receive_message(process, a, b, c),
        libc::SYS_preadv => transfer::at(process, arguments, false, false),
        libc::SYS_pwritev => transfer::at(process, arguments, true, false),
        libc::SYS_preadv2 => transfer::at(process, arguments, false, true),
        libc::SYS_pwritev2 => transfer::at(process, arguments, true, true),
        libc::SYS_poll => ready::poll(process, a, b, signed(c)),
        libc::SYS_ppoll => ready::ppoll(process, arguments),
        libc::SYS_select => ready::select(process, arguments),
        libc::SYS_pselect6 => ready::pselect(process, arguments),
        libc::SYS_flock => descriptors::flock(process, a, b),
        libc::SYS_exit => threads::exit(process, signed(a) & 0xff),
        libc::SYS_exit_group => Flow::Exit(signed(a) & 0xff),
        libc::SYS_clone => threads::start(process, arguments),
        libc::SYS_futex => futex::futex(process, arguments),
        libc::SYS_nanosleep => clock::nanosleep(process, a, b),
        libc::SYS_clock_nanosleep => clock::clock_nanosleep(process, a, b, c, d),
        libc::SYS_setitimer => alarm::set(process, a, b, c),
        libc::SYS_pause => signals::pause(process),
        libc::SYS_rt_sigprocmask => signals::sigprocmask(process, a, b, c, d),
        libc::SYS_rt_sigreturn => signals::sigreturn(process),
        libc::SYS_kill => signals::kill(process, signed(a), signed(b)),
        libc::SYS_tkill => signals::kill_thread(process, fd(a), signed(b)),
        libc::SYS_tgkill => signals::kill_thread(process, fd(b), signed(c)),
        _ => return None,
    })
}

/// Calls about memory.
fn memory_call(process: &mut Process, number: libc::c_long, arguments: [u64; 6]) -> Option<Answer> {
    let [a, b, c, d, ..] = arguments;
    Some(match number {
        libc::SYS_mmap => memory::mmap(process, arguments),
        libc::SYS_mprotect => memory::mprotect(process, a, b, c),
        libc::SYS_munmap => memory::munmap(process, a, b),
        libc::SYS_mremap => memory::mremap(process, a, b, c, d),
        libc::SYS_madvise => memory::madvise(process, a, b, c),
        libc::SYS_msync => memory::msync(process, a, b),
        libc::SYS_brk => memory::brk(process, a),
        _ => return None,
    })
}

/// Calls about descriptors, and the bytes behind them.
fn descriptor_call(
    process: &mut Process,
    number: libc::c_long,
    arguments: [u64; 6],
) -> Option<Answer> {
    let [a, b, c, d, e, ..] = arguments;
    Some(match number {
        libc::SYS_pread64 => transfer::pread(process, a, b, c, d),
        libc::SYS_pwrite64 => transfer::pwrite(process, a, b, c, d),
        libc::SYS_lseek => transfer::lseek(process, a, b, c),
        libc::SYS_close => descriptors::close(process, a),
        libc::SYS_close_range => descriptors::close_range(process, a, b, c),
        libc::SYS_dup => process.kernel.files.duplicate(fd(a), 0, false),
        libc::SYS_dup2 if fd(a) == fd(b) => process.kernel.files.descriptor(fd(a)).map(|_| fd(a)),
        libc::SYS_dup2 => descriptors::dup(process, a, b, 0),
        libc::SYS_dup3 if fd(a) == fd(b) => Err(Errno::INVAL),
        libc::SYS_dup3 => descriptors::dup(process, a, b, c),
        libc::SYS_pipe => descriptors::pipe(process, a, 0),
        libc::SYS_pipe2 => descriptors::pipe(process, a, b),
        libc::SYS_fcntl => descriptors::fcntl(process, a, b, c),
        libc::SYS_ftruncate => transfer::ftruncate(process, a, b),
        libc::SYS_fallocate => transfer::allocate(process, a, b, c, d),
        libc::SYS_ioctl => descriptors::ioctl(process, a, b, c),
        libc::SYS_socketpair => socket_pairs::pair(process, a, b, c, d),
        libc::SYS_shutdown => socket_pairs::shut_down(process, a, b),
        libc::SYS_getsockname => socket_pairs::name(process, a, b, c, false),
        libc::SYS_getpeername => socket_pairs::name(process, a, b, c, true),
        libc::SYS_socket => inet_sockets::make(process, a, b, c),
        libc::SYS_bind | libc::SYS_connect | libc::SYS_listen => inet_sockets::reach(process, a),
        libc::SYS_accept | libc::SYS_accept4 => inet_sockets::accept(process, a),
        libc::SYS_getsockopt => socket_pairs::option(process, a, b, c, d, e),
        libc::SYS_setsockopt => socket_pairs::set_option(process, a, b, c, d, e),
        // Files are in memory, and stay there.
        libc::SYS_sync
        | libc::SYS_mlock
        | libc::SYS_munlock
        | libc::SYS_mlockall
        | libc::SYS_munlockall => Ok(0),
        libc::SYS_fsync | libc::SYS_fdatasync => descriptors::sync(process, a),
        libc::SYS_syncfs => process.kernel.files.get(fd(a)).map(|_| 0),
        libc::SYS_fadvise64 => process.kernel.files.get(fd(a)).map(|_| 0),
        _ => return None,
    })
}

/// Calls about names in the tree.
fn name_call(process: &mut Process, number: libc::c_long, arguments: [u64; 6]) -> Option<Answer> {
    let [a, b, c, d, e, ..] = arguments;
    Some(match number {
        libc::SYS_open => paths::open(process, paths::HERE, a, b, c),
        libc::SYS_creat => paths::open(process, paths::HERE, a, paths::CREAT_FLAGS, b),
        libc::SYS_openat => paths::open(process, a, b, c, d),
        libc::SYS_stat => status::stat(process, paths::HERE, a, b, 0),
        libc::SYS_lstat => status::stat(process, paths::HERE, a, b, paths::NO_FOLLOW),
        libc::SYS_fstat => status::fstat(process, a, b),
        libc::SYS_newfstatat => status::stat(process, a, b, c, d),
        libc::SYS_access => status::access(process, paths::HERE, a, b),
        libc::SYS_faccessat | libc::SYS_faccessat2 => status::access(process, a, b, c),
        libc::SYS_readlink => status::readlink(process, paths::HERE, a, b, c),
        libc::SYS_readlinkat => status::readlink(process, a, b, c, d),
        libc::SYS_getdents64 => status::getdents(process, a, b, c),
        libc::SYS_getcwd => paths::getcwd(process, a, b),
        libc::SYS_chdir => paths::chdir(process, a),
        libc::SYS_fchdir => paths::fchdir(process, a),
        libc::SYS_mkdir => paths::mkdir(process, paths::HERE, a, b),
        libc::SYS_mkdirat => paths::mkdir(process, a, b, c),
        libc::SYS_unlink => paths::unlink(process, paths::HERE, a, 0),
        libc::SYS_rmdir => paths::unlink(process, paths::HERE, a, paths::REMOVE_DIRECTORY),
        libc::SYS_unlinkat => paths::unlink(process, a, b, c),
        libc::SYS_rename => paths::rename(process, paths::HERE, a, paths::HERE, b, 0),
        libc::SYS_renameat => paths::rename(process, a, b, c, d, 0),
        libc::SYS_renameat2 => paths::rename(process, a, b, c, d, e),
        libc::SYS_link => paths::link(process, paths::HERE, a, paths::HERE, b, 0),
        libc::SYS_linkat => paths::link(process, a, b, c, d, e),
        libc::SYS_symlink => paths::symlink(process, a, paths::HERE, b),
        libc::SYS_symlinkat => paths::symlink(process, a, b, c),
        libc::SYS_chmod => paths::chmod(process, paths::HERE, a, b, 0),
        libc::SYS_fchmodat => paths::chmod(process, a, b, c, 0),
        libc::SYS_fchmodat2 => paths::chmod(process, a, b, c, d),
        libc::SYS_fchmod => paths::fchmod(process, a, b),
        libc::SYS_chown => paths::chown(process, paths::HERE, a, [b, c], 0),
        libc::SYS_lchown => paths::chown(process, paths::HERE, a, [b, c], paths::NO_FOLLOW),
        libc::SYS_fchownat => paths::chown(process, a, b, [c, d], e),
        libc::SYS_fchown => paths::fchown(process, a, [b, c]),
        libc::SYS_truncate => paths::truncate(process, a, b),
        libc::SYS_utimensat => paths::set_times(process, a, b, c, d),
        libc::SYS_statfs => status::statfs(process, a, b),
        libc::SYS_fstatfs => status::fstatfs(process, a, b),
        libc::SYS_umask => Ok(u64::from(paths::umask(process, mode(a)))),
        libc::SYS_mknod => paths::mknod(process, paths::HERE, a, b),
        libc::SYS_mknodat => paths::mknod(process, a, b, c),
        _ => return None,
    })
}

/// Calls that tell the time, or set how signals are handled.
fn time_or_signal_call(
    process: &mut Process,
    number: libc::c_long,
    arguments: [u64; 6],
) -> Option<Answer> {
    let [a, b, c, d, ..] = arguments;
    Some(match number {
        libc::SYS_clock_gettime => clock::gettime(process, a, b),
        libc::SYS_clock_getres => clock::getres(process, a, b),
        libc::SYS_gettimeofday => clock::gettimeofday(process, a),
        libc::SYS_time => clock::time(process, a),
        libc::SYS_getitimer => alarm::get(process, a, b),
        libc::SYS_alarm => Ok(alarm::alarm(process, a)),

        libc::SYS_rt_sigaction => signals::sigaction(process, a, b, c, d),
        libc::SYS_rt_sigpending => signals::sigpending(process, a, b),
        libc::SYS_sigaltstack => signals::sigaltstack(process, a, b),
        _ => return None,
    })
}

/// Calls about the process itself, its limits, and its machine.
fn identity_call(
    process: &mut Process,
    number: libc::c_long,
    arguments: [u64; 6],
) -> Option<Answer> {
    let [a, b, c, d, ..] = arguments;
    Some(match number {
        libc::SYS_arch_prctl => identity::arch_prctl(process, a, b),
        libc::SYS_prctl => identity::prctl(process, a, b),
        libc::SYS_uname => identity::uname(process, a),
        libc::SYS_getrandom => random::getrandom(process, a, b, c),
        libc::SYS_prlimit64 => resource_limits::prlimit(process, a, b, c, d),
        libc::SYS_setrlimit => resource_limits::prlimit(process, 0, a, b, 0),
        libc::SYS_getrlimit => resource_limits::prlimit(process, 0, a, 0, b),
        libc::SYS_getrusage => identity::getrusage(process, a, b),
        libc::SYS_sysinfo => identity::sysinfo(process, a),
        libc::SYS_times => identity::times(process, a),
        libc::SYS_sched_getaffinity => identity::affinity(process, b, c),
        libc::SYS_sched_setaffinity => identity::set_affinity(process, a, b, c),
        libc::SYS_gettid => Ok(process.seen_number(process.kernel.threads.running())),
        libc::SYS_set_tid_address => {
            let thread = process.kernel.threads.tell_end_at(a);
            Ok(process.seen_number(thread))
        }
        libc::SYS_getpid | libc::SYS_getpgrp => Ok(process.pid),
        libc::SYS_getpgid | libc::SYS_getsid => process.check_own(a).map(|()| process.pid),
        libc::SYS_setpgid => process.check_own(a).and_then(|()| process.check_own(b)).map(|()| 0),
        libc::SYS_getpriority => resource_limits::niceness(process, a, b),
        libc::SYS_setpriority => resource_limits::set_niceness(process, a, b, c),
        // SCHED_OTHER.
        libc::SYS_sched_getscheduler => process.check_own(a).map(|()| 0),
        libc::SYS_sched_get_priority_max => identity::priority(a, 99),
        libc::SYS_sched_get_priority_min => identity::priority(a, 1),
        libc::SYS_getcpu => identity::processor(process, [a, b]),
        libc::SYS_getresuid | libc::SYS_getresgid => identity::own_ids(process, [a, b, c]),
        libc::SYS_getppid => Ok(0),
        libc::SYS_getuid | libc::SYS_geteuid | libc::SYS_getgid | libc::SYS_getegid => Ok(USER),
        libc::SYS_getgroups => Ok(0),
        libc::SYS_sched_yield => {
            process.kernel.threads.end_turn();
            Ok(0)
        }
        libc::SYS_set_robust_list => Ok(0),
        _ => return None,
    })
}

/// Calls that exist, and that no guest may use.
fn refused_call(number: libc::c_long) -> Option<Answer> {
    Some(match number {
        // No children: refused, and not noted as missing. ENOSYS, because programs would retry
        // after a limit's error.
        libc::SYS_fork | libc::SYS_vfork => Err(Errno::NOSYS),
        libc::SYS_execve | libc::SYS_execveat => Err(Errno::ACCESS),
        libc::SYS_wait4 | libc::SYS_waitid => Err(Errno::CHILD),
        // Nodes have no extended attributes: programs that copy files do without.
        libc::SYS_setxattr
        | libc::SYS_lsetxattr
        | libc::SYS_fsetxattr
        | libc::SYS_getxattr
        | libc::SYS_lgetxattr
        | libc::SYS_fgetxattr
        | libc::SYS_listxattr
        | libc::SYS_llistxattr
        | libc::SYS_flistxattr
        | libc::SYS_removexattr
        | libc::SYS_lremovexattr
        | libc::SYS_fremovexattr => Err(Errno::NOTSUP),
        libc::SYS_clock_settime | libc::SYS_settimeofday => Err(Errno::PERM),
        // C libraries try it once at each start.
        libc::SYS_rseq => Err(Errno::NOSYS),
        _ => return None,
    })
}
