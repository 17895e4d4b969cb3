//! Samples and what is said of them: nearest-rank quantiles, a bootstrap interval for the median, and warnings that
//! turn statistics into advice.

use serde::Serialize;

/// How a load was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// A fixed number of clients, each of which sends when it has its answer.
    Closed,
    /// A fixed rate, whatever the answers do; latency counts from when a call was due.
    Open,
}

/// One call, as it stands in `raw/samples.csv.gz`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    /// What was measured.
    pub(crate) arm: String,
    /// In which round.
    pub(crate) round: u32,
    /// How load was made.
    pub(crate) mode: Mode,
    /// Clients (closed) or calls per second (open).
    pub(crate) level: f64,
    /// Milliseconds from the start of the cell until the call was due.
    pub(crate) at_ms: f64,
    /// From when it was due until it was really sent: the load generator's own lateness. It is part of the latency.
    pub(crate) late_ms: f64,
    /// Until the first byte of the answer.
    pub(crate) latency_ms: f64,
    /// Of the latency, what the function itself says that it worked; 0 where it says nothing.
    pub(crate) own_ms: f64,
    /// Modules that it had to import from packages, as it says.
    pub(crate) imported: usize,
    /// Until the caller had nothing left to do or to wait for.
    pub(crate) total_ms: f64,
    /// `Lambswool-Start`, where there is one.
    pub(crate) start: String,
    /// `Server-Timing`, where there is one.
    pub(crate) stages: String,
    /// Why there is no answer; empty when there is one.
    pub(crate) error: String,
}

/// What is said of some durations in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Quantiles {
    /// How many.
    pub(crate) n: usize,
    /// Their mean.
    pub(crate) mean: f64,
    /// Their median.
    pub(crate) p50: f64,
    /// 95 % interval of the median: percentile bootstrap over samples, 1000 resamples.
    pub(crate) p50_low: f64,
    /// Its upper end.
    pub(crate) p50_high: f64,
    /// 90th percentile.
    pub(crate) p90: f64,
    /// 99th percentile.
    pub(crate) p99: f64,
    /// 99.9th percentile.
    pub(crate) p999: f64,
    /// The largest.
    pub(crate) max: f64,
}

const RESAMPLES: usize = 1000;

impl Quantiles {
    /// None of nothing.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let max = *sorted.last()?;
        let (p50_low, p50_high) = median_interval(&sorted);
        Some(Self {
            n: sorted.len(),
            mean: sorted.iter().sum::<f64>() / float(sorted.len()),
            p50: rank(&sorted, 500),
            p50_low,
            p50_high,
            p90: rank(&sorted, 900),
            p99: rank(&sorted, 990),
            p999: rank(&sorted, 999),
            max,
        })
    }

    /// The largest quantiles of few samples are only their maximum: says which.
    pub(crate) fn shortage(&self) -> Option<&'static str> {
        match self.n {
            0..100 => Some("p99 and p99.9 are the maximum"),
            100..1000 => Some("p99.9 is the maximum"),
            _ => None,
        }
    }
}

/// Nearest rank, in thousandths.
fn rank(sorted: &[f64], thousandths: usize) -> f64 {
    let at = (sorted.len() * thousandths).div_ceil(1000).clamp(1, sorted.len());
    sorted[at - 1]
}

/// The median; NaN of nothing.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 500)
}

/// A quantile, in thousandths; NaN of nothing.
pub(crate) fn quantile(values: &[f64], thousandths: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    if sorted.is_empty() { f64::NAN } else { rank(&sorted, thousandths) }
}

/// The 95 % interval of a median: percentile bootstrap. Of one value or more.
pub(crate) fn median_interval(values: &[f64]) -> (f64, f64) {
    // Seeded: the same samples give the same summary.
    let mut random = fastrand::Rng::with_seed(20_180_711);
    let mut drawn = vec![0.0; values.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            drawn.fill_with(|| values[random.usize(..values.len())]);
            let middle = drawn.len().div_ceil(2) - 1;
            *drawn.select_nth_unstable_by(middle, f64::total_cmp).1
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    (rank(&medians, 25), rank(&medians, 975))
}

/// The slope of a least-squares line and its standard error.
pub(crate) fn slope(points: &[(f64, f64)]) -> (f64, f64) {
    let n = float(points.len());
    let (mx, my) =
        (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let sxx: f64 = points.iter().map(|p| (p.0 - mx).powi(2)).sum();
    let slope = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum::<f64>() / sxx;
    let rest: f64 = points.iter().map(|p| (p.1 - my - slope * (p.0 - mx)).powi(2)).sum();
    (slope, (rest / (n - 2.0) / sxx).sqrt())
}

/// A count as a float.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
pub(crate) fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=1000).rev().map(f64::from).collect();
        let q = Quantiles::of(&values).unwrap();
        assert_eq!((q.p50, q.p90, q.p99, q.p999, q.max), (500.0, 900.0, 990.0, 999.0, 1000.0));
        assert!(q.p50_low < 500.0 && q.p50_high > 500.0, "{q:?}");
        assert!(q.p50_low > 440.0 && q.p50_high < 560.0, "{q:?}");
        assert!(q.shortage().is_none());
    }

    #[test]
    fn one_value_is_its_own_summary_and_none_has_none() {
        let q = Quantiles::of(&[3.0]).unwrap();
        assert_eq!((q.p50, q.p50_low, q.p50_high, q.p999), (3.0, 3.0, 3.0, 3.0));
        assert!(q.shortage().is_some());
        assert!(Quantiles::of(&[]).is_none());
    }

    #[test]
    fn a_line_has_its_slope_and_no_error() {
        let points: Vec<_> = (0..10).map(|x| (f64::from(x), 5.0 + 2.0 * f64::from(x))).collect();
        let (rise, error) = slope(&points);
        assert!((rise - 2.0).abs() < 1e-9 && error < 1e-9);
    }
}
