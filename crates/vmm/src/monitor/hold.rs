//! Keeps a clone from running between two calls, as the freezer keeps a container.
//!
//! ```text
//!            Rest                     grace is over, and it is not idle
//!   called ───────► may run on a bit ─────────────────────────────────► held: it does not run
//!     ▲   Go          │ Go                                                │ Go
//!     └───────────────┴───────────────────────────────────────────────────┘      its channel closes: it ends
//! ```
//!
//! A clone that waits for its channel does not run, and nearly all clones wait there before the
//! grace is over. Any other clone runs without a call that bounds it: it answered and computes on,
//! or was reset to code that computes when it wakes.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use microvm::machine::Stopper;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::conversation::Channel;

/// How long a clone may run after its call: enough for the rest of a reply, a reset and its waking.
const GRACE: Duration = Duration::from_millis(50);

/// Whether a clone may run; shared by its thread and the main thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Hold(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    stopper: Stopper,
}

#[derive(Debug, Default)]
struct State {
    /// Whether it waits for its channel.
    idle: bool,
    held: bool,
    /// Whether its channel has closed.
    over: bool,
}

impl Hold {
    /// The stopper of its machines.
    pub(super) fn stopper(&self) -> Stopper {
        self.0.stopper.clone()
    }

    /// From the main thread: ends the clone wherever it is.
    fn end(&self) {
        let mut state = self.state();
        state.over = true;
        self.0.changed.notify_all();
        self.0.stopper.stop();
    }

    /// From the main thread: holds the clone unless it is idle. `unread`: it will not be idle for
    /// long.
    fn take(&self, unread: bool) {
        let mut state = self.state();
        if state.idle && !unread {
            return;
        }
        state.held = true;
        if !state.idle {
            self.0.stopper.stop();
        }
    }

    /// From the main thread: lets the clone run.
    fn release(&self) {
        self.state().held = false;
        self.0.changed.notify_all();
    }

    /// On the clone's thread: waits for bytes to read, and until it may run with them. 0: its
    /// channel has closed.
    pub(super) fn read(&self, channel: &Channel, buffer: &mut [u8]) -> usize {
        self.state().idle = true;
        let count = channel.read(buffer);
        let mut state = self.state();
        state.idle = false;
        if self.wait(state) { count } else { 0 }
    }

    /// On the clone's thread, after a stop: waits until it may run. False: its channel has closed.
    pub(super) fn outlast(&self) -> bool {
        let state = self.state();
        // Under the lock, so that a later stop is not forgotten.
        self.0.stopper.clear();
        self.wait(state)
    }

    fn wait(&self, mut state: MutexGuard<'_, State>) -> bool {
        while state.held && !state.over {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.over
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two operations on it.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A clone as the main thread sees it.
#[derive(Debug)]
pub(super) struct WatchedClone {
    number: u64,
    channel: Channel,
    hold: Hold,
    /// When its grace is over.
    due: Option<Instant>,
}

impl WatchedClone {
    pub(super) fn new(number: u64, channel: Channel, hold: Hold) -> Self {
        Self { number, channel, hold, due: None }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// For waiting until its channel closes, and for nothing else: the bytes are the clone's.
    pub(super) fn closing(&self) -> PollFd<'_> {
        PollFd::new(self.channel.socket(), PollFlags::RDHUP)
    }

    /// Ends the clone, whose channel has closed.
    pub(super) fn end(&self) {
        self.hold.end();
    }

    /// Starts its grace: its call is over.
    pub(super) fn rest(&mut self) {
        self.due = Some(Instant::now() + GRACE);
    }

    /// Ends its grace: a call follows.
    pub(super) fn go(&mut self) {
        self.due = None;
        self.hold.release();
    }

    /// Holds it if its grace is over.
    pub(super) fn look(&mut self, now: Instant) {
        if self.due.is_some_and(|due| due <= now) {
            self.due = None;
            self.hold.take(self.has_unread());
        }
    }

    /// Time left of its grace.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        self.due.map(|due| due.saturating_duration_since(now))
    }

    fn has_unread(&self) -> bool {
        let mut fds = [PollFd::new(self.channel.socket(), PollFlags::IN)];
        // If that cannot be told it is held, which costs nothing: its next call releases it.
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_err()
            || fds[0].revents().contains(PollFlags::IN)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn channel() -> (Channel, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Channel::new(ours.into()), theirs)
    }

    #[test]
    fn one_that_was_stopped_waits_until_its_next_call() {
        let hold = Hold::default();
        hold.take(false);
        assert!(hold.stopper().wanted());
        let waiting = hold.clone();
        let thread = std::thread::spawn(move || waiting.outlast());
        while hold.stopper().wanted() {
            std::thread::yield_now();
        }
        assert!(!thread.is_finished());
        hold.release();
        assert!(thread.join().unwrap());
        // And runs on, since it was told to stop once.
        assert!(!hold.stopper().wanted());
    }

    #[test]
    fn a_clone_whose_channel_closed_ends_held_or_not() {
        let hold = Hold::default();
        hold.take(false);
        hold.end();
        assert!(!hold.outlast());
        let hold = Hold::default();
        hold.end();
        assert!(hold.stopper().wanted());
        assert!(!hold.outlast());
    }

    #[test]
    fn one_that_is_idle_is_left_alone_unless_it_has_something_to_read() {
        let hold = Hold::default();
        let (channel, mut other) = channel();
        let mut watched = WatchedClone::new(1, channel.clone(), hold.clone());
        hold.state().idle = true;
        let later = Instant::now() + 2 * GRACE;
        watched.rest();
        watched.look(later);
        assert!(!hold.state().held);
        other.write_all(b"x").unwrap();
        watched.look(later);
        assert!(!hold.state().held, "it was not told to rest");
        watched.rest();
        watched.look(Instant::now());
        assert!(!hold.state().held, "its grace is not over");
        watched.look(later);
        assert!(hold.state().held);
        // It reads what is there, and runs with it only when it may.
        let reading = std::thread::spawn({
            let hold = hold.clone();
            move || hold.read(&channel, &mut [0; 8])
        });
        watched.go();
        assert_eq!(reading.join().unwrap(), 1);
        assert!(!hold.stopper().wanted());
    }
}
