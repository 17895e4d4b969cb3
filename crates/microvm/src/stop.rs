//! Stopping a guest from outside, without a race.
//!
//! The signal is blocked in the thread that runs a guest, except inside KVM_RUN. One that arrives early stays pending
//! and ends the next KVM_RUN at once; so no stop is ever lost. A handler that does nothing is there all the same: a stop
//! that comes too late finds another thread, which it must not end.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Once};

use kvm_ioctls::VcpuFd;

/// Ends KVM_RUN. A real-time signal that no runtime of ours uses.
fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 5
}

/// Stops whatever guest a machine runs, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Stopper {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The thread that runs the guest; 0 while none does.
    thread: AtomicI32,
    wanted: AtomicBool,
}

impl Stopper {
    /// Asks the guest to stop; it does within a scheduling delay. Any time, any number of times: a machine that is not
    /// running stops as soon as it would run.
    pub fn stop(&self) {
        self.inner.wanted.store(true, Ordering::SeqCst);
        let thread = self.inner.thread.load(Ordering::SeqCst);
        if thread != 0 {
            let process = rustix::process::getpid().as_raw_pid();
            let signal = signal();
            // SAFETY: a signal to a thread of this process. Should it have ended a moment ago, nobody gets it.
            unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) };
        }
    }

    /// Whether a stop was asked for since it was last taken.
    #[must_use]
    pub fn wanted(&self) -> bool {
        self.inner.wanted.load(Ordering::SeqCst)
    }

    /// Forgets a stop that was asked for.
    pub fn clear(&self) {
        self.inner.wanted.store(false, Ordering::SeqCst);
    }

    /// Makes stops reach this thread, until the result is dropped.
    pub(crate) fn on_this_thread(&self) -> io::Result<Running<'_>> {
        static HARMLESS: Once = Once::new();
        HARMLESS.call_once(make_harmless);
        let blocked = set(&[signal()]);
        // SAFETY: a valid set; the old one is not asked for.
        let failed =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &blocked, std::ptr::null_mut()) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        // SAFETY: takes no arguments.
        let thread = unsafe { libc::gettid() };
        self.inner.thread.store(thread, Ordering::SeqCst);
        Ok(Running(self))
    }
}

/// While it lives, a [`Stopper`] reaches the thread.
pub(crate) struct Running<'a>(&'a Stopper);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.inner.thread.store(0, Ordering::SeqCst);
    }
}

/// Takes the pending signal after KVM_RUN was interrupted.
pub(crate) fn acknowledge() {
    let (wanted, now) = (set(&[signal()]), libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: a valid set and time; nothing is asked about the signal. When none is pending it returns at once.
    unsafe { libc::sigtimedwait(&wanted, std::ptr::null_mut(), &now) };
}

/// Lets the signal through inside KVM_RUN, and only there.
pub(crate) fn only_in_guest(vcpu: &VcpuFd) -> io::Result<()> {
    const KVM_SET_SIGNAL_MASK: libc::c_ulong = 0x4004_ae8b;
    #[repr(C)]
    struct Mask {
        length: u32,
        signals: [u8; 8],
    }
    let mut blocked = set(&[]);
    // SAFETY: changes nothing; writes the thread's own mask.
    let failed =
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut blocked) };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    let mut signals = 0_u64;
    for number in 1..=64 {
        // SAFETY: a valid set.
        let is_blocked = unsafe { libc::sigismember(&raw const blocked, number) } == 1;
        if is_blocked && number != signal() {
            signals |= 1 << (number - 1);
        }
    }
    let mask = Mask { length: 8, signals: signals.to_ne_bytes() };
    // SAFETY: the mask is as long as it says.
    if unsafe { libc::ioctl(vcpu.as_raw_fd(), KVM_SET_SIGNAL_MASK, &raw const mask) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn make_harmless() {
    extern "C" fn nothing(_: libc::c_int) {}
    let (handler, mask) = (nothing as extern "C" fn(libc::c_int) as libc::sighandler_t, set(&[]));
    let action = libc::sigaction {
        sa_sigaction: handler,
        sa_mask: mask,
        sa_flags: libc::SA_RESTART,
        sa_restorer: None,
    };
    // SAFETY: a valid action whose handler touches nothing; the old one is not asked for.
    let failed = unsafe { libc::sigaction(signal(), &raw const action, std::ptr::null_mut()) };
    debug_assert_eq!(failed, 0);
}

fn set(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: writes the whole set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: initialised by the line above.
    let mut set = unsafe { set.assume_init() };
    for number in signals {
        // SAFETY: a valid set; an invalid number is refused.
        unsafe { libc::sigaddset(&raw mut set, *number) };
    }
    set
}
