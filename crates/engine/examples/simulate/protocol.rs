//! What is told of each policy on each split with each budget.

use anyhow::Result;
use engine::{EngineConfig, ZygotePolicy, ZygoteTree};
use serde::Serialize;

use crate::bound::least_residual;
use crate::forklift;
use crate::splits::{Protocol, Split, splits};
use crate::statistics::{Mean, average, mean};
use crate::workload::Workload;
use crate::world::{Run, Setting, Start, run};

/// One policy on one split with one budget.
#[derive(Debug, Serialize)]
pub(crate) struct Judgement {
    split: String,
    budget_mb: u64,
    policy: String,
    residual_ms: Mean,
    /// The same with what making zygotes took while the judged starts came: charged to all alike, and once.
    charged_ms: Mean,
    hits: f64,
    mean_mb: f64,
    most_mb: f64,
    zygotes_made: usize,
    /// Milliseconds of a processor for each start that making these took.
    building_ms: f64,
    zygotes_at_the_end: usize,
    /// Milliseconds of a processor that making zygotes took in a quiet minute after the last start; charged to none.
    quiet_ms: f64,
    /// Paired differences of residuals, other minus this.
    against_paper: Option<Mean>,
    against_static: Option<Mean>,
    /// The same of residuals with building.
    charged_against_paper: Option<Mean>,
    charged_against_static: Option<Mean>,
    /// Beyond the better of two that had been warmed with the judged half itself. The true optimum is not known: which
    /// zygotes are best within a budget is a covering problem, and greedy answers to it are compared with each other.
    regret_ms: f64,
    /// Beyond what no fixed choice of zygotes can do better: the regret against the best one is no more than this.
    regret_at_most_ms: f64,
    /// Megabytes after each tenth of the starts.
    memory_mb: Vec<f64>,
}

/// Runs the protocol and prints a line for each policy, split and budget.
pub(crate) fn judge(
    workload: &Workload,
    protocol: Protocol,
    budgets: &[u64],
    half_life: Option<f64>,
    tree: Option<&ZygoteTree>,
) -> Result<Vec<Judgement>> {
    println!("{}", head());
    let mut results = Vec::new();
    for split in &splits(workload, protocol) {
        for budget in budgets {
            let runs = run_all(workload, split, *budget, half_life, tree)?;
            let least = least_residual(workload, &split.judged, *budget * 1_000_000);
            let policies = runs.iter().map(|(policy, _)| *policy);
            let judged: Vec<Judgement> =
                policies.map(|policy| judged(split, *budget, policy, &runs, least)).collect();
            judged.iter().for_each(|one| println!("{}", row(one)));
            println!("{}", memory(&judged));
            println!("{}", quiet(&judged));
            results.extend(judged);
        }
    }
    Ok(results)
}

