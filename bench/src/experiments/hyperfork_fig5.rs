//! HyperFork, figure 5: how long the Python benchmark itself takes, by the point at which the guest was cloned.

use anyhow::Result;

use super::Measured;
use super::fork_points::{self, INTERPRETER, LOADED, NONE, PACKAGES, POINTS, REHEARSED};
use crate::plot::{Line, Plot};
use crate::run::{Comparison, Run};
use crate::sample::float;
use crate::stage::Stage;

pub(super) const FIGURE: &str = "hyperfork_fig5";
pub(super) const TITLE: &str =
    "Mean time of a Pillow benchmark, shorter than the paper's, by fork point, with 95 % intervals";

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let mut run = Run::new(FIGURE, TITLE);
    let (rounds, runs) = stage.amount((5, 20), (2, 2));
    fork_points::measure(stage, &mut run, rounds, runs).await?;
    run.method.push(
        "what is compared is the benchmark alone, by the guest's own clock (`own_ms` in the samples); the latencies below contain all that came before it".to_owned(),
    );
    let paper = [
        (NONE, "2500 ± 9.14 ms, 100 %"),
        (LOADED, "2433 ± 8.36 ms, 97.3 %"),
        (INTERPRETER, "2409 ± 8.36 ms, 96.4 %"),
        (PACKAGES, "2401 ± 8.04 ms, 96.0 %"),
        (REHEARSED, ""),
    ];
    let (none, _) = mean(&own(&run, NONE));
    run.comparisons = paper
        .into_iter()
        .map(|(arm, paper)| {
            let (mean, interval) = mean(&own(&run, arm));
            Comparison {
                what: format!("the benchmark's own time, `{arm}`"),
                paper: paper.to_owned(),
                target: String::new(),
                ours: format!("{mean:.1} ± {interval:.1} ms, {:.1} %", mean / none * 100.0),
                reached: None,
            }
        })
        .collect();
    let line = |(at, arm): (usize, &&str)| {
        let (mean, interval) = mean(&own(&run, arm));
        let ends = [mean - interval, mean, mean + interval];
        Line {
            name: (*arm).to_owned(),
            points: ends.map(|ms| (float(at), ms, String::new())).to_vec(),
            cited: false,
        }
    };
    let plot = Plot {
        title: TITLE.to_owned(),
        x: format!("fork point, in the order of the legend ({})", run.here),
        y: "mean and its 95 % interval, ms".to_owned(),
        log_x: false,
        log_y: false,
        room: 1.5,
        lines: POINTS.iter().enumerate().map(line).collect(),
    };
    Ok(Measured { run, plots: vec![("plot", plot)] })
}

fn own(run: &Run, arm: &str) -> Vec<f64> {
    run.answered(arm).iter().map(|sample| sample.own_ms).collect()
}

/// The mean, and half of its 95 % interval by the normal distribution.
fn mean(values: &[f64]) -> (f64, f64) {
    let n = float(values.len());
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, 1.96 * (variance / n).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_has_the_interval_of_its_standard_error() {
        let (mean, half) = mean(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((mean - 3.0).abs() < 1e-9);
        // Standard deviation √2.5, of five values.
        assert!((half - 1.96 * 0.5_f64.sqrt()).abs() < 1e-9, "{half}");
    }
}
