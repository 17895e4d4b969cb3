//! What security costs: cold calls with every line of defence in force, beside the same with one missing. Of a build of
//! the profile `ablation`: a release refuses such a setting.

use anyhow::Result;
use container::Defence;

use super::Measured;
use super::cold_targets::never_twice;
use crate::load::{Cell, Target, Until, closed};
use crate::plot::{Line, Plot};
use crate::run::{Comparison, Run};
use crate::sample::{float, median, median_interval};
use crate::stage::{NOTHING_KEPT, Stage};

pub(super) const FIGURE: &str = "ablation_isolation";
pub(super) const TITLE: &str =
    "Cold calls through HTTP, one at a time: what each line of defence costs";

const ALL: &str = "all defences";

/// The same again: what two workers differ by that differ in nothing.
const AGAIN: &str = "all defences, again";

/// Lines of defence that go together, by what their names begin with.
const FAMILIES: [&str; 4] = ["filter-", "limit-", "landlock-", "check-"];

/// A quota that no call reaches, for each instance: what nobody has who does not ask.
const QUOTA: &str = "no quota of processors, beside one for each instance";

/// All that can be switched off, at once.
const NONE: &str = "every line of defence";

/// Pairs of workers that are started for what many make together, whose cost is above the noise if any is.
const PAIRS_OF_MANY: u32 = 4;

/// A worker that differs from the others in something.
struct Arm {
    name: String,
    setting: (&'static str, String),
    pairs: u32,
}

/// Microseconds that a call takes less without them, a round each.
struct Cost {
    name: String,
    rounds: Vec<f64>,
}

fn arms() -> Vec<Arm> {
    let without = |name: String, defences: &[&str], pairs| Arm {
        name,
        setting: ("container_recipe", format!("lean,unsafe-without={}", defences.join("+"))),
        pairs,
    };
    let setting = ("container_recipe", "lean".to_owned());
    let again = Arm { name: AGAIN.to_owned(), setting, pairs: PAIRS_OF_MANY };
    let quota = Arm { name: QUOTA.to_owned(), setting: ("cpu", "1".to_owned()), pairs: 1 };
    let names: Vec<&str> = Defence::ALL.iter().map(|one| one.name()).collect();
    let none = without(NONE.to_owned(), &names, PAIRS_OF_MANY);
    let families = FAMILIES.map(|family| {
        let members: Vec<&str> =
            names.iter().copied().filter(|one| one.starts_with(family)).collect();
        without(format!("every {family}…"), &members, PAIRS_OF_MANY)
    });
    let each = names.iter().map(|one| without((*one).to_owned(), &[one], 1));
    [again, none, quota].into_iter().chain(families).chain(each).collect()
}

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let mut run = Run::new(FIGURE, TITLE);
    run.method = vec![
        format!("`{ALL}`: the worker as it comes, but that an instance is destroyed after its call; each function is called once for each start of a worker, as in `cold_targets`"),
        "each other arm: the same with the setting `container_recipe = \"lean,unsafe-without=…\"`, beside a worker with everything in force that was started for it alone; the two take turns in short cells, and who begins changes from cell to cell".to_owned(),
        format!("cost of a defence: the median call with it less the median call without, a cell each, and the median of these with its 95 % interval (bootstrap over cells); `{AGAIN}` says what is noise"),
        format!("`{NONE}`, families and `{AGAIN}` with {PAIRS_OF_MANY} pairs of workers, all others with one"),
    ];
    stage.rest(&mut run).await?;
    let all = arms();
    let some = stage.amount(all.len(), 4);
    let (rounds, calls) = stage.amount((10_u32, 40), (2, 5));
    let (mut costs, mut named) = (Vec::new(), 0);
    for arm in all.into_iter().take(some) {
        let mut cost = Cost { name: arm.name.clone(), rounds: Vec::new() };
        for _ in 0..arm.pairs {
            let with = stage.worker(ALL, &[NOTHING_KEPT], 1).await?;
            let settings = [NOTHING_KEPT, (arm.setting.0, arm.setting.1.as_str())];
            let without = stage.worker(&arm.name, &settings, 1).await?;
            for round in 0..rounds {
                let mut both: [&dyn Target; 2] = [&with, &without];
                both.rotate_left(round as usize % 2);
                let mut medians = [0.0; 2];
                for target in both {
                    let cell = closed(target, named, 1, Until::Calls(calls)).await?;
                    medians[usize::from(target.name() != ALL)] = middle(&cell);
                    run.add(cell);
                }
                named += 1;
                cost.rounds.push((medians[0] - medians[1]) * 1e3);
            }
            for worker in [with, without] {
                never_twice(&worker)?;
                worker.stop().await?;
            }
        }
        costs.push(cost);
    }
    run.comparisons = costs.iter().map(told).collect();
    let plot = plot(costs);
    Ok(Measured { run, plots: vec![("plot", plot)] })
}

fn middle(cell: &Cell) -> f64 {
    let answered = cell.samples.iter().filter(|sample| sample.error.is_empty());
    median(&answered.map(|sample| sample.latency_ms).collect::<Vec<_>>())
}

impl Cost {
    /// The median, and the ends of its interval.
    fn spread(&self) -> (f64, f64, f64) {
        let (low, high) = median_interval(&self.rounds);
        (low, median(&self.rounds), high)
    }
}

fn told(cost: &Cost) -> Comparison {
    let (low, middle, high) = cost.spread();
    Comparison {
        what: format!("cost of `{}`", cost.name),
        paper: String::new(),
        target: String::new(),
        ours: format!("{middle:+.0} µs [{low:+.0}, {high:+.0}]"),
        reached: None,
    }
}

/// The dearest first.
fn plot(mut costs: Vec<Cost>) -> Plot {
    costs.sort_by(|one, other| other.spread().1.total_cmp(&one.spread().1));
    let named = |at: usize, cost: &Cost| match at < 8 || cost.name == AGAIN {
        true => cost.name.clone(),
        false => String::new(),
    };
    let line = |name: &str, of: fn(&Cost) -> f64, labelled: bool| Line {
        name: name.to_owned(),
        points: costs
            .iter()
            .enumerate()
            .map(|(at, cost)| {
                let label = if labelled { named(at, cost) } else { String::new() };
                (float(at + 1), of(cost), label)
            })
            .collect(),
        cited: false,
    };
    Plot {
        title: TITLE.to_owned(),
        x: "lines of defence, the dearest first".to_owned(),
        y: "microseconds that it costs a call".to_owned(),
        log_x: false,
        log_y: false,
        room: 1.4,
        lines: vec![
            line("median", |cost| cost.spread().1, true),
            line("lower end of its 95 % interval", |cost| cost.spread().0, false),
            line("upper end", |cost| cost.spread().2, false),
        ],
    }
}
