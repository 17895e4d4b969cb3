//! Namespaces, made by helpers of a **single-threaded** process.
//!
//! A user namespace comes into being with a process in it. The helper shares the caller's memory
//! (`CLONE_VM`, so that nothing is copied: 30 µs instead of 150), only sleeps, and is gone when the
//! namespace's descriptor is open.
//!
//! ```text
//!   parent = the initial namespace          parent = another namespace U1, owner = an id inside it
//!   caller: euid := owner, caps kept        caller ─ vfork ► enter(U1) ─ vfork ► ids := owner
//!     └─ clone(NEWUSER) ► sleeper                     │ writes sleeper's maps      └─ clone(NEWUSER) ► sleeper
//!   caller: writes sleeper's maps            (the parent namespace must write them)
//! ```

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::process::{as_effective_user_with_capabilities, exit_now, reap};

/// Ids of a new user namespace: `inside..inside+count` are `outside..` of its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdMap {
    /// First id inside.
    pub inside: u32,
    /// First id in the parent namespace.
    pub outside: u32,
    /// Number of ids in the range.
    pub count: u32,
}

/// The parent of a new user namespace.
#[derive(Clone, Copy, Debug)]
pub enum Parent<'a> {
    /// The initial user namespace.
    Initial,
    /// The user namespace of this descriptor.
    Inside(BorrowedFd<'a>),
}

/// Makes a user namespace that is owned by `owner` (an id of the parent namespace): that user may
/// enter it and has every capability in it. The calling process must have one thread, uid 0 and all
/// capabilities.
///
/// # Errors
/// As `clone(2)`, `setns(2)`; ENOSPC when `user.max_user_namespaces` is reached.
pub fn user_namespace(parent: Parent<'_>, owner: u32, map: IdMap) -> io::Result<OwnedFd> {
    let sleeper = match parent {
        Parent::Initial => below_initial(owner, map)?,
        Parent::Inside(namespace) => below(namespace, owner, map)?,
    };
    let namespace = fs::File::open(format!("/proc/{}/ns/user", sleeper.0))?;
    Ok(namespace.into())
}

