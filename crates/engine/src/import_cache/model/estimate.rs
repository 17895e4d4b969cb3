//! What a zygote is expected to cost, by what may be believed.

use std::collections::HashMap;

use super::catalog::Book;
use super::lookups::went_through_all;
use super::provenance::Trust;
use super::set::Set;

/// The book as one reads it who has a certain lock.
#[derive(Debug)]
pub(crate) struct Belief<'a> {
    pub(crate) book: &'a Book,
    pub(crate) locked: Set,
    pub(crate) trust: Trust,
    /// Those that he sets.
    pub(crate) variables: Set,
    pub(crate) shares: Option<&'a HashMap<u32, f64>>,
}

impl<'a> Belief<'a> {
    /// Of nobody in particular who locked `locked`.
    pub(crate) fn of(book: &'a Book, locked: &Set) -> Self {
        let (trust, variables) = (book.trust(locked), Set::default());
        Self { book, locked: locked.clone(), trust, variables, shares: None }
    }

    /// Whether he who reads it so may use a zygote that sees `sees`.
    pub(crate) fn may_use(&self, sees: &Set) -> bool {
        sees.within(&self.locked)
    }

    /// Milliseconds that importing the piece takes by itself: as a zygote told that is believed, else as the handler's own
    /// load did, else as anybody says.
    pub(crate) fn cost(&self, piece: u32) -> f64 {
        let own = || self.shares.and_then(|shares| shares.get(&piece).copied());
        let known = self.book.measured(piece, &self.trust).or_else(own);
        known.unwrap_or_else(|| self.book.hearsay(piece))
    }

    /// What can be imported by itself out of `pieces`, and looks up nothing that he sets: see [`Book::closed`].
    pub(crate) fn closed(&self, pieces: &Set) -> Set {
        self.book.closed(pieces, &self.trust, &self.variables)
    }

    /// What a zygote of these distributions looks up and does not find: none of themselves.
    pub(crate) fn reads(&self, distributions: &Set) -> Set {
        let all: Set =
            distributions.iter().flat_map(|of| self.book.reads(of, &self.trust)).collect();
        all.without(&self.book.found_as(distributions))
    }

    /// Whether one that sees more may be derived from a zygote that sees `sees` and has looked these up: what it would see
    /// in addition was not missed.
    pub(crate) fn bears(&self, sees: &Set, reads: &Set, more: &Set) -> bool {
        !self.book.finds(more, reads) && (sees == more || !went_through_all(reads))
    }

    /// Whether a distribution looks up a variable that he sets.
    pub(crate) fn minds(&self, distribution: u32) -> bool {
        self.book.reads(distribution, &self.trust).any(|read| self.variables.contains(read))
    }

    /// What a zygote whose own imports take that long can be expected to cost.
    pub(crate) fn weigh(&self, milliseconds: f64) -> u64 {
        self.book.weigh(milliseconds)
    }

    /// What such a zygote weighed: see [`Book::weight`].
    pub(crate) fn weight(&self, sees: &Set, asked: &Set, had: &Set) -> Option<u64> {
        self.book.weight(sees, asked, had)
    }
}
