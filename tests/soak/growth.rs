//! Whether a worker or its warden keeps something of each call: descriptors, memory.
//!
//! Descriptors are compared between calm points that are equal, with as many zygotes and sandboxed processes: there each has
//! its reason, and those that were lost have none. Those of cgroups are left out, because empty ones are kept for a while and
//! given up again: no point is calm with many of them, and one that was removed counts. Memory has noise, and is judged by its slope over all calm points.

use std::collections::BTreeMap;

use crate::census::{Calm, Process};

/// Descriptors that a process may have more than at an earlier, equal calm point: slots are prepared and given back meanwhile,
/// which hold a handful each.
const MORE_FDS: usize = 32;

/// KiB that an allocator takes for each new mixture of large bodies, and then no more: of a worker, of a warden.
const ALLOCATOR_KIB: (f64, f64) = (8000.0, 512.0);

/// KiB that it may take beyond for a thousand calls: half a kilobyte a call, and a sixteenth of that.
const THOUSAND_CALLS_KIB: (f64, f64) = (512.0, 32.0);

/// Calls after which a slope says something.
const ENOUGH: u64 = 1000;

/// Calm points before that: whoever is new has not yet taken what it will keep.
const WARM_UP: usize = 3;

/// One line of the judgement.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) words: String,
    pub(crate) well: bool,
}

/// Judges the calm points of one worker.
pub(crate) fn judge(points: &[Calm]) -> Vec<Said> {
    let points = points.get(WARM_UP..).unwrap_or_default();
    let worker = |calm: &Calm| calm.worker;
    let warden = |calm: &Calm| calm.warden;
    vec![
        descriptors("worker", points, worker),
        descriptors("warden", points, warden),
        memory("worker", points, worker, ALLOCATOR_KIB.0, THOUSAND_CALLS_KIB.0),
        memory("warden", points, warden, ALLOCATOR_KIB.1, THOUSAND_CALLS_KIB.1),
    ]
}

/// Compares calm points with the first that is equal to them. Of the later half the one with least: what is lost stays lost,
/// and what is only kept for a while, as some empty cgroups of each zygote, comes and goes.
fn descriptors(whose: &str, points: &[Calm], of: impl Fn(&Calm) -> Process) -> Said {
    let mut equal: BTreeMap<_, Vec<&Calm>> = BTreeMap::new();
    for calm in points {
        let same = equal.entry((calm.zygotes, calm.sandboxes)).or_default();
        if same.last().is_none_or(|last| last.calls != calm.calls) {
            same.push(calm);
        }
    }
    let mut compared = 0;
    let mut most: Option<(usize, &Calm, &Calm)> = None;
    for same in equal.values() {
        let [before, later @ ..] = &same[..] else { continue };
        compared += later.len();
        let half = &later[later.len() / 2..];
        let Some(least) = half.iter().min_by_key(|calm| of(calm).fds) else { continue };
        let more = of(least).fds.saturating_sub(of(before).fds);
        if most.is_none_or(|(most, ..)| more > most) {
            most = Some((more, before, least));
        }
    }
    let Some((more, before, after)) = most else {
        let words = format!("the {whose}'s descriptors: NOT JUDGED, no two calm points are equal");
        return Said { words, well: true };
    };
    let words = format!(
        "the {whose}'s descriptors: {compared} equal calm points, {more} more stayed, from {} after {} calls to {} after {}; {MORE_FDS} may be",
        of(before).fds,
        before.calls,
        of(after).fds,
        after.calls
    );
    Said { words, well: more <= MORE_FDS }
}

fn memory(
    whose: &str,
    points: &[Calm],
    of: impl Fn(&Calm) -> Process,
    allocator: f64,
    each_thousand: f64,
) -> Said {
    let calls = |point: Option<&Calm>| point.map_or(0, |point| point.calls);
    let over = calls(points.last()) - calls(points.first());
    if over < ENOUGH {
        let words = format!(
            "the {whose}'s memory: NOT JUDGED, {over} calls between its calm points say nothing, {ENOUGH} would"
        );
        return Said { words, well: true };
    }
    let thousands = over as f64 / 1000.0;
    let grown = slope(points, |calm| of(calm).kib as f64) * thousands;
    let most = allocator + each_thousand * thousands;
    let words =
        format!("the {whose}'s memory: {grown:.0} KiB more in {over} calls, {most:.0} may be");
    Said { words, well: grown <= most }
}

/// Least squares, per thousand calls.
fn slope(points: &[Calm], of: impl Fn(&Calm) -> f64) -> f64 {
    let count = points.len() as f64;
    let x = |calm: &Calm| calm.calls as f64 / 1000.0;
    let (mean_x, mean_y) =
        (points.iter().map(x).sum::<f64>() / count, points.iter().map(&of).sum::<f64>() / count);
    let covariance: f64 = points.iter().map(|calm| (x(calm) - mean_x) * (of(calm) - mean_y)).sum();
    let variance: f64 = points.iter().map(|calm| (x(calm) - mean_x).powi(2)).sum();
    if variance > 0.0 { covariance / variance } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calm points, each a thousand calls after the one before: zygotes, and descriptors and KiB of both.
    fn points(rows: &[(usize, usize, u64)]) -> Vec<Calm> {
        let rows = [&rows[..1]; WARM_UP].concat().into_iter().chain(rows.iter().copied());
        rows.enumerate()
            .map(|(at, (zygotes, fds, kib))| Calm {
                epoch: 0,
                calls: 1000 * at as u64,
                zygotes,
                sandboxes: 2 * zygotes,
                groups: 2 * zygotes,
                bytes: 0,
                worker: Process { fds: 100, kib: 50_000 },
                warden: Process { fds, kib },
            })
            .collect()
    }

    fn judged(rows: &[(usize, usize, u64)]) -> Vec<bool> {
        judge(&points(rows)).iter().map(|said| said.well).collect()
    }

    #[test]
    fn descriptors_that_stay_are_found_at_equal_calm_points_only() {
        let lost = [(2, 227, 4000), (3, 224, 4000), (2, 307, 4000), (3, 383, 4000)];
        assert_eq!(judged(&lost), [true, false, true, true]);
        let slowly: Vec<_> = (0..9).map(|at| (2, 200 + 10 * at, 4000)).collect();
        assert_eq!(judged(&slowly), [true, false, true, true]);
        let comes_and_goes = [(2, 296, 4000), (2, 307, 4000), (2, 376, 4000), (2, 314, 4000)];
        assert_eq!(judged(&comes_and_goes), [true; 4]);
        // More zygotes have more.
        let more = [(2, 120, 4000), (3, 170, 4000), (4, 230, 4000), (2, 130, 4000)];
        assert_eq!(judged(&more), [true; 4]);
    }

    #[test]
    fn half_a_kilobyte_of_each_call_is_found_in_the_end() {
        let grows =
            |each: u64| -> Vec<_> { (0..30).map(|at| (2, 100, 4000 + each * at)).collect() };
        assert_eq!(judged(&grows(512)), [true, true, true, false]);
        assert_eq!(judged(&grows(8)), [true; 4]);
    }

    #[test]
    fn what_was_not_judged_is_said() {
        let said = judge(&points(&[(2, 100, 4000)]));
        assert!(said.iter().all(|one| one.well && one.words.contains("NOT JUDGED")), "{said:?}");
    }
}
