//! The only thread of a process, in a snapshot on disk.

use serde::{Deserialize, Serialize};

use super::{Identity, Threads};

use crate::linux::state::ids::FIRST_THREAD;

/// Highest thread number in a snapshot, so that later ones still fit.
const MAX_NUMBER: u64 = u32::MAX as u64;

/// The thread's futex, and the highest number so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedThreads {
    tells: u64,
    last: u64,
}

impl Threads {
    /// The thread for a snapshot; none if there are others.
    pub(crate) fn to_saved(&self) -> Option<SavedThreads> {
        // Turns and deadlines are of this run alone: the process waits for its channel.
        let Self { running, since: _, until: _, others, last, passed: _, repeats: _ } = self;
        let alone = others.is_empty() && running.number == FIRST_THREAD && *last <= MAX_NUMBER;
        alone.then_some(SavedThreads { tells: running.tells, last: *last })
    }

    /// A snapshot's thread; none if its numbers are impossible.
    pub(crate) fn of_saved(saved: &SavedThreads) -> Option<Self> {
        let SavedThreads { tells, last } = *saved;
        let running = Identity { number: FIRST_THREAD, tells };
        let threads = Self { running, last, ..Self::default() };
        (FIRST_THREAD..=MAX_NUMBER).contains(&last).then_some(threads)
    }
}
