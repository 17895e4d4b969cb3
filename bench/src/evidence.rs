//! The evidence of a run, in `bench/runs/<date>-<host>-<figure>/`.
//!
//! ```text
//!   README.md  env.json  summary.json  *.svg  raw/samples.csv.gz  raw/cells.csv
//! ```

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use crate::environment::Environment;
use crate::plot::Plot;
use crate::run::{Comparison, Row, Run, Table};
use crate::sample::{Mode, Quantiles, Sample};

/// Characters of a failed call's words that a reader is shown; all of them are in the samples.
const WORDS: usize = 200;

/// A text, or its beginning.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(WORDS) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text.to_owned(),
    }
}

impl Run {
    /// Advice out of the numbers.
    fn advice(&self, rows: &[Row]) -> Vec<String> {
        let mut advice = self.warnings.clone();
        for row in rows {
            let what = format!("{} at {}", row.arm, row.level);
            if row.failed > 0 {
                let first = self.cells.iter().flat_map(|cell| &cell.samples);
                let mut first = first.filter(|s| s.arm == row.arm && !s.error.is_empty());
                let words = first.next().map_or("", |sample| sample.error.as_str());
                let words = shortened(words);
                advice.push(format!("{what}: {} calls failed ({words})", row.failed));
            }
            let (low, high) = row.throughput_range;
            if row.mode == Mode::Closed && high > 1.3 * low {
                advice.push(format!("{what}: rounds differ ({low:.1} to {high:.1} a second); run it again when nothing else runs"));
            }
            if row.starts.len() > 1 {
                advice.push(format!(
                    "{what}: sandboxes came from different places ({:?})",
                    row.starts
                ));
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
        plots: &[(&str, Plot)],
    ) -> Result<PathBuf> {
        let day = environment.when.get(..10).unwrap_or("undated");
        let on = self.python.as_ref().map(|version| format!("-python{version}"));
        let on = on.unwrap_or_default();
        let dir = into.join(format!("{day}-{}-{}{on}", environment.host, self.figure));
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
            here: &self.here,
            idle_busy: self.idle,
            comparisons: &self.comparisons,
            rows: &rows,
            warnings: &warnings,
        };
        write_json(&dir.join("summary.json"), &summary)?;
        for (name, plot) in plots {
            plot.write(&dir.join(format!("{name}.svg")))?;
        }
        let names: Vec<_> = plots.iter().map(|(name, _)| *name).collect();
        let page = self.page(environment, &rows, &warnings, &names)?;
        fs::write(dir.join("README.md"), page).context("write README.md")?;
        for warning in &warnings {
            eprintln!("warning: {warning}");
        }
        Ok(dir)
    }

    fn write_raw(&self, dir: &Path) -> Result<()> {
        let file = File::create(dir.join("raw/samples.csv.gz")).context("make samples.csv.gz")?;
        let mut samples = csv::Writer::from_writer(GzEncoder::new(file, Compression::best()));
        for sample in self.cells.iter().flat_map(|cell| &cell.samples) {
            samples.serialize(rounded(sample))?;
        }
        let packed = samples.into_inner().context("write samples.csv.gz")?;
        packed.finish().context("write samples.csv.gz")?;
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

    fn page(
        &self,
        environment: &Environment,
        rows: &[Row],
        warnings: &[String],
        plots: &[&str],
    ) -> Result<String> {
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
                "\n| | paper | target | {} | reached |\n| --- | --- | --- | --- | --- |",
                self.here
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
        for plot in plots {
            writeln!(page, "\n![{plot}]({plot}.svg)")?;
        }
        writeln!(
            page,
            "\nLatency in ms to the first byte of the answer; [95 % interval of the median]; calls a second with the rounds' range, cleaning up included; processor time in ms a call; all {}.\n",
            self.here
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
            let told = |ms: Option<f64>| ms.map_or_else(String::new, |ms| format!("{ms:.2}"));
            let (machine, group) = (told(row.machine_cpu_ms), told(row.group_cpu_ms));
            let starts: Vec<_> =
                row.starts.iter().map(|(start, n)| format!("{n} {start}")).collect();
            let (low, high) = row.throughput_range;
            writeln!(
                page,
                "| {} | {load} | {latency} | {:.1} ({low:.1}–{high:.1}) | {machine} | {group} | {:.2} | {} |",
                row.arm,
                row.throughput,
                row.generator_cpu_ms,
                starts.join(", ")
            )?;
        }
        writeln!(page, "\nMedian ms of each stage, as the worker tells it in `Server-Timing`:\n")?;
        for row in rows.iter().filter(|row| !row.stages.is_empty()) {
            let stages: Vec<_> =
                row.stages.iter().map(|(stage, ms)| format!("{stage} {ms:.3}")).collect();
            let unit = if row.mode == Mode::Closed { "at a time" } else { "a second" };
            writeln!(page, "- {}, {} {unit}: {}", row.arm, row.level, stages.join(", "))?;
        }
        if !warnings.is_empty() {
            writeln!(page, "\nWarnings:\n")?;
            for warning in warnings {
                writeln!(page, "- {warning}")?;
            }
        }
        writeln!(
            page,
            "\n`make bench FIG={}{}` makes such a run; docs/developer/benchmarking.md says how to read it.",
            self.figure,
            self.python.as_ref().map(|version| format!(" ON={version}")).unwrap_or_default()
        )?;
        Ok(page)
    }
}

#[derive(Serialize)]
struct Summary<'a> {
    figure: &'a str,
    title: &'a str,
    here: &'a str,
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
        own_ms: ms(sample.own_ms),
        total_ms: ms(sample.total_ms),
        ..sample.clone()
    }
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value).context("write JSON")?;
    text.push('\n');
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}
