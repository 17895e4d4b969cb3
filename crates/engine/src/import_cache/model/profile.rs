//! What is known of one handler's imports.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::handler::Handler;
use crate::import_cache::model::catalog::Catalog;
use crate::import_cache::model::entry::Entry;
use crate::import_cache::model::estimate::Estimate;
use crate::import_cache::model::import_time::ImportTime;
use crate::import_cache::model::lookups::{set_by, went_through_all};
use crate::import_cache::model::set::Set;
use crate::import_cache::model::spending::Debt;

/// Loads that are always observed; later ones only when the zygote is another than the last.
const OBSERVED_LOADS: u32 = 2;

/// A node of a given tree that may serve the handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seed {
    pub(crate) sees: Set,
    pub(crate) modules: Set,
    /// The place of its parent among the handler's nodes.
    pub(crate) above: Option<usize>,
}

/// One handler version, as the policies see it.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) domain: usize,
    /// The distributions that it locked.
    pub(crate) locked: Set,
    /// The environment variables that it sets, as lookups.
    variables: Set,
    /// The lookups that find its distributions.
    found_as: Set,
    /// Pairs of its distributions: the first has files in the place of the second's.
    clashes: Vec<(u32, u32)>,
    /// Names of its secrets, which are among `variables`.
    pub(crate) secrets: Vec<String>,
    /// The pieces that it declares to import.
    pub(crate) declared: Set,
    /// All outermost pieces of what it locked; the declared ones where only the lock's directory is
    /// known.
    pub(crate) outermost: Set,
    /// The zygotes of a given tree that may serve it, ancestors first.
    pub(crate) seeds: Vec<Seed>,
    /// The pieces that it was seen to import.
    used: Set,
    /// The pieces that every zygote it was forked from had imported already: it is unknown whether
    /// the handler would have imported them. None before its first observation.
    brought: Option<Set>,
    /// By piece, its share of the handler's load time, where no trusted zygote measured it.
    shares: HashMap<u32, f64>,
    observed: u32,
    last_from: Option<u64>,
    /// Longest observed import time in milliseconds, plus what its zygote may have spared it.
    proven: f64,
    /// What it owes for zygotes made at its deploy.
    pub(crate) debt: Debt,
    weight: f64,
    counted: u64,
    last: Option<Instant>,
    /// By piece, the milliseconds that having it imported is expected to save.
    pub(crate) needs: Vec<(u32, f64)>,
    /// Milliseconds of its imports that no zygote can spare it: they look up a variable that it
    /// sets.
    pub(crate) alone: f64,
    /// The catalog's change count when `needs` was computed.
    read: u64,
}

impl Profile {
    pub(crate) fn new(domain: usize, locked: Set, declared: Set, catalog: &Catalog) -> Self {
        let mut profile = Self {
            domain,
            found_as: catalog.found_as(&locked),
            locked,
            variables: Set::default(),
            clashes: Vec::new(),
            secrets: Vec::new(),
            outermost: declared.clone(),
            declared,
            seeds: Vec::new(),
            used: Set::default(),
            brought: None,
            shares: HashMap::new(),
            observed: 0,
            last_from: None,
            proven: 0.0,
            debt: Debt::default(),
            weight: 0.0,
            counted: 0,
            last: None,
            needs: Vec::new(),
            alone: 0.0,
            read: 0,
        };
        profile.expect(catalog);
        profile
    }

    /// Sets the handler's variables and the names of its current secrets.
    pub(crate) fn sets(&mut self, handler: &Handler, secrets: Vec<String>, catalog: &Catalog) {
        self.variables = set_by(handler, &secrets);
        self.secrets = secrets;
        self.expect(catalog);
    }

    /// Whether the handler may be forked from it: it holds nothing that the handler did not lock
    /// (the trust rule), and looked up nothing that the handler has.
    pub(crate) fn may_use(&self, entry: &Entry) -> bool {
        entry.serves(self.domain, &self.locked) && !self.conflicts_with(&entry.sees, &entry.lookups)
    }

