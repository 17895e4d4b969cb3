//! What is known of distributions and their modules: numbers for their names, and what was measured of them.
//!
//! A *piece* is one module of one distribution: pandas 2.1's `pandas.core.frame` is another piece than pandas 2.2's.
//! The book grows with what is deployed to a worker and forgets nothing while that lives.

use std::collections::HashMap;

use sandbox::Imports;

use super::line::Line;
use super::set::Set;
use crate::package::Distribution;

/// The longest that an import can take: a zygote is given up after two minutes.
const MOST_MS: f64 = 120_000.0;

/// What a module costs as long as nobody has measured it, in milliseconds.
const UNMEASURED_MS: f64 = 2.0;

/// A declared module stands for all that it imports, until that was seen.
const DECLARED_MS: f64 = 20.0;

#[derive(Clone, Debug, Default)]
pub(crate) struct Book {
    distributions: Vec<Entry>,
    numbers: HashMap<Distribution, u32>,
    pieces: Vec<Piece>,
    places: HashMap<(u32, String), u32>,
    weighed: Line,
}

#[derive(Clone, Debug)]
struct Entry {
    distribution: Distribution,
    pieces: Vec<u32>,
    /// Names of the distributions whose modules its modules were seen to import.
    requires: Vec<String>,
    /// Why nothing that imported it can be forked.
    unforkable: Option<String>,
}

#[derive(Clone, Debug)]
struct Piece {
    distribution: u32,
    module: String,
    cost: Cost,
    /// Handlers of which it is known whether they import it, and how many of those do.
    told: u32,
    used: u32,
    /// What a zygote saw that could not import it.
    failed: Option<Set>,
}

/// A module's own import time in milliseconds, imports inside it apart.
#[derive(Clone, Copy, Debug)]
enum Cost {
    Declared,
    /// Its share of what a handler took to load.
    Shared(f64),
    Measured(f64),
}

impl Book {
    /// The number of a distribution.
    pub(crate) fn number(&mut self, distribution: &Distribution) -> u32 {
        if let Some(number) = self.numbers.get(distribution) {
            return *number;
        }
        let number = count(self.distributions.len());
        self.numbers.insert(distribution.clone(), number);
        self.distributions.push(Entry {
            distribution: distribution.clone(),
            pieces: Vec::new(),
            requires: Vec::new(),
            unforkable: None,
        });
        number
    }

    /// The piece of that name among what `set` brings; none when nobody in it brings such a module.
    pub(crate) fn piece(&mut self, set: &Set, module: &str) -> Option<u32> {
        let distribution = self.owner(set, module)?;
        let place = (distribution, module.to_owned());
        if let Some(piece) = self.places.get(&place) {
            return Some(*piece);
        }
        let piece = count(self.pieces.len());
        self.places.insert(place, piece);
        let module = module.to_owned();
        self.pieces.push(Piece {
            distribution,
            module,
            cost: Cost::Declared,
            told: 0,
            used: 0,
            failed: None,
        });
        self.distributions[distribution as usize].pieces.push(piece);
        Some(piece)
    }

    fn owner(&self, set: &Set, module: &str) -> Option<u32> {
        let claims = set
            .iter()
            .filter_map(|number| Some((self.distribution(number).claim(module)?, number)));
        claims.max_by_key(|(length, _)| *length).map(|(_, number)| number)
    }

    /// All pieces that the distributions are known to have.
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

    /// The pieces' modules, in the order in which they were first seen: what is imported before what imports it.
    pub(crate) fn modules(&self, pieces: &Set) -> Vec<String> {
        pieces.iter().map(|piece| self.pieces[piece as usize].module.clone()).collect()
    }

    /// Milliseconds that importing the piece takes by itself.
    pub(crate) fn cost(&self, piece: u32) -> f64 {
        match self.pieces[piece as usize].cost {
            Cost::Declared => DECLARED_MS,
            Cost::Shared(cost) | Cost::Measured(cost) => cost,
        }
    }

