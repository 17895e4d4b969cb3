//! HyperFork, figure 4: processor time of 64 runs of a Python benchmark, by the point at which the guest was cloned.

use anyhow::Result;

use super::Measured;
use super::fork_points::{self, INTERPRETER, LOADED, NONE, PACKAGES, POINTS, REHEARSED};
use crate::plot::{Line, Plot};
use crate::run::{Comparison, Run};
use crate::sample::float;
use crate::stage::Stage;

pub(super) const FIGURE: &str = "hyperfork_fig4";
pub(super) const TITLE: &str =
    "Processor time of 64 runs of a Pillow benchmark, shorter than the paper's, by fork point";

/// By rounds, so that arms take turns.
const ROUNDS: u32 = 4;
const RUNS: usize = 16;

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let mut run = Run::new(FIGURE, TITLE);
    let (rounds, runs) = stage.amount((ROUNDS, RUNS), (2, 2));
    fork_points::measure(stage, &mut run, rounds, runs).await?;
    run.method.push(
        "cumulative processor time: the load generator's, over the cells of an arm; the plot has a point after each round".to_owned(),
    );
    let paper = [(LOADED, "−25 %"), (INTERPRETER, "−27 %"), (PACKAGES, "−30 %"), (REHEARSED, "")];
    let total = |arm: &str| cumulative(&run, arm).last().map_or(f64::NAN, |(_, seconds)| *seconds);
    let none = total(NONE);
    run.comparisons = paper
        .into_iter()
        .map(|(arm, paper)| Comparison {
            what: format!("processor time, `{arm}` against `{NONE}`"),
            paper: paper.to_owned(),
            target: String::new(),
            ours: format!(
                "{:+.1} % ({:.2} against {none:.2} s)",
                (total(arm) / none - 1.0) * 100.0,
                total(arm)
            ),
            reached: None,
        })
        .collect();
    let line = |arm: &&str| Line {
        name: (*arm).to_owned(),
        points: cumulative(&run, arm).into_iter().map(|(n, s)| (n, s, String::new())).collect(),
        cited: false,
    };
    let plot = Plot {
        title: TITLE.to_owned(),
        x: format!("runs ({})", run.here),
        y: "processor time, seconds".to_owned(),
        log_x: false,
        log_y: false,
        room: 1.3,
        lines: POINTS.iter().map(line).collect(),
    };
    Ok(Measured { run, plots: vec![("plot", plot)] })
}

/// Runs so far, and the seconds that they took.
fn cumulative(run: &Run, arm: &str) -> Vec<(f64, f64)> {
    let (mut runs, mut seconds) = (0, 0.0);
    let cells = run.cells.iter().filter(|cell| cell.arm == arm);
    cells
        .map(|cell| {
            runs += cell.samples.len();
            seconds += cell.spent.own;
            (float(runs), seconds)
        })
        .collect()
}
