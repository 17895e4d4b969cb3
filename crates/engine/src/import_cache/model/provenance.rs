//! Who said what, and who believes it.
//!
//! What is known of packages was said by processes in which packages run, and such a process says what it likes of all that
//! it imports. Nobody can tell which of them spoke. So a word is kept with its *witness*, the set of distributions that
//! ran where it was said, and is believed only for whoever locked every one of these: they run in its own sandboxes
//! anyway. It is the trust rule once more: whom a zygote may serve may believe what it says. A lie then reaches only
//! functions that locked the liar.

use std::collections::HashMap;

use crate::import_cache::model::set::Set;

/// Sets of distributions that are remembered as witnesses, at most: each is a package set that a zygote was made of.
const MAX_SOURCES: usize = 4096;

/// Words kept of one thing, at most.
const MAX_STATEMENTS: usize = 8;

/// The number of a witness.
pub(crate) type Witness = u32;

/// All sets that ever said something.
#[derive(Clone, Debug, Default)]
pub(crate) struct Witnesses {
    sets: Vec<Set>,
    numbers: HashMap<Set, Witness>,
}

impl Witnesses {
    /// The number of the set; none when there are too many others.
    pub(crate) fn number(&mut self, set: &Set) -> Option<Witness> {
        if let Some(number) = self.numbers.get(set) {
            return Some(*number);
        }
        if self.sets.len() >= MAX_SOURCES {
            return None;
        }
        let number = Witness::try_from(self.sets.len()).ok()?;
        self.sets.push(set.clone());
        self.numbers.insert(set.clone(), number);
        Some(number)
    }

    /// Whom those believe who locked `locked`.
    pub(crate) fn trust(&self, locked: &Set) -> Trust {
        Trust(self.sets.iter().map(|set| set.within(locked)).collect())
    }

    pub(crate) fn set(&self, witness: Witness) -> &Set {
        &self.sets[witness as usize]
    }
}

/// By number, whether a witness is believed.
#[derive(Clone, Debug)]
pub(crate) struct Trust(Vec<bool>);

impl Trust {
    pub(crate) fn believes(&self, witness: Witness) -> bool {
        self.0.get(witness as usize).is_some_and(|believed| *believed)
    }
}

/// What was said of one thing: the last word of each witness, those first whom most would believe.
#[derive(Clone, Debug)]
pub(crate) struct Words<T>(Vec<(Witness, T)>);

impl<T> Default for Words<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Words<T> {
    /// Takes a word in. Of too many, that of the largest set goes: the fewest would believe it, and whoever would push out
    /// others' with many of its own can only make them from larger sets.
    pub(crate) fn say(&mut self, by: Witness, word: T, witnesses: &Witnesses) {
        if let Some((_, said)) = self.0.iter_mut().find(|(witness, _)| *witness == by) {
            *said = word;
            return;
        }
        let size = |witness: Witness| witnesses.set(witness).len();
        let at = self.0.partition_point(|(witness, _)| size(*witness) <= size(by));
        self.0.insert(at, (by, word));
        self.0.truncate(MAX_STATEMENTS);
    }

    pub(crate) fn by(&self, witness: Witness) -> Option<&T> {
        self.0.iter().find(|(by, _)| *by == witness).map(|(_, word)| word)
    }

    pub(crate) fn believed<'a>(
        &'a self,
        trust: &'a Trust,
    ) -> impl Iterator<Item = (Witness, &'a T)> {
        let believed = self.0.iter().filter(|(witness, _)| trust.believes(*witness));
        believed.map(|(witness, word)| (*witness, word))
    }

    /// Somebody's word: of the smallest set.
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
        let mut witnesses = Witnesses::default();
        let (liar, own) = (set(&[1, 9]), set(&[1, 2]));
        let (by_liar, by_own) = (witnesses.number(&liar).unwrap(), witnesses.number(&own).unwrap());
        let mut words = Words::default();
        words.say(by_liar, "lie", &witnesses);
        words.say(by_own, "truth", &witnesses);
        let heard = |locked: &[u32]| {
            let trust = witnesses.trust(&set(locked));
            words.believed(&trust).map(|(_, word)| *word).collect::<Vec<_>>()
        };
        assert_eq!(heard(&[1, 2, 3]), ["truth"]);
        assert_eq!(heard(&[1, 9]), ["lie"]);
        assert_eq!(heard(&[1]), [""; 0]);
    }

    #[test]
    fn many_liars_do_not_push_out_the_word_of_who_runs_alone() {
        let mut witnesses = Witnesses::default();
        let alone = witnesses.number(&set(&[1])).unwrap();
        let mut words = Words::default();
        words.say(alone, "truth", &witnesses);
        for other in 2..100 {
            let liar = witnesses.number(&set(&[1, other])).unwrap();
            words.say(liar, "lie", &witnesses);
        }
        assert_eq!(words.any(), Some(&"truth"));
        assert_eq!(words.0.len(), MAX_STATEMENTS);
        words.say(alone, "changed", &witnesses);
        assert_eq!(words.by(alone), Some(&"changed"));
    }

    #[test]
    fn witnesses_are_not_remembered_without_end() {
        let mut witnesses = Witnesses::default();
        let numbers: Vec<_> = (0..5000).map(|at| witnesses.number(&set(&[at]))).collect();
        assert_eq!(numbers.iter().flatten().count(), MAX_SOURCES);
        assert_eq!(witnesses.number(&set(&[7])), numbers[7]);
    }
}
