//! Taking in what zygotes and handlers say.

use std::collections::HashMap;

use sandbox::Imports;

use super::{Catalog, MAX_WEIGHTS, Weight};
use crate::config::CREATION_TIMEOUT;
use crate::import_cache::model::lookups::looked_up;
use crate::import_cache::model::provenance::{SourceId, Sources, Statements, Trust};
use crate::import_cache::model::set::Set;

/// The longest that an import can take: whoever takes longer has no zygote that could spare him anything.
pub(super) const MAX_MS: f64 = 1e3 * CREATION_TIMEOUT.as_secs_f64();

/// What a module costs as long as nobody has measured it, in milliseconds.
const UNMEASURED_MS: f64 = 2.0;

/// What one distribution looks up that is remembered, at most. Of those beyond, each zygote knows its own.
const MAX_VARIABLES: usize = 1024;

/// What a zygote weighs counts at most that many times more, or less, than was to be expected.
const SURPRISE: f64 = 4.0;

impl Catalog {
    /// A handler was seen to import a piece, or not to.
    pub(crate) fn tell(&mut self, piece: u32, used: bool) {
        self.change(self.owner_of(piece));
        let piece = &mut self.pieces[piece as usize];
        piece.told = piece.told.saturating_add(1);
        piece.used = piece.used.saturating_add(u32::from(used));
    }

    /// A handler that imported these took `milliseconds` in all to load. Each that was not measured has its share, which is
    /// noted in `own`.
    pub(crate) fn share(
        &mut self,
        pieces: &Set,
        milliseconds: f64,
        trust: &Trust,
        own: &mut HashMap<u32, f64>,
    ) {
        let milliseconds = believable(milliseconds);
        let cost = |piece: u32| self.measured(piece, trust).or_else(|| own.get(&piece).copied());
        let known: f64 = pieces.iter().filter_map(cost).sum();
        let fresh: Vec<u32> = pieces.iter().filter(|piece| cost(*piece).is_none()).collect();
        #[expect(clippy::cast_precision_loss, reason = "a count of modules")]
        let each = ((milliseconds - known) / fresh.len().max(1) as f64).max(0.0);
        let each = if milliseconds > 0.0 { each } else { UNMEASURED_MS };
        for piece in fresh {
            own.insert(piece, each);
            self.pieces[piece as usize].shared.get_or_insert(each);
            self.change(self.owner_of(piece));
        }
    }

    /// Learns from what a zygote that sees `sees` did when it imported. The pieces that it loaded.
    pub(crate) fn measure(&mut self, sees: &Set, imports: &Imports) -> Set {
        let by = self.source(sees);
        let mut loaded = Vec::with_capacity(imports.files.len());
        for file in &imports.files {
            let Some(piece) = self.piece(sees, &file.module) else { continue };
            loaded.push(piece);
            let statements = &mut self.pieces[piece as usize].measured;
            let said = believable(file.milliseconds);
            let said = statements.by(by).map_or(said, |before| 0.5 * (before + said));
            statements.record(by, said, &self.sources);
            let of = self.pieces[piece as usize].distribution;
            self.change(of);
            self.add_lookups(of, &file.variables, by);
            match self.owner(sees, &file.importer) {
                Some(importer) if importer != of => self.requires(importer, of, by),
                _ => {}
            }
        }
        for module in &imports.left_by {
            if let Some(owner) = self.owner(sees, module) {
                let why = format!("{module} leaves {} behind", left(imports));
                let statements = &mut self.distributions[owner as usize].unforkable;
                statements.record(by, why, &self.sources);
            }
        }
        for (module, names) in &imports.variables {
            if let Some(owner) = self.owner(sees, module) {
                self.add_lookups(owner, names, by);
                self.change(owner);
            }
        }
        for (module, _) in &imports.failed {
            if let Some(piece) = self.piece(sees, module) {
                self.pieces[piece as usize].failed.record(by, (), &self.sources);
            }
        }
        loaded.into_iter().collect()
    }

