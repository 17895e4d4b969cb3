//! A run: what was measured, kept as evidence in `bench/runs/<date>-<host>-<figure>/`.
//!
//! ```text
//!   README.md  env.json  summary.json  plot.svg  raw/samples.csv  raw/cells.csv
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::environment::Environment;
use crate::load::Cell;
use crate::plot::Plot;
use crate::sample::{Mode, Quantiles, Sample, float, median};

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
    /// Milliseconds of processor time a call, of the whole machine less what it spends at rest.
    pub(crate) machine_cpu_ms: f64,
    /// The same, of the worker, its warden and all sandboxes.
    pub(crate) group_cpu_ms: Option<f64>,
    /// The same, of the load generator; part of the machine's.
    pub(crate) generator_cpu_ms: f64,
    /// Calls without an answer.
    pub(crate) failed: usize,
    /// `Lambswool-Start` and how often.
    pub(crate) starts: BTreeMap<String, usize>,
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
            machine_cpu_ms: total(&|c| c.spent.machine - self.idle * c.spent.wall) * 1e3 / calls,
            group_cpu_ms: grouped.then(|| total(&|c| c.spent.group.unwrap_or(0.0)) * 1e3 / calls),
            generator_cpu_ms: total(&|c| c.spent.own) * 1e3 / calls,
            failed: samples().count() - good.len(),
            starts,
            latency_ms: Quantiles::of(&good),
        }
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

    /// Advice out of the numbers.
    fn advice(&self, rows: &[Row]) -> Vec<String> {
        let mut advice = self.warnings.clone();
        for row in rows {
            let what = format!("{} at {}", row.arm, row.level);
            if row.failed > 0 {
                let first = self.cells.iter().flat_map(|cell| &cell.samples);
                let mut first = first.filter(|s| s.arm == row.arm && !s.error.is_empty());
                let words = first.next().map_or("", |sample| sample.error.as_str());
                advice.push(format!("{what}: {} calls failed ({words})", row.failed));
            }
            let (low, high) = row.throughput_range;
            if row.mode == Mode::Closed && high > 1.3 * low {
                advice.push(format!("{what}: rounds differ ({low:.1} to {high:.1} a second); run it again when nothing else runs"));
            }
            if let Some(shortage) = row.latency_ms.as_ref().and_then(Quantiles::shortage) {
                let n = row.latency_ms.as_ref().map_or(0, |q| q.n);
                advice.push(format!("{what}: {n} samples, so {shortage}"));
            }
        }
        let (stolen, wall) = self.cells.iter().fold((0.0, 0.0), |(stolen, wall), cell| {
            (stolen + cell.spent.stolen, wall + cell.spent.wall)
        });
        if stolen > 0.01 * wall {
            advice.push(format!(
                "the hypervisor took {:.1} % of a processor away",
                100.0 * stolen / wall
            ));
        }
        advice
    }

    /// Writes everything. Returns where.
    pub(crate) fn write(
        &self,
        into: &Path,
        environment: &Environment,
        plot: &Plot,
    ) -> Result<PathBuf> {
        let day = environment.when.get(..10).unwrap_or("undated");
        let dir = into.join(format!("{day}-{}-{}", environment.host, self.figure));
        // The same figure, host and day: the last counts.
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("replace {}", dir.display()))?;
        }
        fs::create_dir_all(dir.join("raw")).with_context(|| format!("make {}", dir.display()))?;
        self.write_raw(&dir)?;
        let rows = self.rows();
        let mut warnings = environment.warnings();
        warnings.extend(self.advice(&rows));
        write_json(&dir.join("env.json"), environment)?;
        let summary = Summary {
            figure: self.figure,
            title: &self.title,
            idle_busy: self.idle,
            comparisons: &self.comparisons,
            rows: &rows,
            warnings: &warnings,
        };
        write_json(&dir.join("summary.json"), &summary)?;
        plot.write(&dir.join("plot.svg"))?;
        let page = self.page(environment, &rows, &warnings)?;
        fs::write(dir.join("README.md"), page).context("write README.md")?;
        for warning in &warnings {
            eprintln!("warning: {warning}");
        }
        Ok(dir)
    }

    fn write_raw(&self, dir: &Path) -> Result<()> {
        let mut samples = csv::Writer::from_path(dir.join("raw/samples.csv"))?;
        for sample in self.cells.iter().flat_map(|cell| &cell.samples) {
            samples.serialize(rounded(sample))?;
        }
        samples.flush()?;
        let mut cells = csv::Writer::from_path(dir.join("raw/cells.csv"))?;
        cells.write_record([
            "arm",
            "round",
            "mode",
            "level",
            "calls",
            "answered_s",
            "settled_s",
            "machine_cpu_s",
            "stolen_s",
            "generator_cpu_s",
            "group_cpu_s",
        ])?;
        for cell in &self.cells {
            let mode = if cell.mode == Mode::Closed { "closed" } else { "open" };
            let spent = &cell.spent;
            let mut record = vec![
                cell.arm.clone(),
                cell.round.to_string(),
                mode.to_owned(),
                cell.level.to_string(),
                cell.samples.len().to_string(),
            ];
            record.extend(
                [cell.answered, spent.wall, spent.machine, spent.stolen, spent.own]
                    .map(|s| format!("{s:.4}")),
            );
            record.push(spent.group.map_or_else(String::new, |s| format!("{s:.4}")));
            cells.write_record(record)?;
        }
        cells.flush()?;
        for Table { name, head, rows } in &self.tables {
            let mut table = csv::Writer::from_path(dir.join(format!("raw/{name}.csv")))?;
            table.write_record(*head)?;
            for row in rows {
                table.write_record(row.iter().map(f64::to_string))?;
            }
            table.flush()?;
        }
        Ok(())
    }

    fn page(&self, environment: &Environment, rows: &[Row], warnings: &[String]) -> Result<String> {
        let mut page = String::new();
        let e = environment;
        writeln!(page, "# {}\n\n{}\n", self.figure, self.title)?;
        writeln!(
            page,
            "{} · {} processors ({}) · Linux {} · cgroups {} · {} · Python {} · commit {}\n",
            e.when, e.cores, e.processor, e.kernel, e.cgroups, e.virtualisation, e.python, e.commit
        )?;
        for line in &self.method {
            writeln!(page, "- {line}")?;
        }
        if !self.comparisons.is_empty() {
            writeln!(
                page,
                "\n| | paper | target | here | reached |\n| --- | --- | --- | --- | --- |"
            )?;
            for c in &self.comparisons {
                let reached = c.reached.map_or("", |yes| if yes { "yes" } else { "**no**" });
                writeln!(
                    page,
                    "| {} | {} | {} | {} | {reached} |",
                    c.what, c.paper, c.target, c.ours
                )?;
            }
        }
        writeln!(
            page,
            "\n![plot](plot.svg)\n\nLatency in ms to the first byte of the answer; [95 % interval of the median]; calls a second with the rounds' range, cleaning up included; processor time in ms a call.\n"
        )?;
        writeln!(
            page,
            "| arm | load | n | p50 | mean | p90 | p99 | p99.9 | calls/s | CPU, machine | CPU, group | CPU, generator | starts |"
        )?;
        writeln!(
            page,
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
        )?;
        for row in rows {
            let load = match row.mode {
                Mode::Closed => format!("{} at a time", row.level),
                Mode::Open => format!("{:.1}/s, open", row.level),
            };
            let latency = row.latency_ms.as_ref().map_or_else(
                || "0 | | | | |".to_owned(),
                |q| {
                    format!(
                        "{} | {:.2} [{:.2}, {:.2}] | {:.2} | {:.2} | {:.2} | {:.2}",
                        q.n, q.p50, q.p50_low, q.p50_high, q.mean, q.p90, q.p99, q.p999
                    )
                },
            );
            let group = row.group_cpu_ms.map_or_else(String::new, |ms| format!("{ms:.2}"));
            let starts: Vec<_> =
                row.starts.iter().map(|(start, n)| format!("{n} {start}")).collect();
            let (low, high) = row.throughput_range;
            writeln!(
                page,
                "| {} | {load} | {latency} | {:.1} ({low:.1}–{high:.1}) | {:.2} | {group} | {:.2} | {} |",
                row.arm,
                row.throughput,
                row.machine_cpu_ms,
                row.generator_cpu_ms,
                starts.join(", ")
            )?;
        }
        if !warnings.is_empty() {
            writeln!(page, "\nWarnings:\n")?;
            for warning in warnings {
                writeln!(page, "- {warning}")?;
            }
        }
        writeln!(
            page,
            "\n`make bench FIG={}` makes such a run; docs/benchmarking.md says how to read it.",
            self.figure
        )?;
        Ok(page)
    }
}

#[derive(Serialize)]
struct Summary<'a> {
    figure: &'a str,
    title: &'a str,
    idle_busy: f64,
    comparisons: &'a [Comparison],
    rows: &'a [Row],
    warnings: &'a [String],
}

/// Microseconds are enough, and keep committed files small.
fn rounded(sample: &Sample) -> Sample {
    let ms = |value: f64| (value * 1e3).round() / 1e3;
    Sample {
        at_ms: ms(sample.at_ms),
        late_ms: ms(sample.late_ms),
        latency_ms: ms(sample.latency_ms),
        total_ms: ms(sample.total_ms),
        ..sample.clone()
    }
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value).context("write JSON")?;
    text.push('\n');
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}
