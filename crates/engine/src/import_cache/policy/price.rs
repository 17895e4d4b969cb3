//! What a zygote is expected to cost, and its best parent.

use crate::import_cache::model::entry::Entry;
use crate::import_cache::model::estimate::Estimate;
use crate::import_cache::model::set::Set;

/// Processor milliseconds that a zygote takes beside its imports: its directory, cgroup and root, a
/// fork and its inspection, spares and slots below it, and its end.
pub(crate) const MAKING_MS: f64 = 20.0;

/// Processor milliseconds and bytes that a zygote of `modules` is expected to cost beyond its best
/// parent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Price {
    pub(crate) milliseconds: f64,
    pub(crate) bytes: u64,
}

/// The best parent for a zygote: of the entries that it may be derived from, the one that spent the
/// most time on imports that this one needs, and none on others. What an entry loaded beyond what
/// it was asked for is loaded again by whatever is asked for the same.
pub(crate) fn ancestor(
    entries: &[Entry],
    domain: usize,
    sees: &Set,
    modules: &Set,
    estimate: &Estimate<'_>,
) -> Option<usize> {
    let fitting = entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.derivable && entry.serves(domain, sees))
        .filter(|(_, entry)| estimate.can_derive(&entry.sees, &entry.lookups, sees))
        .filter(|(_, entry)| entry.modules.within(modules) || entry.asked.within(modules));
    let spent = fitting.map(|(at, entry)| {
        let spent: f64 = entry.modules.iter().map(|piece| estimate.cost(piece)).sum();
        (spent, entry.used, at)
    });
    let most = spent.max_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    most.map(|(_, _, at)| at)
}

pub(crate) fn price(
    entries: &[Entry],
    domain: usize,
    sees: &Set,
    modules: &Set,
    estimate: &Estimate<'_>,
) -> Price {
    let (nothing, from) = (Set::default(), ancestor(entries, domain, sees, modules, estimate));
    let had = from.map_or(&nothing, |at| &entries[at].modules);
    let new = modules.iter().filter(|piece| !had.contains(*piece));
    let milliseconds: f64 = new.map(|piece| estimate.cost(piece)).sum();
    let weighed = estimate.last_bytes(sees, modules, had);
    let bytes = weighed.unwrap_or_else(|| estimate.expected_bytes(milliseconds));
    Price { milliseconds: MAKING_MS + milliseconds, bytes }
}
