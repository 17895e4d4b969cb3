//! One file for each figure.

mod ablation_isolation;
mod bundled;
mod cold_targets;
mod density;
mod first_calls;
mod fork_points;
mod hotos_fig3;
mod hyperfork_fig2;
mod hyperfork_fig3;
mod hyperfork_fig4;
mod hyperfork_fig5;
mod idle_density;
mod import_targets;
mod isolation;
mod lambda_door;
mod microvm_targets;
mod policies;
mod resumes;
mod sock_fig02_mount_scalability;
mod sock_fig14_containers;
mod sock_fig15_preinitialisation;
mod sock_fig16_reuse;
mod sock_fig17_preimported;
mod sock_fig18_each_cache;
mod sock_fig19_interaction;
mod sock_fig20_scalability;

use std::time::Duration;

use anyhow::Result;

use crate::load::{Pending, Target, Until, closed, open};
use crate::plot::{Line, Plot};
use crate::run::{Comparison, Run};
use crate::sample::{Mode, float, median};
use crate::stage::Stage;

/// A figure that can be measured.
pub(crate) struct Experiment {
    /// Its name on the command line.
    pub(crate) figure: &'static str,
    /// What it shows.
    pub(crate) title: &'static str,
    /// Measures it.
    pub(crate) measure: for<'a> fn(&'a Stage) -> Pending<'a, Measured>,
}

/// What an experiment hands over.
pub(crate) struct Measured {
    /// Numbers.
    pub(crate) run: Run,
    /// The pictures, by their files' names.
    pub(crate) plots: Vec<(&'static str, Plot)>,
}

/// All of them.
pub(crate) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        figure: ablation_isolation::FIGURE,
        title: ablation_isolation::TITLE,
        measure: |stage| Box::pin(ablation_isolation::measure(stage)),
    },
    Experiment {
        figure: bundled::FIGURE,
        title: bundled::TITLE,
        measure: |stage| Box::pin(bundled::measure(stage)),
    },
    Experiment {
        figure: cold_targets::FIGURE,
        title: cold_targets::TITLE,
        measure: |stage| Box::pin(cold_targets::measure(stage)),
    },
    Experiment {
        figure: first_calls::FIGURE,
        title: first_calls::TITLE,
        measure: |stage| Box::pin(first_calls::measure(stage)),
    },
    Experiment {
        figure: hotos_fig3::FIGURE,
        title: hotos_fig3::TITLE,
        measure: |stage| Box::pin(hotos_fig3::measure(stage)),
    },
    Experiment {
        figure: hyperfork_fig2::FIGURE,
        title: hyperfork_fig2::TITLE,
        measure: |stage| Box::pin(hyperfork_fig2::measure(stage)),
    },
    Experiment {
        figure: hyperfork_fig3::FIGURE,
        title: hyperfork_fig3::TITLE,
        measure: |stage| Box::pin(hyperfork_fig3::measure(stage)),
    },
    Experiment {
        figure: hyperfork_fig4::FIGURE,
        title: hyperfork_fig4::TITLE,
        measure: |stage| Box::pin(hyperfork_fig4::measure(stage)),
    },
    Experiment {
        figure: hyperfork_fig5::FIGURE,
        title: hyperfork_fig5::TITLE,
        measure: |stage| Box::pin(hyperfork_fig5::measure(stage)),
    },
    Experiment {
        figure: idle_density::FIGURE,
        title: idle_density::TITLE,
        measure: |stage| Box::pin(idle_density::measure(stage)),
    },
    Experiment {
        figure: import_targets::FIGURE,
        title: import_targets::TITLE,
        measure: |stage| Box::pin(import_targets::measure(stage)),
    },
    Experiment {
        figure: isolation::FIGURE,
        title: isolation::TITLE,
        measure: |stage| Box::pin(isolation::measure(stage)),
    },
    Experiment {
        figure: lambda_door::FIGURE,
        title: lambda_door::TITLE,
        measure: |stage| Box::pin(lambda_door::measure(stage)),
    },
    Experiment {
        figure: microvm_targets::FIGURE,
        title: microvm_targets::TITLE,
        measure: |stage| Box::pin(microvm_targets::measure(stage)),
    },
    Experiment {
        figure: policies::FIGURE,
        title: policies::TITLE,
        measure: |stage| Box::pin(policies::measure(stage)),
    },
    Experiment {
        figure: sock_fig02_mount_scalability::FIGURE,
        title: sock_fig02_mount_scalability::TITLE,
        measure: |stage| Box::pin(sock_fig02_mount_scalability::measure(stage)),
    },
    Experiment {
        figure: sock_fig14_containers::FIGURE,
        title: sock_fig14_containers::TITLE,
        measure: |stage| Box::pin(sock_fig14_containers::measure(stage)),
    },
    Experiment {
        figure: sock_fig15_preinitialisation::FIGURE,
        title: sock_fig15_preinitialisation::TITLE,
        measure: |stage| Box::pin(sock_fig15_preinitialisation::measure(stage)),
    },
    Experiment {
        figure: sock_fig16_reuse::FIGURE,
        title: sock_fig16_reuse::TITLE,
        measure: |stage| Box::pin(sock_fig16_reuse::measure(stage)),
    },
    Experiment {
        figure: sock_fig17_preimported::FIGURE,
        title: sock_fig17_preimported::TITLE,
        measure: |stage| Box::pin(sock_fig17_preimported::measure(stage)),
    },
    Experiment {
        figure: sock_fig18_each_cache::FIGURE,
        title: sock_fig18_each_cache::TITLE,
        measure: |stage| Box::pin(sock_fig18_each_cache::measure(stage)),
    },
    Experiment {
        figure: sock_fig19_interaction::FIGURE,
        title: sock_fig19_interaction::TITLE,
        measure: |stage| Box::pin(sock_fig19_interaction::measure(stage)),
    },
    Experiment {
        figure: sock_fig20_scalability::FIGURE,
        title: sock_fig20_scalability::TITLE,
        measure: |stage| Box::pin(sock_fig20_scalability::measure(stage)),
    },
];

