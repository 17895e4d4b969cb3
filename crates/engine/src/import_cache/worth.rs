//! What each zygote is worth: the import milliseconds that it spares the calls of late.

use super::book::Book;
use super::profile::Profile;
use super::set::Set;
use super::tree::Entry;

/// A handler, and how often it was started of late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) weight: f64,
}

/// For each demand the zygotes that may serve it, the one that spares it most first.
#[derive(Debug)]
pub(crate) struct Worth<'a> {
    demands: &'a [Demand<'a>],
    serving: Vec<Vec<(usize, f64)>>,
}

impl<'a> Worth<'a> {
    pub(crate) fn new(entries: &[Entry], demands: &'a [Demand<'a>]) -> Self {
        let mut worth = Self { demands, serving: vec![Vec::new(); demands.len()] };
        entries.iter().enumerate().for_each(|(at, entry)| worth.add(at, entry));
        worth
    }

    /// Adds a zygote that is, or might be, at that place.
    pub(crate) fn add(&mut self, at: usize, entry: &Entry) {
        for (serving, demand) in self.serving.iter_mut().zip(self.demands) {
            let profile = demand.profile;
            if entry.serves(profile.realm, &profile.locked) {
                let saved = profile.saved(&entry.modules);
                let before = serving.partition_point(|(_, other)| *other >= saved);
                serving.insert(before, (at, saved));
            }
        }
    }

    /// Takes a zygote away again.
    pub(crate) fn remove(&mut self, at: usize) {
        self.serving.iter_mut().for_each(|serving| serving.retain(|(other, _)| *other != at));
    }

    /// What the best zygote spares each demand, and which it is.
    pub(crate) fn best(&self) -> impl Iterator<Item = (&Demand<'a>, Option<(usize, f64)>)> {
        self.demands.iter().zip(self.serving.iter().map(|serving| serving.first().copied()))
    }

    /// What all demands are spared together.
    pub(crate) fn total(&self, alive: &[bool]) -> f64 {
        let spared = self.demands.iter().zip(&self.serving).map(|(demand, serving)| {
            let best = serving.iter().find(|(at, _)| alive[*at]);
            demand.weight * best.map_or(0.0, |(_, saved)| *saved)
        });
        spared.sum()
    }

    /// By place, how much less all demands would be spared without that zygote alone.
    pub(crate) fn missed(&self, alive: &[bool]) -> Vec<f64> {
        let mut missed = vec![0.0; alive.len()];
        for (demand, serving) in self.demands.iter().zip(&self.serving) {
            let mut living = serving.iter().filter(|(at, _)| alive[*at]);
            let Some((best, saved)) = living.next() else { continue };
            let next = living.next().map_or(0.0, |(_, saved)| *saved);
            missed[*best] += demand.weight * (saved - next);
        }
        missed
    }

    /// How much more all demands would be spared with a zygote of `modules` in `realm`.
    pub(crate) fn gain(&self, realm: usize, sees: &Set, modules: &Set) -> f64 {
        let gains = self.best().map(|(demand, best)| {
            let profile = demand.profile;
            if profile.realm != realm || !sees.within(&profile.locked) {
                return 0.0;
            }
            let saved = profile.saved(modules) - best.map_or(0.0, |(_, saved)| saved);
            demand.weight * saved.max(0.0)
        });
        gains.sum()
    }
}

/// Milliseconds and bytes that a zygote of `modules` is expected to cost beyond the best of those it can come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Price {
    pub(crate) milliseconds: f64,
    pub(crate) bytes: u64,
}

/// From which entry a zygote would best be derived: the one that has spent most on what it imports, and on nothing else.
pub(crate) fn ancestor(
    entries: &[Entry],
    realm: usize,
    sees: &Set,
    modules: &Set,
    book: &Book,
) -> Option<usize> {
    let fitting = entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.serves(realm, sees) && entry.modules.within(modules));
    let spent = fitting.map(|(at, entry)| {
        let spent: f64 = entry.modules.iter().map(|piece| book.cost(piece)).sum();
        (spent, entry.used, at)
    });
    let most = spent.max_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    most.map(|(_, _, at)| at)
}

pub(crate) fn price(
    entries: &[Entry],
    realm: usize,
    sees: &Set,
    modules: &Set,
    book: &Book,
) -> Price {
    let from = ancestor(entries, realm, sees, modules, book).map(|at| &entries[at].modules);
    let new = modules.iter().filter(|piece| from.is_none_or(|had| !had.contains(*piece)));
    let milliseconds: f64 = new.map(|piece| book.cost(piece)).sum();
    Price { milliseconds, bytes: book.weigh(milliseconds) }
}
