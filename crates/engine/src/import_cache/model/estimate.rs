//! What a zygote is expected to cost, by what may be believed.

use std::collections::HashMap;

use super::catalog::Catalog;
use super::lookups::went_through_all;
use super::provenance::Trust;
use super::set::Set;

/// The book as one reads it who has a certain lock.
#[derive(Debug)]
pub(crate) struct Estimate<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) locked: Set,
    pub(crate) trust: Trust,
    /// Those that he sets.
    pub(crate) variables: Set,
    pub(crate) shares: Option<&'a HashMap<u32, f64>>,
}

impl<'a> Estimate<'a> {
    /// Of nobody in particular who locked `locked`.
    pub(crate) fn of(catalog: &'a Catalog, locked: &Set) -> Self {
        let (trust, variables) = (catalog.trust(locked), Set::default());
        Self { catalog, locked: locked.clone(), trust, variables, shares: None }
    }

    /// Whether he who reads it so may use a zygote that sees `sees`.
    pub(crate) fn may_use(&self, sees: &Set) -> bool {
        sees.within(&self.locked)
    }

    /// Milliseconds that importing the piece takes by itself: as a zygote told that is believed, else as the handler's own
    /// load did, else as anybody says.
    pub(crate) fn cost(&self, piece: u32) -> f64 {
        let own = || self.shares.and_then(|shares| shares.get(&piece).copied());
        let known = self.catalog.measured(piece, &self.trust).or_else(own);
        known.unwrap_or_else(|| self.catalog.untrusted_cost(piece))
    }

    /// What can be imported by itself out of `pieces`, and looks up nothing that he sets: see [`Catalog::closed`].
    pub(crate) fn closed(&self, pieces: &Set) -> Set {
        self.catalog.closed(pieces, &self.trust, &self.variables)
    }

    /// What a zygote of these distributions looks up and does not find: none of themselves.
    pub(crate) fn lookups(&self, distributions: &Set) -> Set {
        let all: Set =
            distributions.iter().flat_map(|of| self.catalog.lookups(of, &self.trust)).collect();
        all.without(&self.catalog.found_as(distributions))
    }

    /// Whether one that sees more may be derived from a zygote that sees `sees` and has looked these up: what it would see
    /// in addition was not missed.
    pub(crate) fn can_derive(&self, sees: &Set, lookups: &Set, more: &Set) -> bool {
        !self.catalog.finds(more, lookups) && (sees == more || !went_through_all(lookups))
    }

    /// Whether a distribution looks up a variable that he sets.
    pub(crate) fn conflicts_with(&self, distribution: u32) -> bool {
        self.catalog.lookups(distribution, &self.trust).any(|read| self.variables.contains(read))
    }

    /// What a zygote whose own imports take that long can be expected to cost.
    pub(crate) fn expected_bytes(&self, milliseconds: f64) -> u64 {
        self.catalog.expected_bytes(milliseconds)
    }

    /// What such a zygote weighed: see [`Catalog::last_bytes`].
    pub(crate) fn last_bytes(&self, sees: &Set, asked: &Set, had: &Set) -> Option<u64> {
        self.catalog.last_bytes(sees, asked, had)
    }
}