    /// Whether a zygote that sees `sees` and looked up `lookups` conflicts with the handler: it
    /// looked up a variable that the handler sets, a module in its code, or a distribution that the
    /// zygote lacks; or the handler has other files in the place of those that the zygote imported.
    pub(crate) fn conflicts_with(&self, sees: &Set, lookups: &Set) -> bool {
        self.variables.meets(lookups)
            || self.found_as.meets(lookups)
            || (went_through_all(lookups) && *sees != self.locked)
            || self
                .clashes
                .iter()
                .any(|(kept, hidden)| sees.contains(*hidden) && !sees.contains(*kept))
    }

    /// Records which of the handler's distributions overwrite files of others.
    pub(crate) fn clash(&mut self, handler: &Handler, catalog: &Catalog) {
        let number = |name: &String| {
            self.locked.iter().find(|number| catalog.distribution(*number).name == *name)
        };
        let clashes = handler.clashes.iter();
        self.clashes =
            clashes.filter_map(|(kept, hidden)| Some((number(kept)?, number(hidden)?))).collect();
    }

    /// Counts a start. `now` is the number of starts so far; a start counts half after `half_life`
    /// further ones.
    pub(crate) fn start(&mut self, now: u64, half_life: f64, at: Instant) {
        self.weight = self.weight(now, half_life) + 1.0;
        self.counted = now;
        self.last = Some(at);
    }

    /// Whether it was started within the last `time`.
    pub(crate) fn started_within(&self, time: Duration) -> bool {
        self.last.is_some_and(|last| last.elapsed() <= time)
    }

    /// Whether its imports were observed.
    pub(crate) fn seen(&self) -> bool {
        self.observed > 0
    }

    pub(crate) fn started(&self) -> bool {
        self.counted > 0
    }

    /// Number of recent starts, older ones weighted less.
    pub(crate) fn weight(&self, now: u64, half_life: f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a count of starts")]
        let age = now.saturating_sub(self.counted) as f64;
        self.weight * (-age / half_life).exp2()
    }

    /// Whether observing a load from that zygote may show something new.
    pub(crate) fn curious(&self, zygote: u64) -> bool {
        self.observed < OBSERVED_LOADS || self.last_from != Some(zygote)
    }

    /// Records that it imported `new` when forked from a zygote that had imported `had`, in the
    /// time `took`.
    pub(crate) fn learn(
        &mut self,
        zygote: u64,
        had: &Set,
        new: &Set,
        took: ImportTime,
        catalog: &mut Catalog,
    ) {
        let trust = catalog.trust(&self.locked);
        // A call does unknown other work: no module gets a share of its time.
        let (load, most) = match took {
            ImportTime::Load(milliseconds) => (milliseconds, milliseconds),
            ImportTime::Call(milliseconds) => (0.0, milliseconds),
        };
        catalog.share(new, load, &trust, &mut self.shares);
        self.used = self.used.or(new);
        let brought = self.brought.as_ref().map_or_else(|| had.clone(), |before| before.and(had));
        let brought = brought.without(&self.used);
        if self.observed == 0 {
            let told: Vec<u32> =
                catalog.pieces_of(&self.locked).filter(|piece| !brought.contains(*piece)).collect();
            told.iter().for_each(|piece| catalog.record_use(*piece, new.contains(*piece)));
        }
        self.brought = Some(brought);
        self.observed = self.observed.saturating_add(1);
        self.last_from = Some(zygote);
        self.expect(catalog);
        // The handler reported nothing about what its zygote had imported.
        let spared = self.brought.as_ref().map_or(0.0, |brought| self.saved(brought));
        self.proven = self.proven.max(most + spared);
    }

    /// Recomputes what having each piece imported saves.
    pub(crate) fn expect(&mut self, catalog: &Catalog) {
        let worked_out = self.work_out(catalog);
        self.take(worked_out);
    }

    fn take(&mut self, worked_out: Needs) {
        let Needs { needs, alone, read } = worked_out;
        (self.needs, self.alone, self.read) = (needs, alone, read);
    }

