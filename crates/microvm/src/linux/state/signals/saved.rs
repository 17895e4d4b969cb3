//! Signals in a snapshot on disk.

use serde::{Deserialize, Serialize};

use super::{Action, AlternateStack, KILL, LEAST_STACK, MAX_SIGNAL, STOP, Signals, bit};

/// Actions, mask, alternate stack and pending signals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedSignals {
    /// Handler, flags, restorer and mask, by number.
    actions: Vec<[u64; 4]>,
    mask: u64,
    /// Start and length, in bytes.
    stack: [u64; 2],
    /// Of the process, and of the thread.
    waiting: [u64; 2],
}

impl Signals {
    /// The signals for a snapshot.
    pub(crate) fn to_saved(&self) -> SavedSignals {
        let Self { actions, mask, stack, waiting, waiting_own } = self;
        let fields = |it: &Action| [it.handler, it.flags, it.restorer, it.mask];
        let actions = actions.iter().map(fields).collect();
        let (mask, waiting) = (*mask, [*waiting, *waiting_own]);
        let stack = [stack.start, stack.length];
        SavedSignals { actions, mask, stack, waiting }
    }

    /// A snapshot's signals; none if no process could have set them.
    pub(crate) fn of_saved(saved: &SavedSignals) -> Option<Self> {
        let SavedSignals { actions, mask, stack: [start, length], waiting } = saved;
        let blockable = !(bit(KILL) | bit(STOP));
        let (mask, [waiting, waiting_own]) = (mask & blockable, waiting.map(|it| it & blockable));
        let mut signals = Self { mask, waiting, waiting_own, ..Self::default() };
        if actions.len() != MAX_SIGNAL + 1 || !matches!(*length, 0 | LEAST_STACK..) {
            return None;
        }
        signals.stack = AlternateStack { start: *start, length: *length };
        let settable = (0..).zip(actions).filter(|(number, _)| !matches!(*number, 0 | KILL | STOP));
        for (number, &[handler, flags, restorer, mask]) in settable {
            signals.actions[number] = Action { handler, flags, restorer, mask };
        }
        Some(signals)
    }
}
