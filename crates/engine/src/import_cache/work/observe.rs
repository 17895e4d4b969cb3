//! What calls show of their handlers' imports: noted while they are under way, taken in once they were answered.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{ImportCache, number};
use crate::call::Handler;
use crate::import_cache::model::set::Set;
use crate::import_cache::state::cache_state::State;
use crate::import_cache::work::pick::Pick;
use function::VersionId;

/// Modules that a handler may say it has loaded: the largest package sets load some five thousand.
const MOST_MODULES: usize = 20_000;

/// Lessons that wait to be taken in, at most: a handler that was not heard is asked again.
const MOST_LESSONS: usize = 256;

/// Bytes of them, at most: three of the largest that there can be (so many names of 255 bytes are 5.6 MB), and of usual ones
/// as many as may wait.
const MOST_BYTES: usize = 16 << 20;

/// Lessons that wait, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Lessons {
    waiting: VecDeque<Lesson>,
    bytes: usize,
}

impl Lessons {
    /// Puts one behind the others. False: there is no room for it, and it is forgotten.
    fn push(&mut self, lesson: Lesson) -> bool {
        let bytes = self.bytes + lesson.bytes();
        let room = self.waiting.len() < MOST_LESSONS && bytes <= MOST_BYTES;
        if room {
            self.bytes = bytes;
            self.waiting.push_back(lesson);
        }
        room
    }

    fn pop(&mut self) -> Option<Lesson> {
        let lesson = self.waiting.pop_front()?;
        self.bytes -= lesson.bytes();
        Some(lesson)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

/// A handler that went on from a zygote has loaded modules of its packages.
#[derive(Debug)]
pub(crate) struct Lesson {
    handler: VersionId,
    zygote: u64,
    had: Set,
    modules: Vec<String>,
    took: ImportTime,
    /// It tells what a start brings in: one that was to be observed.
    earns: bool,
}

impl Lesson {
    /// What it takes up.
    fn bytes(&self) -> usize {
        let names: usize = self.modules.iter().map(String::capacity).sum();
        let lists =
            self.modules.capacity() * size_of::<String>() + self.had.len() * size_of::<u32>();
        size_of::<Self>() + lists + names
    }
}

/// When a handler imported what it says that it did, and the milliseconds that this took at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ImportTime {
    /// While its code was loaded: that is all that its load did.
    Load(f64),
    /// During its first call, of which imports were some part.
    Call(f64),
}

impl ImportCache {
    /// A handler that went on from there has loaded `modules` of its packages, which took it as long as `took` says. Is
    /// taken in, and acted upon, when no call is under way.
    pub fn learn(
        self: &Arc<Self>,
        handler: &Handler,
        pick: &Pick,
        mut modules: Vec<String>,
        took: ImportTime,
    ) {
        modules.truncate(MOST_MODULES);
        let had = pick.zygote.as_ref().map_or_else(Set::default, |kept| kept.modules.clone());
        let (handler, zygote) = (handler.id.clone(), number(pick.zygote.as_deref()));
        // Of a start that was not to be observed it is known already what it brings in.
        let earns = pick.observe && matches!(took, ImportTime::Load(_));
        let lesson = Lesson { handler, zygote, had, modules, took, earns };
        if self.state().lessons.push(lesson) {
            self.improve();
        }
    }

    /// Takes in what calls have shown since.
    pub(super) fn take_in(&self) {
        // One at a time: calls want the lock as well.
        loop {
            let mut state = self.state();
            let Some(lesson) = state.lessons.pop() else { return };
            state.take_in(&lesson, self.config.zygote_half_life);
        }
    }
}

impl State {
    fn take_in(&mut self, lesson: &Lesson, half_life: f64) {
        let Some(profile) = self.profiles.get_mut(&lesson.handler) else { return };
        let (book, profile) = (Arc::make_mut(&mut self.book), Arc::make_mut(profile));
        let said = lesson.modules.iter();
        let new = said.filter_map(|module| book.piece(&profile.locked, module)).collect();
        profile.learn(lesson.zygote, &lesson.had, &new, lesson.took, book);
        self.missed += profile.saved(&new);
        if lesson.earns {
            self.earn(&lesson.handler, half_life);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_to_be_learnt_is_bounded_in_number_and_bytes_and_makes_room_when_it_was() {
        let lesson = |modules: usize| Lesson {
            handler: VersionId(Arc::from("h")),
            zygote: 0,
            had: Set::default(),
            modules: vec!["m".repeat(255); modules],
            took: ImportTime::Load(1.0),
            earns: true,
        };
        let mut lessons = Lessons::default();
        for _ in 0..2 {
            let large = (0..4).filter(|_| lessons.push(lesson(MOST_MODULES))).count();
            assert_eq!(large, 3);
            assert!(lessons.push(lesson(1)), "there is room for a small one");
            while lessons.pop().is_some() {}
        }
        let small = (0..2 * MOST_LESSONS).filter(|_| lessons.push(lesson(1))).count();
        assert_eq!(small, MOST_LESSONS);
    }
}
