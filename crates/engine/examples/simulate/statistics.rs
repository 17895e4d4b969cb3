//! Means with their 95 % intervals, by resampling calls.

use serde::Serialize;

const RESAMPLES: usize = 2000;

/// A mean and where it lies with 95 % confidence.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Mean {
    pub(crate) mean: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl std::fmt::Display for Mean {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:7.2} [{:.2}, {:.2}]", self.mean, self.low, self.high)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of calls")]
pub(crate) fn average(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

/// The mean of `values`, each a call's, or the difference that a call's two values have.
pub(crate) fn mean(values: &[f64]) -> Mean {
    let mut random = fastrand::Rng::with_seed(1);
    let resampled = (0..RESAMPLES)
        .map(|_| average((0..values.len()).map(|_| values[random.usize(..values.len().max(1))])));
    let mut means: Vec<f64> = resampled.collect();
    means.sort_by(f64::total_cmp);
    let at = |part: usize| means.get(RESAMPLES * part / 1000).copied().unwrap_or(0.0);
    Mean { mean: average(values.iter().copied()), low: at(25), high: at(975) }
}
