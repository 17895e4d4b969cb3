//! The catalog: distributions and their modules, numbered, with what was reported and measured.
//!
//! A *piece* is one module of one distribution: pandas 2.1's `pandas.core.frame` is another piece
//! than pandas 2.2's. The catalog grows with what is deployed, within bounds, and forgets nothing
//! while the worker runs.
//!
//! | fact | reported by | trusted by |
//! | --- | --- | --- |
//! | import time of a module | a zygote, within its total import time measured from outside | handlers that locked all of that zygote; any handler without such a report and without a load of its own |
//! | a distribution imports another, looks something up, fails, leaves something behind | a zygote | handlers that locked all of that zygote |
//! | how often a module is used | each handler once | handlers that were not observed yet |

mod learning;

use std::collections::{HashMap, HashSet};

use crate::distribution::Distribution;
use crate::import_cache::model::lookups::found_as;
use crate::import_cache::model::memory_model::MemoryModel;
use crate::import_cache::model::provenance::{SourceId, Sources, Statements, Trust};
use crate::import_cache::model::set::Set;
use crate::status::ImportCost;

/// Assumed import time of a declared module with all that it imports, until it is observed.
const DECLARED_MS: f64 = 20.0;

/// Modules of one distribution that are distinguished; the largest known has some ten thousand.
const MAX_PIECES: usize = 20_000;

/// Modules of all distributions together that are distinguished.
const MAX_PIECES_OF_ALL: usize = 500_000;

/// Zygotes whose sizes are remembered.
const MAX_SIZES: usize = 1024;

/// Longest name of a module, in bytes.
const NAME_BYTES: usize = 255;

#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    distributions: Vec<DistributionFacts>,
    numbers: HashMap<Distribution, u32>,
    pieces: Vec<Piece>,
    places: HashMap<(u32, String), u32>,
    sources: Sources,
    memory_model: MemoryModel,
    /// Sizes of zygotes when they were last made, by what they see and what they are asked to
    /// import.
    sizes: HashMap<(Set, Set), ZygoteSize>,
    /// Sources whose measurement is in the memory model.
    measured_sources: HashSet<SourceId>,
    /// Number of changes to any piece.
    changes: u64,
}

/// Size of a zygote when it was last made.
#[derive(Clone, Debug)]
struct ZygoteSize {
    /// What its parent had imported.
    had: Set,
    /// Bytes beyond its parent.
    bytes: u64,
}

#[derive(Clone, Debug)]
struct DistributionFacts {
    distribution: Distribution,
    pieces: Vec<u32>,
    /// Number of the last change to its pieces.
    changed: u64,
    /// Names of the distributions that its modules were observed to import from.
    requires: Vec<(String, Statements<()>)>,
    /// The lookups that find it.
    found_as: Set,
    /// The lookups that its modules were observed to make.
    lookups: HashMap<u32, Statements<()>>,
    /// Why a zygote that imported it cannot be forked.
    unforkable: Statements<String>,
    /// Size beyond its parent of a zygote that imported nothing else.
    bytes: Statements<u64>,
}

#[derive(Clone, Debug)]
struct Piece {
    distribution: u32,
    module: String,
    /// Import time in milliseconds, imports inside it excluded, as measured in zygotes.
    measured: Statements<f64>,
    /// Its share of the load time of the first handler observed to import it.
    shared: Option<f64>,
    /// Handlers observed to import it or not, and those of them that did.
    told: u32,
    used: u32,
    /// Sources of zygotes that failed to import it.
    failed: Statements<()>,
}

impl Catalog {
    /// The number of a distribution.
    pub(crate) fn number(&mut self, distribution: &Distribution) -> u32 {
        if let Some(number) = self.numbers.get(distribution) {
            return *number;
        }
        let number = count(self.distributions.len());
        self.numbers.insert(distribution.clone(), number);
        self.distributions.push(DistributionFacts {
            distribution: distribution.clone(),
            pieces: Vec::new(),
            changed: 0,
            requires: Vec::new(),
            found_as: found_as(distribution),
            lookups: HashMap::new(),
            unforkable: Statements::default(),
            bytes: Statements::default(),
        });
        number
    }

