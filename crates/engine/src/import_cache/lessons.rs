//! What calls show of their handlers' imports: noted while they are under way, taken in once they were answered.

use std::sync::Arc;

use super::picking::Pick;
use super::set::Set;
use super::state::State;
use super::{ImportCache, number};
use crate::call::{Handler, HandlerId};

/// Modules that a handler may say it has loaded: the largest package sets load some five thousand.
const MOST_MODULES: usize = 20_000;

/// Lessons that wait to be taken in, at most: a handler that was not heard is asked again.
const MOST_LESSONS: usize = 256;

/// A handler that went on from a zygote has loaded modules of its packages.
#[derive(Debug)]
pub(super) struct Lesson {
    handler: HandlerId,
    zygote: u64,
    had: Set,
    modules: Vec<String>,
    took: ImportTime,
    /// It tells what a start brings in: one that was to be observed.
    earns: bool,
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
        {
            let mut state = self.state();
            if state.lessons.len() >= MOST_LESSONS {
                return;
            }
            state.lessons.push_back(lesson);
        }
        self.improve();
    }

    /// Takes in what calls have shown since.
    pub(super) fn take_in(&self) {
        // One at a time: calls want the lock as well.
        loop {
            let mut state = self.state();
            let Some(lesson) = state.lessons.pop_front() else { return };
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