/// Calls of a cell at least, however slow they are.
const LEAST: usize = 15;

/// Calls of a cell at most: every one is kept.
const MOST: usize = 4000;

/// Closed loops of all arms at all levels, in rounds. Within a round arms take turns at a level, and who begins changes
/// from round to round: what disturbs the machine disturbs all.
async fn sweep(
    run: &mut Run,
    arms: &[&dyn Target],
    levels: &[usize],
    rounds: u32,
    time: Duration,
) -> Result<()> {
    for round in 0..rounds {
        for &level in levels {
            for turn in 0..arms.len() {
                let arm = arms[(turn + round as usize) % arms.len()];
                let until = Until::Time { time, least: LEAST.max(2 * level), most: MOST };
                run.add(closed(arm, round, level, until).await?);
            }
        }
    }
    Ok(())
}

/// Calls in rounds, one at a time: so many of each arm in a round. Who begins changes from round to round, as in [`sweep`].
async fn take_turns(run: &mut Run, arms: &[(&dyn Target, usize)], rounds: u32) -> Result<()> {
    for round in 0..rounds {
        for turn in 0..arms.len() {
            let (arm, calls) = arms[(turn + round as usize) % arms.len()];
            run.add(closed(arm, round, 1, Until::Calls(calls)).await?);
        }
    }
    Ok(())
}