    /// How likely a handler imports a piece of what it locked, as long as nobody saw whether it does.
    pub(crate) fn chance(&self, piece: u32) -> f64 {
        let piece = &self.pieces[piece as usize];
        (f64::from(piece.used) + 0.5) / (f64::from(piece.told) + 1.0)
    }

    /// A handler was seen to import a piece, or not to.
    pub(crate) fn tell(&mut self, piece: u32, used: bool) {
        let piece = &mut self.pieces[piece as usize];
        piece.told = piece.told.saturating_add(1);
        piece.used = piece.used.saturating_add(u32::from(used));
    }

    /// A handler that imported these took `milliseconds` in all to load.
    pub(crate) fn share(&mut self, pieces: &Set, milliseconds: f64) {
        let milliseconds = believable(milliseconds);
        let fresh: Vec<u32> = pieces
            .iter()
            .filter(|piece| matches!(self.pieces[*piece as usize].cost, Cost::Declared))
            .collect();
        let known: f64 = pieces
            .iter()
            .filter(|piece| !fresh.contains(piece))
            .map(|piece| self.cost(piece))
            .sum();
        #[expect(clippy::cast_precision_loss, reason = "a count of modules")]
        let each = ((milliseconds - known) / fresh.len().max(1) as f64).max(0.0);
        let each = if milliseconds > 0.0 { each } else { UNMEASURED_MS };
        for piece in fresh {
            self.pieces[piece as usize].cost = Cost::Shared(each);
        }
    }

    /// Learns from what a zygote that sees `sees` did when it imported. The pieces that it loaded.
    pub(crate) fn measure(&mut self, sees: &Set, imports: &Imports) -> Set {
        let mut loaded = Vec::with_capacity(imports.files.len());
        for file in &imports.files {
            let Some(piece) = self.piece(sees, &file.module) else { continue };
            loaded.push(piece);
            let milliseconds = believable(file.milliseconds);
            self.pieces[piece as usize].cost = match self.pieces[piece as usize].cost {
                Cost::Measured(before) => Cost::Measured(0.5 * (before + milliseconds)),
                _ => Cost::Measured(milliseconds),
            };
            let Some(importer) = self.owner(sees, &file.importer) else { continue };
            let of = self.pieces[piece as usize].distribution;
            let name = &self.distributions[of as usize].distribution.name;
            if of != importer && !self.distributions[importer as usize].requires.contains(name) {
                let name = name.clone();
                self.distributions[importer as usize].requires.push(name);
            }
        }
        for module in &imports.left_by {
            if let Some(owner) = self.owner(sees, module) {
                let why = format!("{module} leaves threads or open files behind");
                self.distributions[owner as usize].unforkable.get_or_insert(why);
            }
        }
        for (module, _) in &imports.failed {
            if let Some(piece) = self.piece(sees, module) {
                self.pieces[piece as usize].failed = Some(sees.clone());
            }
        }
        loaded.into_iter().collect()
    }

    /// A zygote whose own imports took that long costs that much.
    pub(crate) fn weighed(&mut self, milliseconds: f64, bytes: u64) {
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        self.weighed.add(milliseconds, bytes as f64);
    }