/// The policies by name, and what came of each.
type Runs = Vec<(&'static str, Run)>;

fn run_all(
    workload: &Workload,
    split: &Split<'_>,
    budget_mb: u64,
    half_life: Option<f64>,
    given: Option<&ZygoteTree>,
) -> Result<Runs> {
    let budget = budget_mb * 1_000_000;
    let half_life = half_life.unwrap_or(EngineConfig::default().zygote_half_life);
    let warm = if split.cold { &[][..] } else { &split.warm };
    let judged = &split.judged[..];
    let learnt = || Some(forklift::tree(workload, &split.warm, budget));
    let knowing = || Some(forklift::tree(workload, judged, budget));
    let mut runs = Vec::new();
    let mut arm = |name, policy, seed, warm| -> Result<()> {
        runs.push((
            name,
            run(workload, &Setting { policy, budget, seed, half_life }, warm, judged)?,
        ));
        Ok(())
    };
    arm("none", ZygotePolicy::Root, None, warm)?;
    arm("paper", ZygotePolicy::Paper, None, warm)?;
    arm("static", ZygotePolicy::Static, learnt(), warm)?;
    arm("utility", ZygotePolicy::Utility, None, warm)?;
    arm("static, knowing", ZygotePolicy::Static, knowing(), judged)?;
    arm("utility, knowing", ZygotePolicy::Utility, None, judged)?;
    if let Some(given) = given {
        arm("given tree", ZygotePolicy::Static, Some(given.clone()), warm)?;
    }
    Ok(runs)
}

fn judged(split: &Split<'_>, budget_mb: u64, policy: &str, runs: &Runs, least: f64) -> Judgement {
    let of = |name: &str| runs.iter().find(|(other, _)| *other == name).map(|(_, run)| run);
    let costs = |name: &str, cost: fn(&Start) -> f64| -> Vec<f64> {
        of(name).map(|run| run.starts.iter().map(cost).collect()).unwrap_or_default()
    };
    let against = |name: &str, cost: fn(&Start) -> f64| {
        let (other, own) = (costs(name, cost), costs(policy, cost));
        let differences: Vec<f64> =
            other.iter().zip(&own).map(|(other, own)| other - own).collect();
        (policy != name).then(|| mean(&differences))
    };
    let residuals = costs(policy, Start::residual);
    let knowing = ["static, knowing", "utility, knowing"]
        .map(|name| average(costs(name, Start::residual).into_iter()));
    let best = knowing.into_iter().fold(f64::INFINITY, f64::min);
    let starts = of(policy).map(|run| &run.starts[..]).unwrap_or_default();
    let megabytes = megabytes(starts);
    Judgement {
        split: split.name.clone(),
        budget_mb,
        policy: policy.to_owned(),
        residual_ms: mean(&residuals),
        charged_ms: mean(&costs(policy, Start::charged)),
        hits: average(starts.iter().map(|start| f64::from(u8::from(start.hit())))),
        mean_mb: average(megabytes.iter().copied()),
        most_mb: megabytes.iter().copied().fold(0.0, f64::max),
        zygotes_made: of(policy).map_or(0, |run| run.made),
        building_ms: average(starts.iter().map(|start| start.building)),
        zygotes_at_the_end: of(policy).map_or(0, |run| run.zygotes),
        quiet_ms: of(policy).map_or(0.0, |run| run.quiet_ms),
        against_paper: against("paper", Start::residual),
        against_static: against("static", Start::residual),
        charged_against_paper: against("paper", Start::charged),
        charged_against_static: against("static", Start::charged),
        regret_ms: average(residuals.iter().copied()) - best,
        regret_at_most_ms: average(residuals.into_iter()) - least,
        memory_mb: megabytes
            .chunks(starts.len().div_ceil(10).max(1))
            .filter_map(|tenth| tenth.last().copied())
            .collect(),
    }
}

fn head() -> String {
    format!(
        "{:22} {:>5} {:16} {:^24} {:>5} {:>7} {:>6} {:>8} {:^24} {:^24} {:^24} {:^24} {:^24} {:>7} {:>7}",
        "split",
        "MB",
        "policy",
        "residual ms/start",
        "hits",
        "mean MB",
        "made",
        "ms/start",
        "paper − this",
        "static − this",
        "residual + building",
        "paper − this, both",
        "static − this, both",
        "regret",
        "at most"
    )
}

fn row(one: &Judgement) -> String {
    let told = |mean: Option<Mean>| mean.map_or_else(String::new, |mean| mean.to_string());
    format!(
        "{:22} {:5} {:16} {:24} {:5.3} {:7.0} {:6} {:8.2} {:24} {:24} {:24} {:24} {:24} {:7.2} {:7.2}",
        one.split,
        one.budget_mb,
        one.policy,
        one.residual_ms.to_string(),
        one.hits,
        one.mean_mb,
        one.zygotes_made,
        one.building_ms,
        told(one.against_paper),
        told(one.against_static),
        one.charged_ms.to_string(),
        told(one.charged_against_paper),
        told(one.charged_against_static),
        one.regret_ms,
        one.regret_at_most_ms
    )
}

/// The memory of each policy over time.
fn memory(judged: &[Judgement]) -> String {
    let of = |one: &Judgement| {
        let tenths: Vec<String> = one.memory_mb.iter().map(|mb| format!("{mb:.0}")).collect();
        format!("{}: {}", one.policy, tenths.join(" "))
    };
    let told: Vec<String> = judged.iter().map(of).collect();
    format!("memory, MB after each tenth of the starts; {}", told.join("; "))
}

/// What each policy built when no starts came any more.
fn quiet(judged: &[Judgement]) -> String {
    let of = |one: &Judgement| format!("{}: {:.0}", one.policy, one.quiet_ms);
    let told: Vec<String> = judged.iter().map(of).collect();
    format!("building in a quiet minute afterwards, ms in all; {}", told.join("; "))
}

/// Megabytes at each start.
#[expect(clippy::cast_precision_loss, reason = "bytes for a reader")]
fn megabytes(starts: &[Start]) -> Vec<f64> {
    starts.iter().map(|start| start.bytes as f64 / 1e6).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elsewhere;

    #[test]
    fn every_policy_is_told_with_building_and_its_memory_over_time() {
        let workload = elsewhere::tests::small();
        let split = splits(&workload, Protocol::Elsewhere).swap_remove(0);
        let runs = run_all(&workload, &split, 250, None, None).unwrap();
        let judged: Vec<Judgement> =
            runs.iter().map(|(policy, _)| judged(&split, 250, policy, &runs, 0.0)).collect();
        for one in &judged {
            let building = one.charged_ms.mean - one.residual_ms.mean;
            assert!((0.0..=one.building_ms + 1e-6).contains(&building), "{one:?}");
            assert_eq!(one.charged_against_paper.is_none(), one.policy == "paper");
        }
        let paper = judged.iter().find(|one| one.policy == "paper").unwrap();
        assert!(paper.zygotes_made > 0 && paper.charged_ms.mean > paper.residual_ms.mean);
        assert!(
            paper.charged_ms.mean < paper.residual_ms.mean + paper.building_ms,
            "its starts waited for what was built: {paper:?}"
        );
        let told = memory(&judged);
        let of_utility = told.split("; utility: ").nth(1).unwrap();
        let of_utility = of_utility.split(';').next().unwrap();
        assert_eq!(of_utility.split(' ').count(), 10, "{told}");
    }
}
