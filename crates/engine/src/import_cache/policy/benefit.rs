//! What each zygote is worth: the import milliseconds that it spares recent calls and calls to
//! come.
//!
//! Some future calls will be of locks that were called before, others of new locks. The worth to a
//! new lock is estimated by leaving out: a known lock stands for a new one if only zygotes count
//! that some other lock can use, too. So a zygote that holds exactly what one lock needs is worth
//! nothing to new locks, and one that holds what many have in common is worth much, even while each
//! of the many has a zygote of its own.

use crate::import_cache::model::entry::Entry;
use crate::import_cache::model::profile::Profile;
use crate::import_cache::model::set::Set;

/// A handler and the number of its recent starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) weight: f64,
}

/// For each demand the zygotes that may serve it, best first.
#[derive(Debug)]
pub(crate) struct Benefit<'a> {
    demands: &'a [Demand<'a>],
    serving: Vec<Vec<(usize, f64)>>,
    /// By place, whether a zygote serves more than one lock.
    shared: Vec<bool>,
    /// Fraction of starts that are of new locks.
    unseen_ratio: f64,
}

impl<'a> Benefit<'a> {
    pub(crate) fn new(entries: &[Entry], demands: &'a [Demand<'a>], unseen_ratio: f64) -> Self {
        let serving = vec![Vec::new(); demands.len()];
        let mut benefit = Self { demands, serving, shared: Vec::new(), unseen_ratio };
        entries.iter().for_each(|entry| benefit.push(entry));
        benefit
    }

    /// Appends a zygote that exists or might be made.
    pub(crate) fn push(&mut self, entry: &Entry) {
        let at = self.shared.len();
        for (serving, demand) in self.serving.iter_mut().zip(self.demands) {
            let profile = demand.profile;
            if profile.may_use(entry) {
                let saved = profile.saved(&entry.modules);
                let before = serving.partition_point(|(_, other)| *other >= saved);
                serving.insert(before, (at, saved));
            }
        }
        self.shared.push(self.is_shared(entry.domain, &entry.sees));
    }

    /// Removes the last one.
    pub(crate) fn pop(&mut self) {
        self.shared.pop();
        let left = self.shared.len();
        self.serving.iter_mut().for_each(|serving| serving.retain(|(at, _)| *at < left));
    }

    fn is_shared(&self, domain: usize, sees: &Set) -> bool {
        let mut locks = self
            .demands
            .iter()
            .map(|demand| demand.profile)
            .filter(|profile| profile.domain == domain && sees.within(&profile.locked));
        let first = locks.next();
        first.is_some_and(|first| locks.any(|other| other.locked != first.locked))
    }

    /// Each demand, the milliseconds that it is spared, and its best zygote that another lock can
    /// use, too: where a new lock like it would start.
    pub(crate) fn best(&self) -> impl Iterator<Item = (&Demand<'a>, f64, Option<usize>)> {
        self.demands.iter().zip(&self.serving).map(|(demand, serving)| {
            let known = serving.first().map_or(0.0, |(_, saved)| *saved);
            let shared = serving.iter().find(|(at, _)| self.shared[*at]);
            let new = shared.map_or(0.0, |(_, saved)| *saved);
            (demand, self.mix(known, new), shared.map(|(at, _)| *at))
        })
    }

    /// Milliseconds that all demands are spared together.
    pub(crate) fn total(&self, alive: &[bool]) -> f64 {
        let spared = self.demands.iter().zip(&self.serving).map(|(demand, serving)| {
            let mut living = serving.iter().filter(|(at, _)| alive[*at]);
            let known = living.clone().next().map_or(0.0, |(_, saved)| *saved);
            let new = living.find(|(at, _)| self.shared[*at]).map_or(0.0, |(_, saved)| *saved);
            demand.weight * self.mix(known, new)
        });
        spared.sum()
    }

    /// By place, the milliseconds that all demands would lose without that zygote alone.
    pub(crate) fn missed(&self, alive: &[bool]) -> Vec<f64> {
        let mut missed = vec![0.0; alive.len()];
        for (demand, serving) in self.demands.iter().zip(&self.serving) {
            let mut miss = |shared: bool, part: f64| {
                let mut living =
                    serving.iter().filter(|(at, _)| alive[*at] && (self.shared[*at] || !shared));
                let Some((best, saved)) = living.next() else { return };
                let next = living.next().map_or(0.0, |(_, saved)| *saved);
                missed[*best] += demand.weight * part * (saved - next);
            };
            miss(false, 1.0 - self.unseen_ratio);
            miss(true, self.unseen_ratio);
        }
        missed
    }

    /// Milliseconds that all demands would gain from a zygote of `modules` in `domain` that looks
    /// up `lookups` in vain.
    pub(crate) fn gain(&self, domain: usize, sees: &Set, modules: &Set, lookups: &Set) -> f64 {
        let shared = self.is_shared(domain, sees);
        let gains = self.demands.iter().zip(&self.serving).map(|(demand, serving)| {
            let profile = demand.profile;
            let other = profile.domain != domain || !sees.within(&profile.locked);
            if other || profile.conflicts_with(sees, lookups) {
                return 0.0;
            }
            let saved = profile.saved(modules);
            let more = |best: Option<&(usize, f64)>| {
                (saved - best.map_or(0.0, |(_, saved)| *saved)).max(0.0)
            };
            let new = serving.iter().find(|(at, _)| self.shared[*at]);
            let new = if shared { more(new) } else { 0.0 };
            demand.weight * self.mix(more(serving.first()), new)
        });
        gains.sum()
    }

    fn mix(&self, known: f64, new: f64) -> f64 {
        (1.0 - self.unseen_ratio) * known + self.unseen_ratio * new
    }
}
