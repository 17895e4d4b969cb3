//! What imports are expected to cost a handler, from measurements that it may trust.

use std::collections::HashMap;

use super::catalog::Catalog;
use super::lookups::went_through_all;
use super::provenance::Trust;
use super::set::Set;

/// The catalog as seen by a handler that locked certain distributions.
#[derive(Debug)]
pub(crate) struct Estimate<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) locked: Set,
    pub(crate) trust: Trust,
    /// The environment variables that the handler sets.
    pub(crate) variables: Set,
    pub(crate) shares: Option<&'a HashMap<u32, f64>>,
}

impl<'a> Estimate<'a> {
    /// For no particular handler that locked `locked`.
    pub(crate) fn of(catalog: &'a Catalog, locked: &Set) -> Self {
        let (trust, variables) = (catalog.trust(locked), Set::default());
        Self { catalog, locked: locked.clone(), trust, variables, shares: None }
    }

    /// Whether the handler may be forked from a zygote that sees `sees`.
    pub(crate) fn may_use(&self, sees: &Set) -> bool {
        sees.within(&self.locked)
    }

    /// Milliseconds that importing the piece takes, imports inside it excluded. The first that
    /// exists of: a trusted zygote's measurement, the share of the handler's own load, anything
    /// that was reported.
    pub(crate) fn cost(&self, piece: u32) -> f64 {
        let own = || self.shares.and_then(|shares| shares.get(&piece).copied());
        let known = self.catalog.measured(piece, &self.trust).or_else(own);
        known.unwrap_or_else(|| self.catalog.untrusted_cost(piece))
    }

    /// The part of `pieces` that can be imported without the rest and looks up no variable that the
    /// handler sets: see [`Catalog::closed`].
    pub(crate) fn closed(&self, pieces: &Set) -> Set {
        self.catalog.closed(pieces, &self.trust, &self.variables)
    }

    /// What a zygote of these distributions looks up and does not find among them.
    pub(crate) fn lookups(&self, distributions: &Set) -> Set {
        let all: Set =
            distributions.iter().flat_map(|of| self.catalog.lookups(of, &self.trust)).collect();
        all.without(&self.catalog.found_as(distributions))
    }

    /// Whether a zygote that sees `more` may be derived from one that sees `sees` and looked up
    /// `lookups`: none of what it would see in addition was looked up in vain.
    pub(crate) fn can_derive(&self, sees: &Set, lookups: &Set, more: &Set) -> bool {
        !self.catalog.finds(more, lookups) && (sees == more || !went_through_all(lookups))
    }

    /// Whether the distribution looks up a variable that the handler sets.
    pub(crate) fn conflicts_with(&self, distribution: u32) -> bool {
        self.catalog.lookups(distribution, &self.trust).any(|read| self.variables.contains(read))
    }

    /// Bytes that a zygote is expected to cost whose own imports take that long.
    pub(crate) fn expected_bytes(&self, milliseconds: f64) -> u64 {
        self.catalog.expected_bytes(milliseconds)
    }

    /// Bytes that such a zygote took when it was last made: see [`Catalog::last_bytes`].
    pub(crate) fn last_bytes(&self, sees: &Set, asked: &Set, had: &Set) -> Option<u64> {
        self.catalog.last_bytes(sees, asked, had)
    }
}