/// Moves the calling process, which must have one thread, into new namespaces of these kinds
/// (`CLONE_NEW*`).
///
/// # Errors
/// As `unshare(2)`.
pub fn unshare(kinds: libc::c_int) -> io::Result<()> {
    // SAFETY: only kinds of namespaces: no thread or descriptor of this process depends on the old
    // ones.
    let result = unsafe { libc::unshare(kinds & NAMESPACES) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

const NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER;

/// A process that only sleeps; killed and reaped when dropped.
struct Sleeper(libc::pid_t);

impl Drop for Sleeper {
    fn drop(&mut self) {
        // SAFETY: our own child, not yet waited for: the number cannot be another's.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        reap(self.0);
    }
}

const STACK: usize = 16 << 10;

#[repr(C, align(64))]
struct Stack([u8; STACK]);

impl Stack {
    fn new() -> Box<Self> {
        Box::new(Self([0; STACK]))
    }

    fn top(&mut self) -> *mut libc::c_void {
        self.0.as_mut_ptr().wrapping_add(STACK).cast()
    }
}

/// Clones a process that shares this one's memory and runs `entry(argument)` on `stack`.
///
/// # Safety
/// The stack and what `argument` points at must outlive the child (or be used by it only while
/// `CLONE_VFORK` holds the caller), and `entry` may only make system calls.
unsafe fn clone_sharing(
    entry: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    stack: &mut Stack,
    flags: libc::c_int,
    argument: *mut libc::c_void,
) -> libc::pid_t {
    let flags = flags | libc::CLONE_VM | libc::CLONE_FILES | libc::SIGCHLD;
    // SAFETY: the caller's promise; the stack grows down from its top.
    unsafe { libc::clone(entry, stack.top(), flags, argument) }
}

/// How often a sleeper checks whether its maker still runs.
const NAP: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Sleeps while it is its maker's child. A maker that is killed cannot end its sleeper, which would
/// hold the maker's descriptors open, locks among them. The argument is the maker's pid.
extern "C" fn sleep_beside(maker: *mut libc::c_void) -> libc::c_int {
    // SAFETY: takes nothing. Raw calls, which cannot fail: errno belongs to the caller.
    while unsafe { libc::syscall(libc::SYS_getppid) } == maker.addr() as libc::c_long {
        let mut nap = NAP;
        // SAFETY: no descriptors; the kernel writes the remaining time to this stack.
        unsafe { libc::syscall(libc::SYS_ppoll, 0, 0, &raw mut nap, 0, 8) };
    }
    exit_now(0)
}

/// This process's pid as the argument of [`sleep_beside`].
fn as_maker() -> *mut libc::c_void {
    std::ptr::without_provenance_mut(std::process::id() as usize)
}

thread_local! {
    /// The sleeper's stack outlives every call: a sleeper is always reaped before the next is made.
    static SLEEPER_STACK: std::cell::RefCell<Box<Stack>> = std::cell::RefCell::new(Stack::new());
}

fn below_initial(owner: u32, map: IdMap) -> io::Result<Sleeper> {
    let sleeper = as_effective_user_with_capabilities(owner, || {
        SLEEPER_STACK.with_borrow_mut(|stack| {
            // SAFETY: the stack is static to the thread; the sleeper makes one system call in a
            // loop.
            let pid =
                unsafe { clone_sharing(sleep_beside, stack, libc::CLONE_NEWUSER, as_maker()) };
            if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(Sleeper(pid)) }
        })
    })??;
    let line = format!("{} {} {}\n", map.inside, map.outside, map.count);
    for file in ["uid_map", "gid_map"] {
        fs::write(format!("/proc/{}/{file}", sleeper.0), &line)?;
    }
    Ok(sleeper)
}

/// Shared memory by which the helpers of [`below`] and their maker talk.
struct Inside {
    maker: *mut libc::c_void,
    parent: libc::c_int,
    owner: u32,
    map: [u8; 64],
    map_length: usize,
    proc_dir: libc::c_int,
    second_stack: Box<Stack>,
    sleeper_stack: *mut libc::c_void,
    owner_pid: libc::pid_t,
    sleeper: libc::pid_t,
    errno: libc::c_int,
}

fn below(parent: BorrowedFd<'_>, owner: u32, map: IdMap) -> io::Result<Sleeper> {
    let proc_dir = fs::File::open("/proc")?;
    let line = format!("{} {} {}\n", map.inside, map.outside, map.count);
    let mut bytes = [0; 64];
    bytes[..line.len()].copy_from_slice(line.as_bytes());
    let mut stack = Stack::new();
    let mut shared = Inside {
        maker: as_maker(),
        parent: parent.as_raw_fd(),
        owner,
        map: bytes,
        map_length: line.len(),
        proc_dir: proc_dir.as_fd().as_raw_fd(),
        second_stack: Stack::new(),
        sleeper_stack: SLEEPER_STACK.with_borrow_mut(|stack| stack.top()),
        owner_pid: 0,
        sleeper: 0,
        errno: 0,
    };
    // SAFETY: CLONE_VFORK holds this process until the helper is gone, so stack and `shared`
    // outlive it; the helper makes system calls only, through raw calls that do not touch errno of
    // the caller after it resumes.
    let helper = unsafe {
        clone_sharing(enter_parent, &mut stack, libc::CLONE_VFORK, (&raw mut shared).cast())
    };
    if helper < 0 {
        return Err(io::Error::last_os_error());
    }
    reap(helper);
    // The second helper and the sleeper are this process's children too (CLONE_PARENT).
    if shared.owner_pid > 0 {
        reap(shared.owner_pid);
    }
    let sleeper = (shared.sleeper > 0).then(|| Sleeper(shared.sleeper));
    match sleeper {
        Some(sleeper) if shared.errno == 0 => Ok(sleeper),
        _ => Err(io::Error::from_raw_os_error(shared.errno.max(1))),
    }
}

fn errno() -> libc::c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Runs in the first helper, in the maker's memory: enters the parent namespace, and writes the
/// sleeper's maps there.
extern "C" fn enter_parent(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the maker passed its `Inside` and is held until this process is gone.
    let shared = unsafe { &mut *argument.cast::<Inside>() };
    // SAFETY: plain numbers.
    if unsafe { libc::setns(shared.parent, libc::CLONE_NEWUSER) } != 0 {
        shared.errno = errno();
        exit_now(1);
    }
    let again = argument;
    // SAFETY: CLONE_VFORK holds this process until the second helper is gone; its stack lies in
    // `shared`.
    let owner = unsafe {
        clone_sharing(
            become_owner,
            &mut shared.second_stack,
            libc::CLONE_VFORK | libc::CLONE_PARENT,
            again,
        )
    };
    if owner < 0 {
        shared.errno = errno();
        exit_now(1);
    }
    shared.owner_pid = owner;
    if shared.sleeper > 0 {
        for file in [&b"uid_map"[..], b"gid_map"] {
            if let Err(number) = write_map(shared, file) {
                shared.errno = number;
            }
        }
    }
    exit_now(0)
}

/// Runs in the second helper: takes the owner's id (the parent namespace maps no 0, so capabilities
/// stay) and clones the sleeper into the new namespace, as a child of the first helper's parent.
extern "C" fn become_owner(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the first helper passed it on and is held until this process is gone.
    let shared = unsafe { &mut *argument.cast::<Inside>() };
    let id = shared.owner;
    // SAFETY: plain numbers, for this process alone.
    let group = unsafe { libc::syscall(libc::SYS_setresgid, id, id, id) };
    // SAFETY: as above.
    if group != 0 || unsafe { libc::syscall(libc::SYS_setresuid, id, id, id) } != 0 {
        shared.errno = errno();
        exit_now(1);
    }
    // Not vfork: the sleeper stays. It belongs to the maker, as this helper does (CLONE_PARENT),
    // and the maker reaps both.
    let flags = libc::CLONE_VM
        | libc::CLONE_FILES
        | libc::CLONE_PARENT
        | libc::CLONE_NEWUSER
        | libc::SIGCHLD;
    // SAFETY: the sleeper's stack is static to the maker's thread.
    let pid = unsafe { libc::clone(sleep_beside, shared.sleeper_stack, flags, shared.maker) };
    if pid < 0 {
        shared.errno = errno();
        exit_now(1);
    }
    shared.sleeper = pid;
    exit_now(0)
}

/// Writes the sleeper's map with system calls alone: `/proc/<pid>/<file>`, number formatted by
/// hand.
fn write_map(shared: &Inside, file: &[u8]) -> Result<(), libc::c_int> {
    let mut path = [0u8; 32];
    let mut digits = [0u8; 12];
    let mut at = digits.len();
    let mut rest = shared.sleeper.unsigned_abs();
    while rest > 0 || at == digits.len() {
        at -= 1;
        digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
    let number = &digits[at..];
    path[..number.len()].copy_from_slice(number);
    path[number.len()] = b'/';
    path[number.len() + 1..number.len() + 1 + file.len()].copy_from_slice(file);
    // SAFETY: the path is NUL-terminated: the buffer is longer than anything written to it.
    let fd = unsafe {
        libc::openat(shared.proc_dir, path.as_ptr().cast(), libc::O_WRONLY | libc::O_CLOEXEC)
    };
    if fd < 0 {
        return Err(errno());
    }
    // SAFETY: just opened; nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the buffer is as long as said.
    let written =
        unsafe { libc::write(fd.as_raw_fd(), shared.map.as_ptr().cast(), shared.map_length) };
    if written < 0 { Err(errno()) } else { Ok(()) }
}
