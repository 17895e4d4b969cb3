//! Where each statement about packages comes from, and which handlers may trust it.
//!
//! Statements come from processes in which packages run, and any of these packages may have made
//! them up; it cannot be told which. So a statement is stored with its *source*, the set of
//! distributions in the process, and is trusted only for handlers that locked every one of them:
//! these run in the handler's own sandboxes anyway. It is the trust rule again: a handler may trust
//! what it may be forked from. A lie reaches only functions that locked the liar.

use std::collections::HashMap;

use crate::import_cache::model::set::Set;

/// Sources that are remembered, at most: each is a set that a zygote was made of.
const MAX_SOURCES: usize = 4096;

/// Statements kept about one subject, at most.
const MAX_STATEMENTS: usize = 8;

/// The number of a source.
pub(crate) type SourceId = u32;

/// All sets of distributions that ever made a statement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    sets: Vec<Set>,
    numbers: HashMap<Set, SourceId>,
}

impl Sources {
    /// The number of the set; none when there are too many sources.
    pub(crate) fn number(&mut self, set: &Set) -> Option<SourceId> {
        if let Some(number) = self.numbers.get(set) {
            return Some(*number);
        }
        if self.sets.len() >= MAX_SOURCES {
            return None;
        }
        let number = SourceId::try_from(self.sets.len()).ok()?;
        self.sets.push(set.clone());
        self.numbers.insert(set.clone(), number);
        Some(number)
    }

    /// The sources that a handler may trust that locked `locked`.
    pub(crate) fn trust(&self, locked: &Set) -> Trust {
        Trust(self.sets.iter().map(|set| set.within(locked)).collect())
    }

    pub(crate) fn set(&self, source: SourceId) -> &Set {
        &self.sets[source as usize]
    }
}

/// By number, whether a source is trusted.
#[derive(Clone, Debug)]
pub(crate) struct Trust(Vec<bool>);

impl Trust {
    pub(crate) fn includes(&self, source: SourceId) -> bool {
        self.0.get(source as usize).is_some_and(|trusted| *trusted)
    }
}

/// Statements about one subject: the last of each source, those first that most handlers may trust.
#[derive(Clone, Debug)]
pub(crate) struct Statements<T>(Vec<(SourceId, T)>);

impl<T> Default for Statements<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Statements<T> {
    /// Stores a statement. When there are too many, the one of the largest set is dropped: the
    /// fewest handlers may trust it, and an attacker who would push out others can only add larger
    /// sets.
    pub(crate) fn record(&mut self, by: SourceId, word: T, sources: &Sources) {
        if let Some((_, said)) = self.0.iter_mut().find(|(source, _)| *source == by) {
            *said = word;
            return;
        }
        let size = |source: SourceId| sources.set(source).len();
        let at = self.0.partition_point(|(source, _)| size(*source) <= size(by));
        self.0.insert(at, (by, word));
        self.0.truncate(MAX_STATEMENTS);
    }

    pub(crate) fn by(&self, source: SourceId) -> Option<&T> {
        self.0.iter().find(|(by, _)| *by == source).map(|(_, word)| word)
    }

    pub(crate) fn trusted<'a>(
        &'a self,
        trust: &'a Trust,
    ) -> impl Iterator<Item = (SourceId, &'a T)> {
        let trusted = self.0.iter().filter(|(source, _)| trust.includes(*source));
        trusted.map(|(source, word)| (*source, word))
    }

    /// A statement by any source: the one of the smallest set.
    pub(crate) fn any(&self) -> Option<&T> {
        self.0.first().map(|(_, word)| word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(members: &[u32]) -> Set {
        members.iter().copied().collect()
    }

    #[test]
    fn a_word_is_believed_by_who_locked_all_that_ran_where_it_was_said() {
        let mut sources = Sources::default();
        let (liar, own) = (set(&[1, 9]), set(&[1, 2]));
        let (by_liar, by_own) = (sources.number(&liar).unwrap(), sources.number(&own).unwrap());
        let mut statements = Statements::default();
        statements.record(by_liar, "lie", &sources);
        statements.record(by_own, "truth", &sources);
        let heard = |locked: &[u32]| {
            let trust = sources.trust(&set(locked));
            statements.trusted(&trust).map(|(_, word)| *word).collect::<Vec<_>>()
        };
        assert_eq!(heard(&[1, 2, 3]), ["truth"]);
        assert_eq!(heard(&[1, 9]), ["lie"]);
        assert_eq!(heard(&[1]), [""; 0]);
    }

    #[test]
    fn many_liars_do_not_push_out_the_word_of_who_runs_alone() {
        let mut sources = Sources::default();
        let alone = sources.number(&set(&[1])).unwrap();
        let mut statements = Statements::default();
        statements.record(alone, "truth", &sources);
        for other in 2..100 {
            let liar = sources.number(&set(&[1, other])).unwrap();
            statements.record(liar, "lie", &sources);
        }
        assert_eq!(statements.any(), Some(&"truth"));
        assert_eq!(statements.0.len(), MAX_STATEMENTS);
        statements.record(alone, "changed", &sources);
        assert_eq!(statements.by(alone), Some(&"changed"));
    }

    #[test]
    fn witnesses_are_not_remembered_without_end() {
        let mut sources = Sources::default();
        let numbers: Vec<_> = (0..5000).map(|at| sources.number(&set(&[at]))).collect();
        assert_eq!(numbers.iter().flatten().count(), MAX_SOURCES);
        assert_eq!(sources.number(&set(&[7])), numbers[7]);
    }
}