    /// Computes the same without storing it: see [`Self::adopt`].
    pub(crate) fn work_out(&self, catalog: &Catalog) -> Needs {
        let estimate = self.estimate(catalog);
        let sure = |piece: u32| (piece, estimate.cost(piece));
        let likely = |piece: u32| (piece, estimate.cost(piece) * catalog.chance(piece));
        let mut needs: Vec<(u32, f64)> = match &self.brought {
            Some(brought) => self.used.iter().map(sure).chain(brought.iter().map(likely)).collect(),
            None => {
                let others = catalog.pieces_of(&self.locked);
                let others = others.filter(|piece| !self.declared.contains(*piece)).map(likely);
                self.declared.iter().map(sure).chain(others).collect()
            }
        };
        needs.sort_by_key(|(piece, _)| *piece);
        let conflicting: Set =
            self.locked.iter().filter(|of| estimate.conflicts_with(*of)).collect();
        let (alone, needs): (Vec<_>, _) = needs
            .into_iter()
            .partition(|(piece, _)| conflicting.contains(catalog.owner_of(*piece)));
        let alone = alone.into_iter().map(|(_, cost)| cost).sum();
        Needs { needs, alone, read: catalog.changes() }
    }

    /// Stores needs that were computed elsewhere, unless newer ones were stored meanwhile.
    pub(crate) fn adopt(&mut self, worked_out: Needs) {
        if worked_out.read > self.read {
            self.take(worked_out);
        }
    }

    /// Whether the catalog has changed for anything that it locked since `needs` was computed.
    pub(crate) fn is_stale(&self, catalog: &Catalog) -> bool {
        self.locked.iter().any(|number| catalog.changed(number) > self.read)
    }

    /// The catalog as this handler may trust it.
    pub(crate) fn estimate<'a>(&'a self, catalog: &'a Catalog) -> Estimate<'a> {
        let (shares, variables) = (Some(&self.shares), self.variables.clone());
        Estimate { shares, variables, ..Estimate::of(catalog, &self.locked) }
    }

    /// All that it is expected to import: what a zygote of its own should import.
    pub(crate) fn wanted(&self, catalog: &Catalog) -> Set {
        let Some(brought) = &self.brought else { return self.declared.clone() };
        let likely = brought.iter().filter(|piece| catalog.chance(*piece) >= 0.5);
        self.used.iter().chain(likely).collect()
    }

    /// Milliseconds that zygotes can spare it at most.
    pub(crate) fn needed(&self) -> f64 {
        self.needs.iter().map(|(_, cost)| cost).sum()
    }

    /// The same, capped by the longest time that it was observed to take, whatever it reports.
    pub(crate) fn measured(&self) -> f64 {
        self.needed().min(self.proven)
    }

    /// Milliseconds that a zygote spares it that has imported `modules`.
    pub(crate) fn saved(&self, modules: &Set) -> f64 {
        let saved = self.needs.iter().filter(|(piece, _)| modules.contains(*piece));
        saved.map(|(_, cost)| cost).sum()
    }
}

/// What a handler needs, with the catalog's change count when it was computed.
#[derive(Debug)]
pub(crate) struct Needs {
    needs: Vec<(u32, f64)>,
    alone: f64,
    read: u64,
}

#[cfg(test)]
mod tests {
    use sandbox::{Imports, LoadedFile};

    use super::*;
    use crate::import_cache::model::catalog::tests::simple;

    fn world() -> (Catalog, Set, Set) {
        let catalog = simple(3);
        let locked: Set = (0..3).collect();
        (catalog, locked.clone(), locked)
    }

    fn only(pieces: &Set, places: &[usize]) -> Set {
        let all: Vec<u32> = pieces.iter().collect();
        places.iter().map(|place| all[*place]).collect()
    }

    #[test]
    fn what_a_zygote_brought_along_is_only_presumed_until_a_load_without_it() {
        let (mut catalog, locked, pieces) = world();
        let mut profile = Profile::new(0, locked, Set::default(), &catalog);
        let (ab, a, c) = (only(&pieces, &[0, 1]), only(&pieces, &[0]), only(&pieces, &[2]));
        profile.learn(1, &ab, &c, ImportTime::Load(6.0), &mut catalog);
        assert!(c.within(&profile.wanted(&catalog)));
        assert!(profile.saved(&a) > 0.0, "it may need what it was given");
        profile.learn(
            2,
            &Set::default(),
            &only(&pieces, &[1, 2]),
            ImportTime::Load(12.0),
            &mut catalog,
        );
        assert_eq!(profile.saved(&a), 0.0, "without it, it did not ask for it");
        assert_eq!(profile.wanted(&catalog), only(&pieces, &[1, 2]));
        assert_eq!(profile.saved(&pieces), 12.0);
    }