    /// The piece named `module` of the distributions in `set`; none if none of them has it, or
    /// there are too many pieces.
    pub(crate) fn piece(&mut self, set: &Set, module: &str) -> Option<u32> {
        let distribution = self.owner(set, module)?;
        let place = (distribution, module.to_owned());
        if let Some(piece) = self.places.get(&place) {
            return Some(*piece);
        }
        let there = self.distributions[distribution as usize].pieces.len();
        let full = there >= MAX_PIECES || self.pieces.len() >= MAX_PIECES_OF_ALL;
        if full || module.len() > NAME_BYTES {
            return None;
        }
        let piece = count(self.pieces.len());
        self.places.insert(place, piece);
        let module = module.to_owned();
        self.pieces.push(Piece {
            distribution,
            module,
            measured: Statements::default(),
            shared: None,
            told: 0,
            used: 0,
            failed: Statements::default(),
        });
        self.distributions[distribution as usize].pieces.push(piece);
        self.change(distribution);
        Some(piece)
    }

    fn owner(&self, set: &Set, module: &str) -> Option<u32> {
        let claims = set
            .iter()
            .filter_map(|number| Some((self.distribution(number).claim(module)?, number)));
        claims.max_by_key(|(length, _)| *length).map(|(_, number)| number)
    }

    fn change(&mut self, distribution: u32) {
        self.changes += 1;
        self.distributions[distribution as usize].changed = self.changes;
    }

    /// Number of changes to any piece so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Number of the last change to that distribution's pieces.
    pub(crate) fn changed(&self, number: u32) -> u64 {
        self.distributions[number as usize].changed
    }

    /// All known pieces of the distributions.
    pub(crate) fn pieces_of<'a>(&'a self, set: &'a Set) -> impl Iterator<Item = u32> + 'a {
        set.iter().flat_map(|number| self.distributions[number as usize].pieces.iter().copied())
    }

    /// The distributions that the pieces belong to.
    pub(crate) fn owners(&self, pieces: &Set) -> Set {
        pieces.iter().map(|piece| self.pieces[piece as usize].distribution).collect()
    }

    pub(crate) fn owner_of(&self, piece: u32) -> u32 {
        self.pieces[piece as usize].distribution
    }

    pub(crate) fn distributions(&self, set: &Set) -> Vec<Distribution> {
        set.iter().map(|number| self.distributions[number as usize].distribution.clone()).collect()
    }

    pub(crate) fn distribution(&self, number: u32) -> &Distribution {
        &self.distributions[number as usize].distribution
    }

    pub(crate) fn module(&self, piece: u32) -> &str {
        &self.pieces[piece as usize].module
    }

    /// The pieces' modules in the order in which they were first seen: dependencies first.
    pub(crate) fn modules(&self, pieces: &Set) -> Vec<String> {
        pieces.iter().map(|piece| self.pieces[piece as usize].module.clone()).collect()
    }

    /// The sources that a handler may trust that locked `locked`.
    pub(crate) fn trust(&self, locked: &Set) -> Trust {
        self.sources.trust(locked)
    }

    /// Milliseconds that importing the piece takes, by a trusted zygote's measurement.
    pub(crate) fn measured(&self, piece: u32, trust: &Trust) -> Option<f64> {
        let mut statements = self.pieces[piece as usize].measured.trusted(trust);
        statements.next().map(|(_, milliseconds)| *milliseconds)
    }

    /// The same by any source, or an assumption.
    pub(crate) fn untrusted_cost(&self, piece: u32) -> f64 {
        let piece = &self.pieces[piece as usize];
        piece.shared.or_else(|| piece.measured.any().copied()).unwrap_or(DECLARED_MS)
    }

    /// How likely an unobserved handler imports a piece of what it locked.
    pub(crate) fn chance(&self, piece: u32) -> f64 {
        let piece = &self.pieces[piece as usize];
        (f64::from(piece.used) + 0.5) / (f64::from(piece.told) + 1.0)
    }