    /// What a zygote whose own imports take that long can be expected to cost.
    pub(crate) fn weigh(&self, milliseconds: f64) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is at least 1"
        )]
        let bytes = self.weighed.at(milliseconds).max(1.0) as u64;
        bytes
    }

    /// What can be imported by itself out of `pieces`: without what cannot be forked from, and without what was seen to
    /// import another distribution of which none of the name is among them.
    pub(crate) fn closed(&self, pieces: &Set) -> Set {
        let mut left = self.owners(pieces);
        loop {
            let names: Vec<&str> =
                left.iter().map(|number| &*self.distribution(number).name).collect();
            let stands = |number: u32| {
                let entry = &self.distributions[number as usize];
                entry.unforkable.is_none()
                    && entry.requires.iter().all(|name| names.contains(&name.as_str()))
            };
            let standing: Set = left.iter().filter(|number| stands(*number)).collect();
            if standing.len() == left.len() {
                let fails = |piece: u32| {
                    self.pieces[piece as usize]
                        .failed
                        .as_ref()
                        .is_some_and(|sees| left.within(sees))
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

/// What a sandbox says of itself, within what can be: sums of it must stay numbers, whatever a hostile one says.
fn believable(milliseconds: f64) -> f64 {
    milliseconds.clamp(0.0, MOST_MS)
}

#[cfg(test)]
pub(super) mod tests {
    use sandbox::LoadedFile;

    use super::*;

    pub(in super::super) fn brings(name: &str, modules: &[&str]) -> Distribution {
        Distribution {
            name: name.to_owned(),
            version: "1".to_owned(),
            wheel: format!("{name}-1"),
            modules: modules.iter().map(|module| (*module).to_owned()).collect(),
        }
    }

    /// A book of that many distributions of one module each; distribution and piece have the same number.
    pub(in super::super) fn simple(count: u8) -> Book {
        let mut book = Book::default();
        for at in 0..count {
            let name = char::from(b'a' + at).to_string();
            let number = book.number(&brings(&name, &[&name]));
            book.piece(&[number].into_iter().collect(), &name);
        }
        book
    }

    fn file(module: &str, milliseconds: f64, importer: &str) -> LoadedFile {
        LoadedFile {
            module: module.to_owned(),
            path: format!("/opt/python/{module}.py"),
            milliseconds,
            importer: importer.to_owned(),
        }
    }

    #[test]
    fn a_lie_about_time_stays_within_what_can_be() {
        let mut book = simple(2);
        for said in [f64::MAX, -f64::MAX, f64::INFINITY] {
            let file = file("a", said, "");
            let imports = Imports { files: vec![file], ..Imports::default() };
            let sees: Set = [0].into_iter().collect();
            book.measure(&sees, &imports);
            assert!((0.0..=MOST_MS).contains(&book.cost(0)), "{said}");
        }
    }

    #[test]
    fn a_zygotes_report_teaches_costs_and_who_needs_whom() {
        let mut book = Book::default();
        let sees: Set = [
            book.number(&brings("requests", &["requests"])),
            book.number(&brings("urllib3", &["urllib3"])),
        ]
        .into_iter()
        .collect();
        let files = vec![
            file("requests", 8.0, ""),
            file("urllib3", 5.0, "requests"),
            file("json", 1.0, ""),
        ];
        let loaded = book.measure(&sees, &Imports { files, ..Imports::default() });
        assert_eq!(book.modules(&loaded), ["requests", "urllib3"]);
        assert_eq!(loaded.iter().map(|piece| book.cost(piece)).collect::<Vec<_>>(), [8.0, 5.0]);
        let requests: Set = loaded.iter().take(1).collect();
        assert!(book.closed(&requests).is_empty(), "requests alone cannot be imported");
        assert_eq!(book.closed(&loaded), loaded);
    }

    #[test]
    fn what_leaves_threads_behind_and_what_needs_it_is_left_out() {
        let mut book = Book::default();
        let names = ["torch", "lightning", "numpy"];
        let sees: Set = names.map(|name| book.number(&brings(name, &[name]))).into_iter().collect();
        let files = vec![
            file("numpy", 5.0, ""),
            file("lightning", 1.0, ""),
            file("torch", 9.0, "lightning"),
        ];
        let left_by = vec!["torch".to_owned()];
        let loaded = book.measure(&sees, &Imports { files, left_by, ..Imports::default() });
        let closed = book.closed(&loaded);
        assert_eq!(book.modules(&closed), ["numpy"]);
    }

    #[test]
    fn a_load_is_shared_among_the_modules_that_nobody_measured() {
        let mut book = Book::default();
        let sees: Set = [book.number(&brings("a", &["a", "b"]))].into_iter().collect();
        let known =
            book.measure(&sees, &Imports { files: vec![file("a", 4.0, "")], ..Imports::default() });
        let all: Set =
            ["a", "a.x", "b"].into_iter().filter_map(|name| book.piece(&sees, name)).collect();
        book.share(&all, 10.0);
        assert_eq!(all.iter().map(|piece| book.cost(piece)).collect::<Vec<_>>(), [4.0, 3.0, 3.0]);
        assert!(known.within(&all));
    }
}
