//! A run: cells as they were measured, and rows over all rounds.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::load::Cell;
use crate::sample::{Mode, Quantiles, Sample, float, median};

/// Processors that others may keep busy while processor time is still told.
const TOO_BUSY: f64 = 0.25;

/// What an experiment collects.
#[derive(Debug)]
pub(crate) struct Run {
    /// `sock_fig14`
    pub(crate) figure: &'static str,
    /// Its title, with what is scaled or sampled.
    pub(crate) title: String,
    /// How it was measured, for a reader.
    pub(crate) method: Vec<String>,
    /// Arms at levels in rounds.
    pub(crate) cells: Vec<Cell>,
    /// Numbers of the paper or targets beside ours.
    pub(crate) comparisons: Vec<Comparison>,
    /// What a reader has to know before believing.
    pub(crate) warnings: Vec<String>,
    /// Processor seconds a second of the machine at rest, with everything started.
    pub(crate) idle: f64,
    /// Further raw tables.
    pub(crate) tables: Vec<Table>,
    /// What stands above our numbers: `here`, and what of this machine a reader must not miss.
    pub(crate) here: String,
    /// The Python that was asked for, if one was.
    pub(crate) python: Option<String>,
}

/// Numbers that are no calls, as `raw/<name>.csv`.
#[derive(Debug)]
pub(crate) struct Table {
    /// Its file's name.
    pub(crate) name: &'static str,
    /// Its columns.
    pub(crate) head: &'static [&'static str],
    /// Its rows.
    pub(crate) rows: Vec<Vec<f64>>,
}

/// A number of somebody else's beside ours. Shapes and ratios are claimed, not equality.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    /// What.
    pub(crate) what: String,
    /// What the paper says.
    pub(crate) paper: String,
    /// What we want to reach.
    pub(crate) target: String,
    /// What we measured.
    pub(crate) ours: String,
    /// Whether the target is reached; none where there is no target.
    pub(crate) reached: Option<bool>,
}

/// An arm at a level, over all rounds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Arm.
    pub(crate) arm: String,
    /// How load was made.
    pub(crate) mode: Mode,
    /// Clients or calls a second.
    pub(crate) level: f64,
    /// Milliseconds to the first byte of the answer.
    pub(crate) latency_ms: Option<Quantiles>,
    /// Answers a second, cleaning up included: the median over rounds.
    pub(crate) throughput: f64,
    /// The smallest and the largest round.
    pub(crate) throughput_range: (f64, f64),
    /// Milliseconds of processor time a call, of the whole machine less what it spends at rest; none when others kept it
    /// too busy to tell.
    pub(crate) machine_cpu_ms: Option<f64>,
    /// The same, of the worker, its warden and all sandboxes.
    pub(crate) group_cpu_ms: Option<f64>,
    /// The same, of the load generator; part of the machine's.
    pub(crate) generator_cpu_ms: f64,
    /// Calls without an answer.
    pub(crate) failed: usize,
    /// `Lambswool-Start` and how often.
    pub(crate) starts: BTreeMap<String, usize>,
    /// Median milliseconds of each stage that `Server-Timing` names, in the order of a call's path.
    pub(crate) stages: Vec<(String, f64)>,
}

impl Run {
    /// An empty run.
    pub(crate) fn new(figure: &'static str, title: &str) -> Self {
        Self {
            figure,
            title: title.to_owned(),
            method: Vec::new(),
            cells: Vec::new(),
            comparisons: Vec::new(),
            warnings: Vec::new(),
            idle: 0.0,
            tables: Vec::new(),
            here: "here".to_owned(),
            python: None,
        }
    }

    /// Takes a cell and says what it showed.
    pub(crate) fn add(&mut self, cell: Cell) {
        let latencies: Vec<f64> = cell.samples.iter().map(|sample| sample.latency_ms).collect();
        let unit = if cell.mode == Mode::Closed { "at a time" } else { "a second" };
        eprintln!(
            "round {} {:24} {:7.1} {unit:9} {:6} calls {:9.2} ms p50 {:9.1}/s {:3} failed",
            cell.round,
            cell.arm,
            cell.level,
            cell.samples.len(),
            median(&latencies),
            cell.throughput(),
            cell.samples.len() - cell.good(),
        );
        self.cells.push(cell);
    }

    /// One row for each arm at each level, in the order measured.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let mut keys: Vec<(&str, Mode, f64)> = Vec::new();
        for cell in &self.cells {
            let key = (cell.arm.as_str(), cell.mode, cell.level);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys.into_iter().map(|(arm, mode, level)| self.row(arm, mode, level)).collect()
    }