    /// Distributions that some source reported as unforkable, and why.
    pub(crate) fn unforkable(&self) -> impl Iterator<Item = (&Distribution, &str)> {
        let said = |entry: &'_ DistributionFacts| entry.unforkable.any().is_some();
        let entries = self.distributions.iter().filter(move |entry| said(entry));
        entries.filter_map(|entry| Some((&entry.distribution, &**entry.unforkable.any()?)))
    }

    /// Measured import costs, by any source. Distributions without a measurement are left out.
    pub(crate) fn costs(&self) -> impl Iterator<Item = (&Distribution, ImportCost)> {
        self.distributions.iter().filter_map(|entry| {
            let pieces = entry.pieces.iter().map(|piece| &self.pieces[*piece as usize]);
            let said = pieces.filter_map(|piece| piece.measured.any().copied());
            let milliseconds = said.reduce(|sum, own| sum + own);
            let cost = ImportCost { milliseconds, bytes: entry.bytes.any().copied() };
            (cost != ImportCost::default()).then_some((&entry.distribution, cost))
        })
    }

    /// Bytes that a zygote is expected to cost whose own imports take that long.
    pub(crate) fn expected_bytes(&self, milliseconds: f64) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is at least 1"
        )]
        let bytes = self.memory_model.predict(milliseconds).max(1.0) as u64;
        bytes
    }

    /// Bytes that such a zygote took when it was last made, provided that its parent had then
    /// imported at least `had`.
    pub(crate) fn last_bytes(&self, sees: &Set, asked: &Set, had: &Set) -> Option<u64> {
        let size = self.sizes.get(&(sees.clone(), asked.clone()))?;
        had.within(&size.had).then_some(size.bytes)
    }

    /// The lookups that find these distributions.
    pub(crate) fn found_as(&self, set: &Set) -> Set {
        set.iter().flat_map(|number| self.distributions[number as usize].found_as.iter()).collect()
    }

    /// Whether one of these distributions was looked up.
    pub(crate) fn finds(&self, set: &Set, lookups: &Set) -> bool {
        set.iter().any(|number| self.distributions[number as usize].found_as.meets(lookups))
    }

    /// What a distribution looks up when it is imported, by trusted sources.
    pub(crate) fn lookups<'a>(
        &'a self,
        distribution: u32,
        trust: &'a Trust,
    ) -> impl Iterator<Item = u32> + 'a {
        let lookups = self.distributions[distribution as usize].lookups.iter();
        lookups.filter(|(_, said)| said.trusted(trust).next().is_some()).map(|(read, _)| *read)
    }

    /// The part of `pieces` that can be imported without the rest, by trusted sources: without
    /// distributions that cannot be forked, that look up any of `variables`, or that import another
    /// distribution of which no version is among them.
    pub(crate) fn closed(&self, pieces: &Set, trust: &Trust, variables: &Set) -> Set {
        let trusted = |statements: &Statements<()>| statements.trusted(trust).next().is_some();
        let mut left = self.owners(pieces);
        loop {
            let names: Vec<&str> =
                left.iter().map(|number| &*self.distribution(number).name).collect();
            let stands = |number: u32| {
                let entry = &self.distributions[number as usize];
                entry.unforkable.trusted(trust).next().is_none()
                    && !self.lookups(number, trust).any(|read| variables.contains(read))
                    && entry
                        .requires
                        .iter()
                        .all(|(name, said)| names.contains(&name.as_str()) || !trusted(said))
            };
            let standing: Set = left.iter().filter(|number| stands(*number)).collect();
            if standing.len() == left.len() {
                let fails = |piece: u32| {
                    let mut said = self.pieces[piece as usize].failed.trusted(trust);
                    said.any(|(source, ())| left.within(self.sources.set(source)))
                };
                let stays = |piece: &u32| left.contains(self.owner_of(*piece)) && !fails(*piece);
                return pieces.iter().filter(stays).collect();
            }
            left = standing;
        }
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
pub(crate) mod tests;
