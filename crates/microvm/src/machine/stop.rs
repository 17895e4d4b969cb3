//! Stopping a guest from outside, without a race.
//!
//! The thread that runs a guest blocks the signal except inside KVM_RUN. A signal that arrives
//! early stays pending and ends the next KVM_RUN at once, so no stop is lost. A handler that does
//! nothing is installed all the same: a stop that comes too late reaches another thread, which it
//! must not end.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use kvm_ioctls::VcpuFd;

/// Delay of a timer whose moment has passed: enough for the guest to leave a place where it cannot
/// be interrupted.
const SOON: Duration = Duration::from_micros(50);

/// The signal that ends KVM_RUN: a real-time signal that no runtime of ours uses.
fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 5
}

/// Stops the guest of a machine, from any thread.
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
    /// Asks the guest to stop, which it does within a scheduling delay. May be called at any time
    /// and repeatedly: a machine that does not run stops as soon as it would run.
    pub fn stop(&self) {
        self.inner.wanted.store(true, Ordering::SeqCst);
        let thread = self.inner.thread.load(Ordering::SeqCst);
        if thread != 0 {
            let process = rustix::process::getpid().as_raw_pid();
            let signal = signal();
            // SAFETY: a signal to a thread of this process. A thread that has ended receives
            // nothing.
            unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) };
        }
    }

    /// Whether a stop was asked for since it was last taken.
    #[must_use]
    pub fn wanted(&self) -> bool {
        self.inner.wanted.load(Ordering::SeqCst)
    }

    /// Withdraws a stop.
    pub fn clear(&self) {
        self.inner.wanted.store(false, Ordering::SeqCst);
    }

    /// Makes stops reach this thread, until the result is dropped.
    pub(crate) fn on_this_thread(&self) -> io::Result<RunGuard<'_>> {
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
        Ok(RunGuard { stopper: self, thread, timer: None })
    }
}

/// Has a [`Stopper`] reach the thread until it is dropped.
pub(crate) struct RunGuard<'a> {
    stopper: &'a Stopper,
    thread: libc::pid_t,
    timer: Option<Timer>,
}

impl RunGuard<'_> {
    /// Whether a stop is wanted.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopper.wanted()
    }

    /// Has KVM_RUN return at this moment, as for a stop, by timer_create(2). One moment at a time.
    ///
    /// # Errors
    /// When the host has no more timers (RLIMIT_SIGPENDING).
    pub(crate) fn interrupt_at(&mut self, moment: Option<Instant>) -> io::Result<()> {
        match (&mut self.timer, moment) {
            (None, None) => Ok(()),
            (Some(timer), _) => timer.set(moment),
            (timer, _) => timer.insert(Timer::new(self.thread)?).set(moment),
        }
    }

    /// KVM_RUN returned, perhaps because of the timer: a moment that is still wanted has to be set
    /// anew.
    pub(crate) fn was_interrupted(&mut self) {
        if let Some(timer) = &mut self.timer {
            timer.set = None;
        }
    }
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        self.stopper.inner.thread.store(0, Ordering::SeqCst);
    }
}

/// A timer that sends the signal to a thread. A signal still pending when it is dropped ends the
/// next KVM_RUN, once.
struct Timer {
    timer: libc::timer_t,
    set: Option<Instant>,
}

impl Timer {
    fn new(thread: libc::pid_t) -> io::Result<Self> {
        // SAFETY: plain numbers and pointers, of which zeros are valid.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal();
        event.sigev_notify_thread_id = thread;
        let mut timer = std::ptr::null_mut();
        // SAFETY: the event and the place for the timer's id outlive the call.
        if unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) } < 0
        {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { timer, set: None })
    }

    fn set(&mut self, moment: Option<Instant>) -> io::Result<()> {
        if self.set == moment {
            return Ok(());
        }
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let left = moment.map(|moment| moment.saturating_duration_since(Instant::now()).max(SOON));
        // None stops the timer.
        let value = left.map_or(zero, |left| libc::timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let times = libc::itimerspec { it_interval: zero, it_value: value };
        // SAFETY: our own timer and valid times; the old ones are not asked for.
        if unsafe { libc::timer_settime(self.timer, 0, &raw const times, std::ptr::null_mut()) } < 0
        {
            return Err(io::Error::last_os_error());
        }
        self.set = moment;
        Ok(())
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: our own timer, deleted once.
        unsafe { libc::timer_delete(self.timer) };
    }
}

/// Takes the pending signal after it ended KVM_RUN.
pub(crate) fn acknowledge() {
    let (wanted, now) = (set(&[signal()]), libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: a valid set and time; nothing is asked about the signal. When none is pending it
    // returns at once.
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