    #[test]
    fn what_was_worked_out_elsewhere_does_not_undo_what_a_handler_has_learnt_since() {
        let (mut catalog, locked, pieces) = world();
        let mut profile = Profile::new(0, locked.clone(), Set::default(), &catalog);
        catalog.piece(&locked, "a.new");
        let early = profile.work_out(&catalog);
        profile.learn(0, &Set::default(), &pieces, ImportTime::Load(99.0), &mut catalog);
        profile.adopt(early);
        assert!((profile.saved(&pieces) - 99.0).abs() < 1e-9);
        catalog.piece(&locked, "a.newer");
        let late = profile.work_out(&catalog);
        profile.adopt(late);
        assert!(!profile.is_stale(&catalog));
    }

    #[test]
    fn what_others_use_is_expected_of_a_handler_that_nobody_has_seen() {
        let (mut catalog, locked, pieces) = world();
        for _ in 0..9 {
            let mut seen = Profile::new(0, locked.clone(), Set::default(), &catalog);
            seen.learn(
                0,
                &Set::default(),
                &only(&pieces, &[0]),
                ImportTime::Load(5.0),
                &mut catalog,
            );
        }
        let unseen = Profile::new(0, locked, Set::default(), &catalog);
        assert!(unseen.saved(&only(&pieces, &[0])) > 4.0);
        assert!(unseen.saved(&only(&pieces, &[1])) < 2.0);
    }

    #[test]
    fn old_starts_count_half_after_a_half_life() {
        let (catalog, locked, _) = world();
        let mut profile = Profile::new(0, locked, Set::default(), &catalog);
        profile.start(0, 10.0, Instant::now());
        assert!((profile.weight(10, 10.0) - 0.5).abs() < 1e-9);
        profile.start(10, 10.0, Instant::now());
        assert!((profile.weight(10, 10.0) - 1.5).abs() < 1e-9);
        assert!(profile.curious(1));
    }

    #[test]
    fn once_it_was_loaded_a_handler_goes_by_its_own_load_and_not_by_strangers() {
        let (mut catalog, locked, pieces) = world();
        let mut liar = Profile::new(0, locked.clone(), Set::default(), &catalog);
        liar.learn(0, &Set::default(), &pieces, ImportTime::Load(300_000.0), &mut catalog);
        let mut honest = Profile::new(0, locked, Set::default(), &catalog);
        honest.learn(0, &Set::default(), &pieces, ImportTime::Load(30.0), &mut catalog);
        assert!((honest.saved(&pieces) - 30.0).abs() < 1e-9);
        assert!((honest.estimate(&catalog).cost(0) - 10.0).abs() < 1e-9);
    }

    #[test]
    fn what_a_handler_claims_counts_for_no_more_than_it_was_seen_to_take() {
        let (mut catalog, locked, pieces) = world();
        let file =
            LoadedFile { module: "a".to_owned(), milliseconds: 5000.0, ..LoadedFile::default() };
        catalog.measure(&locked, &Imports { files: vec![file], ..Imports::default() });
        let (none, a) = (Set::default(), only(&pieces, &[0]));
        let seen = |catalog: &mut Catalog, took| {
            let mut profile = Profile::new(0, locked.clone(), a.clone(), catalog);
            assert_eq!(profile.measured(), 0.0, "it was not observed yet");
            profile.learn(0, &none, &a, took, catalog);
            profile
        };
        let mut liar = seen(&mut catalog, ImportTime::Load(1.0));
        assert_eq!((liar.needed(), liar.measured()), (5000.0, 1.0));
        // Nor when it is forked from a zygote that imported what it reported.
        liar.learn(1, &a, &none, ImportTime::Load(1.0), &mut catalog);
        assert_eq!(liar.measured(), 1.0);
        for honest in [ImportTime::Load(5000.0), ImportTime::Call(6000.0)] {
            assert_eq!(seen(&mut catalog, honest).measured(), 5000.0);
        }
        let mut spared = Profile::new(0, locked.clone(), a.clone(), &catalog);
        spared.learn(1, &a, &none, ImportTime::Load(0.0), &mut catalog);
        assert!(spared.measured() > 1000.0, "a zygote had it imported: {}", spared.measured());
    }
}
