//! The one thread of a process, as a snapshot on disk has it.

use serde::{Deserialize, Serialize};

use super::{Identity, Threads};

use crate::linux::state::ids::FIRST_THREAD;

/// Highest number that a thread of a snapshot can have had: what comes after it are numbers, too.
const MAX_NUMBER: u64 = u32::MAX as u64;

/// What is known of threads where the first one is alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedThreads {
    tells: u64,
    last: u64,
}

impl Threads {
    /// What a snapshot has of them; none where there is another than the first.
    pub(crate) fn to_saved(&self) -> Option<SavedThreads> {
        // Since when it runs, until when a call of its waits and who was passed over is this monitor's matter: it waits for its channel.
        let Self { running, since: _, until: _, others, last, passed: _, repeats: _ } = self;
        let alone = others.is_empty() && running.number == FIRST_THREAD && *last <= MAX_NUMBER;
        alone.then_some(SavedThreads { tells: running.tells, last: *last })
    }

    /// Those of a snapshot; none where it says what cannot be.
    pub(crate) fn of_saved(saved: &SavedThreads) -> Option<Self> {
        let SavedThreads { tells, last } = *saved;
        let running = Identity { number: FIRST_THREAD, tells };
        let threads = Self { running, last, ..Self::default() };
        (FIRST_THREAD..=MAX_NUMBER).contains(&last).then_some(threads)
    }
}