    /// An arm's row; of nothing when it was not measured.
    pub(crate) fn row(&self, arm: &str, mode: Mode, level: f64) -> Row {
        let of_key = |cell: &&Cell| {
            cell.arm == arm && cell.mode == mode && (cell.level - level).abs() < 1e-9
        };
        let cells: Vec<&Cell> = self.cells.iter().filter(of_key).collect();
        let samples = || cells.iter().flat_map(|cell| &cell.samples);
        let good: Vec<f64> =
            samples().filter(|s| s.error.is_empty()).map(|s| s.latency_ms).collect();
        let calls = float(good.len());
        let total = |of: &dyn Fn(&Cell) -> f64| cells.iter().map(|cell| of(cell)).sum::<f64>();
        let rates: Vec<f64> = cells.iter().map(|cell| cell.throughput()).collect();
        let mut starts = BTreeMap::new();
        for sample in samples().filter(|sample| !sample.start.is_empty()) {
            *starts.entry(sample.start.clone()).or_default() += 1;
        }
        let grouped = cells.iter().all(|cell| cell.spent.group.is_some()) && !cells.is_empty();
        Row {
            arm: arm.to_owned(),
            mode,
            level,
            throughput: median(&rates),
            throughput_range: (
                rates.iter().copied().fold(f64::INFINITY, f64::min),
                rates.iter().copied().fold(0.0, f64::max),
            ),
            machine_cpu_ms: (self.idle < TOO_BUSY)
                .then(|| total(&|c| c.spent.machine - self.idle * c.spent.wall) * 1e3 / calls),
            group_cpu_ms: grouped.then(|| total(&|c| c.spent.group.unwrap_or(0.0)) * 1e3 / calls),
            generator_cpu_ms: total(&|c| c.spent.own) * 1e3 / calls,
            failed: samples().count() - good.len(),
            starts,
            stages: stages(samples()),
            latency_ms: Quantiles::of(&good),
        }
    }

    /// Puts on top what must not be overlooked: latencies are those of the calls that were answered.
    pub(crate) fn tell_failures(&mut self) {
        let told = |row: Row| {
            let calls = row.failed + row.latency_ms.map_or(0, |latency| latency.n);
            Comparison {
                what: format!(
                    "`{}`, load {}: failed calls, of which nothing is below",
                    row.arm, row.level
                ),
                paper: String::new(),
                target: "0".to_owned(),
                ours: format!("{} of {calls}", row.failed),
                reached: Some(false),
            }
        };
        let rows = self.rows();
        let failed = rows.into_iter().filter(|row| row.failed > 0).map(told);
        self.comparisons.splice(..0, failed);
    }

    /// An arm's calls that were answered.
    pub(crate) fn answered(&self, arm: &str) -> Vec<&Sample> {
        let cells = self.cells.iter().filter(|cell| cell.arm == arm);
        cells.flat_map(|cell| &cell.samples).filter(|sample| sample.error.is_empty()).collect()
    }

    /// For each round, one arm's throughput over another's: interleaved, so both saw the same machine.
    pub(crate) fn ratios(&self, arm: &str, over: &str, level: f64) -> Vec<f64> {
        let rate = |name: &str, round: u32| {
            let fits = |c: &&Cell| c.arm == name && c.round == round && c.mode == Mode::Closed;
            let mut cells = self.cells.iter().filter(fits);
            cells.find(|c| (c.level - level).abs() < 1e-9).map(Cell::throughput)
        };
        let rounds = self.cells.iter().map(|cell| cell.round).max().unwrap_or(0);
        (0..=rounds).filter_map(|r| Some(rate(arm, r)? / rate(over, r)?)).collect()
    }
}

/// Medians of the stages in `Server-Timing`: `fork;dur=0.812, load;dur=0.310`.
fn stages<'a>(samples: impl Iterator<Item = &'a Sample>) -> Vec<(String, f64)> {
    let mut stages: Vec<(String, Vec<f64>)> = Vec::new();
    for entry in samples.flat_map(|sample| sample.stages.split(", ")) {
        let Some((name, took)) = entry.split_once(";dur=") else { continue };
        let Ok(took) = took.parse() else { continue };
        match stages.iter_mut().find(|(known, _)| known == name) {
            Some((_, times)) => times.push(took),
            None => stages.push((name.to_owned(), vec![took])),
        }
    }
    stages.into_iter().map(|(name, times)| (name, median(&times))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Spent;

    fn sample(stages: &str) -> Sample {
        Sample {
            arm: String::new(),
            round: 0,
            mode: Mode::Closed,
            level: 1.0,
            at_ms: 0.0,
            late_ms: 0.0,
            latency_ms: 1.0,
            own_ms: 0.0,
            imported: 0,
            total_ms: 1.0,
            start: String::new(),
            stages: stages.to_owned(),
            error: String::new(),
        }
    }

    #[test]
    fn calls_that_failed_stand_above_all_that_was_reached() {
        let mut run = Run::new("figure", "title");
        let failed = Sample { error: "503".to_owned(), ..sample("") };
        let samples = vec![sample(""), failed, sample("")];
        let spent = Spent::default();
        let (mode, level) = (Mode::Closed, 1.0);
        let arm = String::new();
        run.cells.push(Cell { arm, round: 0, mode, level, answered: 1.0, spent, samples });
        run.tell_failures();
        assert_eq!(
            (run.comparisons[0].ours.as_str(), run.comparisons[0].reached),
            ("1 of 3", Some(false))
        );
    }

    #[test]
    fn a_stage_has_the_median_of_the_calls_that_passed_it() {
        let samples = ["fork;dur=1.0, load;dur=3", "fork;dur=2.0", "fork;dur=9.5, load;dur=5", ""];
        let samples = samples.map(sample);
        let expected = [("fork".to_owned(), 2.0), ("load".to_owned(), 3.0)];
        assert_eq!(stages(samples.iter()), expected);
    }
}