/// Open loops at fractions of what each arm reached in its closed loops.
async fn ramp(
    run: &mut Run,
    arms: &[&dyn Target],
    fractions: &[f64],
    time: Duration,
) -> Result<()> {
    for &fraction in fractions {
        for &arm in arms {
            let rows = run.rows();
            let best = rows.iter().filter(|row| row.arm == arm.name() && row.mode == Mode::Closed);
            let best = best.map(|row| row.throughput).fold(0.0, f64::max);
            let rate = (best * fraction * 10.0).round() / 10.0;
            let calls = calls_in(rate, time).min(MOST);
            if calls > 0 {
                run.add(open(arm, 0, rate, calls).await?);
            }
        }
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few thousand calls")]
fn calls_in(rate: f64, time: Duration) -> usize {
    (rate * time.as_secs_f64()) as usize
}

/// Throughput on x, mean latency on y, a point for each number of clients: as the paper draws it.
fn throughput_latency(run: &Run, arms: &[&dyn Target], mode: Mode) -> Vec<Line> {
    let rows = run.rows();
    let line = |arm: &&dyn Target| {
        let of_arm = rows.iter().filter(|row| row.arm == arm.name() && row.mode == mode);
        let points = of_arm.filter_map(|row| {
            let latency = row.latency_ms.as_ref()?;
            let (x, y) = match mode {
                Mode::Closed => (row.throughput, latency.mean),
                Mode::Open => (row.level, latency.p99),
            };
            let label = if mode == Mode::Closed { row.level.to_string() } else { String::new() };
            Some((x, y, label))
        });
        Line { name: arm.name().to_owned(), points: points.collect(), cited: false }
    };
    arms.iter().map(line).filter(|line| !line.points.is_empty()).collect()
}

/// The share of an arm's calls that took at most so long.
fn distribution(run: &Run, arm: &str) -> Line {
    let mut times: Vec<f64> = run.answered(arm).iter().map(|sample| sample.latency_ms).collect();
    times.sort_by(f64::total_cmp);
    let share = |at: usize| float(at) / float(times.len());
    // Steps: what few samples do not know, no slope should suggest.
    let points =
        times.iter().enumerate().flat_map(|(at, ms)| [(*ms, share(at)), (*ms, share(at + 1))]);
    let points = points.map(|(ms, share)| (ms, share, String::new()));
    Line { name: format!("{arm} ({})", times.len()), points: points.collect(), cited: false }
}

/// The picture of some arms' [`distribution`]s; those that were not measured are left out.
fn shares<A: AsRef<str>>(run: &Run, arms: impl IntoIterator<Item = A>, room: f64) -> Plot {
    let lines = arms.into_iter().map(|arm| distribution(run, arm.as_ref()));
    Plot {
        title: run.title.clone(),
        x: "latency, ms".to_owned(),
        y: "share of calls".to_owned(),
        log_x: true,
        log_y: false,
        room,
        lines: lines.filter(|line| !line.points.is_empty()).collect(),
    }
}

/// Says which KVM there is, beside all numbers: those of a paravirtualised one are its own.
fn on_kvm(run: &mut Run) {
    let modules = ["kvm_intel", "kvm_amd"].into_iter();
    let mut native =
        modules.filter(|name| std::fs::exists(format!("/sys/module/{name}")).unwrap_or(false));
    let kvm =
        native.next().map_or("paravirtualised KVM".to_owned(), |name| format!("KVM by {name}"));
    run.here = format!("here, on {kvm}");
}

/// A ratio of throughputs beside the paper's and a target.
fn ratio(
    run: &Run,
    (arm, over): (&str, &str),
    level: usize,
    paper: &str,
    target: Option<f64>,
) -> Comparison {
    let ratios = run.ratios(arm, over, float(level));
    let middle = median(&ratios);
    let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let high = ratios.iter().copied().fold(0.0, f64::max);
    Comparison {
        what: format!("throughput of {arm} over {over}, {level} at a time"),
        paper: paper.to_owned(),
        target: target.map_or_else(String::new, |times| format!("≥ {times}×")),
        ours: if ratios.is_empty() {
            "not measured".to_owned()
        } else {
            format!("{middle:.1}× (rounds {low:.1}–{high:.1})")
        },
        reached: target.filter(|_| !ratios.is_empty()).map(|times| middle >= times),
    }
}

/// A number that should be at most something.
fn at_most(what: &str, ours: f64, unit: &str, target: f64) -> Comparison {
    Comparison {
        what: what.to_owned(),
        paper: String::new(),
        target: format!("≤ {target}{unit}"),
        ours: told(ours, 2, unit),
        reached: ours.is_finite().then_some(ours <= target),
    }
}

/// A number that should be at least something.
fn at_least(what: &str, ours: f64, unit: &str, target: f64) -> Comparison {
    Comparison {
        what: what.to_owned(),
        paper: String::new(),
        target: format!("≥ {target}{unit}"),
        ours: told(ours, 0, unit),
        reached: ours.is_finite().then_some(ours >= target),
    }
}

fn told(value: f64, digits: usize, unit: &str) -> String {
    if value.is_finite() { format!("{value:.digits$}{unit}") } else { "not measured".to_owned() }
}