    fn add_lookups(&mut self, distribution: u32, names: &[String], by: SourceId) {
        let lookups = &mut self.distributions[distribution as usize].lookups;
        for variable in looked_up(names) {
            if lookups.len() < MAX_VARIABLES || lookups.contains_key(&variable) {
                lookups.entry(variable).or_default().record(by, (), &self.sources);
            }
        }
    }

    fn requires(&mut self, importer: u32, of: u32, by: SourceId) {
        let name = self.distributions[of as usize].distribution.name.clone();
        let requires = &mut self.distributions[importer as usize].requires;
        let at = requires.iter().position(|(other, _)| *other == name).unwrap_or(requires.len());
        if at == requires.len() {
            requires.push((name, Statements::default()));
        }
        requires[at].1.record(by, (), &self.sources);
    }

    /// The number of a set that says something. When there were too many, all that was said is forgotten: what is still
    /// needed is soon said again.
    fn source(&mut self, sees: &Set) -> SourceId {
        if let Some(number) = self.sources.number(sees) {
            return number;
        }
        self.sources = Sources::default();
        self.weighing.clear();
        for entry in &mut self.distributions {
            entry.requires.clear();
            entry.lookups.clear();
            entry.unforkable = Statements::default();
            entry.bytes = Statements::default();
        }
        for piece in &mut self.pieces {
            piece.measured = Statements::default();
            piece.failed = Statements::default();
        }
        self.changes += 1;
        let changes = self.changes;
        self.distributions.iter_mut().for_each(|entry| entry.changed = changes);
        // The first of new ones has a number.
        self.sources.number(sees).unwrap_or_default()
    }

    /// A zygote of `sees` that was asked to import `asked`, derived from one that had imported `had`, weighs that much beyond it.
    /// When there were too many, all are forgotten: each is made in vain once more at most.
    pub(crate) fn record_bytes(&mut self, sees: &Set, asked: &Set, had: &Set, bytes: u64) {
        if self.weights.len() >= MAX_WEIGHTS {
            self.weights.clear();
        }
        let weight = Weight { had: had.clone(), bytes };
        self.weights.insert((sees.clone(), asked.clone()), weight);
    }

    /// A zygote of `sees` that imported `own` beyond the one that it was derived from weighs that much beyond it: where all
    /// of these are of one distribution, it is that one's weight.
    pub(crate) fn record_bytes_alone(&mut self, sees: &Set, own: &Set, bytes: u64) {
        let owners = self.owners(own);
        let mut owners = owners.iter();
        if let (Some(owner), None) = (owners.next(), owners.next()) {
            let by = self.source(sees);
            self.distributions[owner as usize].bytes.record(by, bytes, &self.sources);
        }
    }

    /// A zygote of `sees` whose own imports took that long costs that much. Each set counts once, and none for much more
    /// than could be expected: the line is everybody's.
    pub(crate) fn record_memory(&mut self, sees: &Set, milliseconds: f64, bytes: u64) {
        let by = self.source(sees);
        if !self.weighing.insert(by) {
            return;
        }
        let expected = self.memory_model.predict(milliseconds).max(1.0);
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let bytes = (bytes as f64).clamp(expected / SURPRISE, expected * SURPRISE);
        self.memory_model.add(believable(milliseconds), bytes);
    }
}

/// What a zygote has left behind, in words.
fn left(imports: &Imports) -> String {
    let kinds = [
        (imports.threads, "threads or processes"),
        (imports.fds, "open files"),
        (imports.shared, "memory that forks would share"),
        (u32::from(imports.scratch), "more in /tmp than forks can be given"),
        (u32::from(imports.timers), "a timer set"),
    ];
    let kinds = kinds.iter().filter(|(count, _)| *count > 0).map(|(_, kind)| *kind);
    kinds.collect::<Vec<_>>().join(", ")
}

/// What a sandbox says of itself, within what can be: sums of it must stay numbers, whatever a hostile one says.
fn believable(milliseconds: f64) -> f64 {
    milliseconds.clamp(0.0, MAX_MS)
}
