//! Recording what zygotes and handlers report.

use std::collections::HashMap;

use sandbox::Imports;

use super::{Catalog, MAX_SIZES, ZygoteSize};
use crate::config::CREATION_TIMEOUT;
use crate::import_cache::model::lookups::looked_up;
use crate::import_cache::model::provenance::{SourceId, Sources, Statements, Trust};
use crate::import_cache::model::set::Set;

/// Longest import time that counts: a slower import has no zygote that could spare it.
pub(super) const MAX_MS: f64 = 1e3 * CREATION_TIMEOUT.as_secs_f64();

/// Assumed import time of a module that was never measured, in milliseconds.
const UNMEASURED_MS: f64 = 2.0;

/// Lookups remembered for one distribution. Each zygote still knows all of its own.
const MAX_VARIABLES: usize = 1024;

/// A measured size counts at most this many times more, or less, than the prediction.
const SURPRISE: f64 = 4.0;

impl Catalog {
    /// Records whether a handler imported a piece.
    pub(crate) fn record_use(&mut self, piece: u32, used: bool) {
        self.change(self.owner_of(piece));
        let piece = &mut self.pieces[piece as usize];
        piece.told = piece.told.saturating_add(1);
        piece.used = piece.used.saturating_add(u32::from(used));
    }

    /// Records that a handler imported `pieces` and took `milliseconds` in all to load. Each piece
    /// without a measurement gets an equal share, which is also stored in `own`.
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

    /// Records what a zygote that sees `sees` reports of its imports. Returns the pieces that it
    /// loaded.
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

    /// The source's number. When there are too many sources, all statements are forgotten: those
    /// that are still needed are soon made again.
    fn source(&mut self, sees: &Set) -> SourceId {
        if let Some(number) = self.sources.number(sees) {
            return number;
        }
        self.sources = Sources::default();
        self.measured_sources.clear();
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
        // There is room for the first of an empty table.
        self.sources.number(sees).unwrap_or_default()
    }

    /// Records the size beyond its parent of a zygote that sees `sees` and was asked to import
    /// `asked`; its parent had imported `had`. When there are too many sizes, all are forgotten:
    /// each zygote is then made in vain at most once more.
    pub(crate) fn record_bytes(&mut self, sees: &Set, asked: &Set, had: &Set, bytes: u64) {
        if self.sizes.len() >= MAX_SIZES {
            self.sizes.clear();
        }
        let size = ZygoteSize { had: had.clone(), bytes };
        self.sizes.insert((sees.clone(), asked.clone()), size);
    }

    /// Records the size beyond its parent of a zygote that imported `own` itself, as the
    /// distribution's size where all of `own` is of one distribution.
    pub(crate) fn record_bytes_alone(&mut self, sees: &Set, own: &Set, bytes: u64) {
        let owners = self.owners(own);
        let mut owners = owners.iter();
        if let (Some(owner), None) = (owners.next(), owners.next()) {
            let by = self.source(sees);
            self.distributions[owner as usize].bytes.record(by, bytes, &self.sources);
        }
    }

    /// Adds a measurement to the memory model. Each set counts once, and within a factor of the
    /// prediction: all tenants share the model.
    pub(crate) fn record_memory(&mut self, sees: &Set, milliseconds: f64, bytes: u64) {
        let by = self.source(sees);
        if !self.measured_sources.insert(by) {
            return;
        }
        let expected = self.memory_model.predict(milliseconds).max(1.0);
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let bytes = (bytes as f64).clamp(expected / SURPRISE, expected * SURPRISE);
        self.memory_model.add(believable(milliseconds), bytes);
    }
}

/// What a zygote left behind, in words.
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

/// Clamps a time that a sandbox reports, so that sums stay finite whatever a hostile one says.
fn believable(milliseconds: f64) -> f64 {
    milliseconds.clamp(0.0, MAX_MS)
}
