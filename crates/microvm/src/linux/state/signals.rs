//! A process's actions, masks and pending signals. Plain data.

mod saved;

pub(crate) use saved::SavedSignals;

pub(crate) const MAX_SIGNAL: usize = 64;
/// Bytes of the smallest alternate stack.
pub(crate) const LEAST_STACK: u64 = 2048;
pub(crate) const ILL: usize = 4;
pub(crate) const TRAP: usize = 5;
pub(crate) const BUS: usize = 7;
pub(crate) const FPE: usize = 8;
pub(crate) const KILL: usize = 9;
/// Sent for a write to a pipe without a reader.
pub(crate) const PIPE: usize = 13;
pub(crate) const SEGV: usize = 11;
pub(crate) const ALRM: usize = 14;
/// Sent when the limit of processor time is reached: `RLIMIT_CPU`.
pub(crate) const XCPU: usize = 24;
/// Sent when a file would become too long: `RLIMIT_FSIZE`.
pub(crate) const XFSZ: usize = 25;
pub(crate) const STOP: usize = 19;

/// Actions, and the running thread's mask, stack and pending signals.
#[derive(Clone, Debug)]
pub(crate) struct Signals {
    pub(crate) actions: [Action; MAX_SIGNAL + 1],
    pub(crate) mask: u64,
    pub(crate) stack: AlternateStack,
    /// Pending signals of the process.
    pub(crate) waiting: u64,
    /// Pending signals of the running thread.
    pub(crate) waiting_own: u64,
}

/// The addressee of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addressee {
    /// The process: any thread that does not block it.
    Process,
    /// The running thread alone.
    Thread,
}

/// The signals of one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnSignals {
    mask: u64,
    stack: AlternateStack,
    waiting: u64,
}

impl OwnSignals {
    /// The signals of a thread that this one starts: its mask alone.
    pub(crate) fn of_child(self) -> Self {
        Self { stack: AlternateStack::default(), waiting: 0, ..self }
    }

    /// Whether the thread blocks a signal.
    pub(crate) fn block(&self, number: usize) -> bool {
        self.mask & bit(number) != 0
    }

    /// Makes a signal pending.
    pub(crate) fn keep(&mut self, number: usize) {
        self.waiting |= bit(number);
    }
}

impl Signals {
    /// The running thread's signals.
    pub(crate) fn own(&self) -> OwnSignals {
        OwnSignals { mask: self.mask, stack: self.stack, waiting: self.waiting_own }
    }

    /// Loads the signals of the thread that runs next.
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
    /// Takes the first pending signal that is neither blocked nor ignored, the thread's before the
    /// process's, with its addressee.
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

/// Whether a signal with this handler is ignored.
pub(crate) fn ignored(number: usize, handler: u64) -> bool {
    // SIG_IGN; or the default of SIGCHLD, SIGCONT, SIGURG and SIGWINCH.
    handler == 1 || handler == 0 && matches!(number, 17 | 18 | 23 | 28)
}

pub(crate) fn bit(signal: usize) -> u64 {
    1 << (signal - 1)
}
