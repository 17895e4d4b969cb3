//! What calls have shown of their handlers' imports and is not applied yet: plain data.

use std::collections::VecDeque;

use function::VersionId;

use crate::import_cache::model::import_time::ImportTime;
use crate::import_cache::model::set::Set;

/// Modules that a handler may report; the largest package sets load some five thousand.
pub(crate) const MAX_MODULES: usize = 20_000;

/// Observations that may wait; a handler whose observation was dropped is observed again.
const MAX_OBSERVATIONS: usize = 256;

/// Bytes that they may take: three of the largest possible (20 000 names of 255 bytes are 5.6 MB),
/// and as many usual ones as may wait.
const MAX_BYTES: usize = 16 << 20;

/// Observations that wait, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct ObservationQueue {
    waiting: VecDeque<Observation>,
    bytes: usize,
}

impl ObservationQueue {
    /// Appends one. False: there is no room, and it is dropped.
    pub(crate) fn push(&mut self, observation: Observation) -> bool {
        let bytes = self.bytes + observation.bytes();
        let room = self.waiting.len() < MAX_OBSERVATIONS && bytes <= MAX_BYTES;
        if room {
            self.bytes = bytes;
            self.waiting.push_back(observation);
        }
        room
    }

    pub(crate) fn pop(&mut self) -> Option<Observation> {
        let observation = self.waiting.pop_front()?;
        self.bytes -= observation.bytes();
        Some(observation)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

/// Modules that a handler loaded from its packages after it was forked from a zygote.
#[derive(Debug)]
pub(crate) struct Observation {
    pub(crate) handler: VersionId,
    pub(crate) zygote: u64,
    pub(crate) had: Set,
    pub(crate) modules: Vec<String>,
    pub(crate) took: ImportTime,
    /// Its start is credited when it is applied: see
    /// [`spending`](crate::import_cache::model::spending).
    pub(crate) credits: bool,
}

impl Observation {
    /// Bytes that it takes.
    fn bytes(&self) -> usize {
        let names: usize = self.modules.iter().map(String::capacity).sum();
        let lists =
            self.modules.capacity() * size_of::<String>() + self.had.len() * size_of::<u32>();
        size_of::<Self>() + lists + names
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_waits_to_be_learnt_is_bounded_in_number_and_bytes_and_makes_room_when_it_was() {
        let observation = |modules: usize| Observation {
            handler: VersionId(Arc::from("h")),
            zygote: 0,
            had: Set::default(),
            modules: vec!["m".repeat(255); modules],
            took: ImportTime::Load(1.0),
            credits: true,
        };
        let mut observations = ObservationQueue::default();
        for _ in 0..2 {
            let large = (0..4).filter(|_| observations.push(observation(MAX_MODULES))).count();
            assert_eq!(large, 3);
            assert!(observations.push(observation(1)), "there is room for a small one");
            while observations.pop().is_some() {}
        }
        let small = (0..2 * MAX_OBSERVATIONS).filter(|_| observations.push(observation(1))).count();
        assert_eq!(small, MAX_OBSERVATIONS);
    }
}
