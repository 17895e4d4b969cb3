//! What a process wants done about signals, and which ones wait. Plain data.

mod saved;

pub(crate) use saved::SavedSignals;

pub(crate) const MAX_SIGNAL: usize = 64;
/// Bytes of an alternate stack at least.
pub(crate) const LEAST_STACK: u64 = 2048;
pub(crate) const ILL: usize = 4;
pub(crate) const TRAP: usize = 5;
pub(crate) const BUS: usize = 7;
pub(crate) const FPE: usize = 8;
pub(crate) const KILL: usize = 9;
/// Sent to whoever writes to a pipe that nobody reads.
pub(crate) const PIPE: usize = 13;
pub(crate) const SEGV: usize = 11;
pub(crate) const ALRM: usize = 14;
/// Sent where the processor's time is over: `RLIMIT_CPU`.
pub(crate) const XCPU: usize = 24;
/// Sent where a file would be too long: `RLIMIT_FSIZE`.
pub(crate) const XFSZ: usize = 25;
pub(crate) const STOP: usize = 19;

/// What a process wants done about signals.
#[derive(Clone, Debug)]
pub(crate) struct Signals {
    pub(crate) actions: [Action; MAX_SIGNAL + 1],
    pub(crate) mask: u64,
    pub(crate) stack: AlternateStack,
    /// Sent to the process while they were blocked.
    pub(crate) waiting: u64,
    /// Sent to the running thread while they were blocked.
    pub(crate) waiting_own: u64,
}

/// Whom a signal is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addressee {
    /// Whichever thread does not block it.
    Process,
    /// The running one.
    Thread,
}

/// What of it is a thread's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnSignals {
    mask: u64,
    stack: AlternateStack,
    waiting: u64,
}

impl OwnSignals {
    /// As a thread begins that was started where these are: with its mask alone.
    pub(crate) fn of_child(self) -> Self {
        Self { stack: AlternateStack::default(), waiting: 0, ..self }
    }

    /// Whether the thread blocks a signal.
    pub(crate) fn block(&self, number: usize) -> bool {
        self.mask & bit(number) != 0
    }

    /// A signal waits for it from now on.
    pub(crate) fn keep(&mut self, number: usize) {
        self.waiting |= bit(number);
    }
}

impl Signals {
    /// What is the running thread's own.
    pub(crate) fn own(&self) -> OwnSignals {
        OwnSignals { mask: self.mask, stack: self.stack, waiting: self.waiting_own }
    }

    /// Another thread runs.
    pub(crate) fn set_own(&mut self, OwnSignals { mask, stack, waiting }: OwnSignals) {
        (self.mask, self.stack, self.waiting_own) = (mask, stack, waiting);
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Action {
    pub(crate) handler: u64,
    pub(crate) flags: u64,
    pub(crate) restorer: u64,
    pub(crate) mask: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AlternateStack {
    pub(crate) start: u64,
    pub(crate) length: u64,
}

impl Default for Signals {
    fn default() -> Self {
        let actions = [Action::default(); MAX_SIGNAL + 1];
        Self { actions, mask: 0, stack: AlternateStack::default(), waiting: 0, waiting_own: 0 }
    }
}

impl AlternateStack {
    pub(crate) fn holds(self, address: u64) -> bool {
        self.length > 0 && address.wrapping_sub(self.start) < self.length
    }
}

impl Signals {
    /// The first that waits, is not blocked any more, and is not ignored: the thread's own before the process's; and whose it
    /// is. It waits no longer.
    pub(crate) fn next(&mut self) -> Option<(Addressee, usize)> {
        loop {
            let free = !self.mask;
            let own = self.waiting_own & free != 0;
            let waiting = if own { &mut self.waiting_own } else { &mut self.waiting };
            let ready = *waiting & free;
            // Bit 0 is signal 1.
            let number = (ready != 0).then(|| ready.trailing_zeros() as usize + 1)?;
            *waiting &= !bit(number);
            if !ignored(number, self.actions[number].handler) {
                return Some((if own { Addressee::Thread } else { Addressee::Process }, number));
            }
        }
    }
}

/// Whether a signal is ignored that is handled like this.
pub(crate) fn ignored(number: usize, handler: u64) -> bool {
    // Children, windows, continuation, urgent data: unless somebody wants them.
    handler == 1 || handler == 0 && matches!(number, 17 | 18 | 23 | 28)
}

pub(crate) fn bit(signal: usize) -> u64 {
    1 << (signal - 1)
}
