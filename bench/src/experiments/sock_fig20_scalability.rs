//! SOCK, Figure 20: synthetic packages, working sets of growing size, ten tasks as fast as they can.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use fastrand::Rng;

use super::{Measured, shares};
use crate::calls::{Calls, REST};
use crate::functions::{Function, Kind};
use crate::index::Index;
use crate::load::{Until, closed};
use crate::observed::observed;
use crate::run::{Comparison, Run};
use crate::sample::{float, median};
use crate::stage::Stage;
use crate::wheel;

pub(super) const FIGURE: &str = "sock_fig20";
pub(super) const TITLE: &str = "SOCK Figure 20: synthetic packages, by number of functions, ten tasks; packages, functions and caches a twentieth of the paper's";

/// Everything is scaled by this: 100 000 packages, 100 to 10 000 functions, and the memory for caches.
const FACTOR: usize = 20;

/// The paper's numbers of functions, its medians, and its hits as far as it tells them.
const SIZES: [(usize, &str); 3] = [
    (100, "39 ms"),
    (500, "345 ms; handler cache 6.4 %, import cache 46 %"),
    (10_000, "502 ms; install cache 88 %"),
];

const PACKAGES: usize = 100_000 / FACTOR;

/// Of the paper's 5 GB for the handler cache and 25 GB for the import cache (§5).
const CACHES: [(&str, &str); 2] = [("handler_cache_bytes", "256MiB"), ("zygote_bytes", "1280MiB")];

/// A package's popularity is a random number: `n` with a probability in proportion to `n` to the power of minus this.
const ZIPF: f64 = 2.5;

/// Most packages that a package needs itself, and how likely a further one is.
const MOST_NEEDS: usize = 8;
const FURTHER: f64 = 0.4;

const SEED: u64 = 20;

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let mut run = Run::new(FIGURE, TITLE);
    let (sizes, time) = stage.amount(
        (SIZES.map(|(size, paper)| (size / FACTOR, paper)), Duration::from_secs(40)),
        ([(2, SIZES[0].1), (5, SIZES[1].1), (12, SIZES[2].1)], Duration::from_secs(4)),
    );
    run.method = vec![
        format!("{PACKAGES} packages of one module; a package needs 0 to {MOST_NEEDS} of a lower number (each further one with probability {FURTHER}), chosen by popularity; its import keeps a processor busy for 5 to 100 ms and holds 0.1 to 10 MiB, evenly on logarithmic scales: as the twenty of figure 7 spread, not the paper's own numbers, which it does not print"),
        format!("each function imports 1 to 3 packages, chosen by popularity, which is a random number for each package, Zipf with s = {ZIPF}; all is installed before; ten tasks call functions at random, evenly, for {} s each size, each size on a worker of its own", time.as_secs()),
        format!("memory: {} for kept instances, {} for zygotes: a twentieth of the paper's 5 and 25 GB (§5), which is a fifth as much for instances as for zygotes", CACHES[0].1, CACHES[1].1),
        "starts: `resume` is the handler cache, `fork` alone the import cache with all that the function imports, `fork + imports` the import cache with a part, or with an interpreter alone, and the rest from the install cache; the paper does not say whether it counts a part as a hit".to_owned(),
    ];
    let kind = Synthetic::of(&stage.work().join("synthetic")).await?;
    let most = sizes.iter().map(|(size, _)| *size).max().unwrap_or(0);
    let template = stage.template(&kind, most).await?;
    stage.rest(&mut run).await?;
    for (size, _) in sizes {
        let arm = arm(size);
        let worker = stage.worker_on(&template, &arm, &CACHES, 10).await?;
        let mut random = Rng::with_seed(SEED);
        let names = (0..10_000).map(|_| name(random.usize(..size))).collect();
        let calls = Calls::new(&worker, arm, REST, names);
        let until = Until::Time { time, least: 20, most: 10_000 };
        run.add(closed(&calls, 0, 10, until).await?);
        drop(calls);
        worker.stop().await?;
    }
    run.comparisons = sizes.iter().map(|(size, paper)| comparison(&run, *size, paper)).collect();
    let plot = shares(&run, sizes.iter().map(|(size, _)| arm(*size)), 3.0);
    Ok(Measured { run, plots: vec![("plot", plot)] })
}

fn arm(size: usize) -> String {
    format!("{size} functions")
}

fn comparison(run: &Run, size: usize, paper: &str) -> Comparison {
    let samples = run.answered(&arm(size));
    let times: Vec<f64> = samples.iter().map(|sample| sample.latency_ms).collect();
    let share = |of: &dyn Fn(&str) -> bool| {
        let hits = samples.iter().filter(|sample| of(&sample.start)).count();
        100.0 * float(hits) / float(samples.len())
    };
    Comparison {
        what: format!("{size} functions ({} in the paper): median, and who served", size * FACTOR),
        paper: paper.to_owned(),
        target: String::new(),
        ours: format!(
            "{:.1} ms; handler cache {:.1} %, import cache {:.1} %, a part of it or none {:.1} %",
            median(&times),
            share(&|start| start == "resume"),
            share(&|start| start == "fork"),
            share(&|start| start.starts_with("fork +"))
        ),
        reached: None,
    }
}

fn name(number: usize) -> String {
    format!("synthetic-{number:05}")
}

fn module(package: usize) -> String {
    format!("bench_package_{package:05}")
}

/// Functions that import synthetic packages.
#[derive(Debug)]
struct Synthetic {
    index: Index,
    popularity: Popularity,
}

impl Synthetic {
    async fn of(dir: &Path) -> Result<Self> {
        let popularity = Popularity::of(PACKAGES);
        if !dir.is_dir() {
            let unfinished = dir.with_extension("unfinished");
            fs::create_dir_all(&unfinished).context("make a directory for wheels")?;
            let mut random = Rng::with_seed(SEED);
            for package in 0..PACKAGES {
                let needs = needs(package, &popularity, &mut random);
                let (busy, bytes) =
                    (spread(&mut random, 5.0, 100.0), spread(&mut random, 0.1, 10.0));
                let needs: Vec<String> = needs.into_iter().map(module).collect();
                let source = source(&needs, busy, bytes);
                wheel::write(&unfinished, &module(package), &source, &needs)?;
            }
            fs::rename(&unfinished, dir).context("name the directory of wheels")?;
        }
        Ok(Self { index: Index::serve(&[dir]).await?, popularity })
    }
}

impl Kind for Synthetic {
    fn name(&self) -> String {
        format!("synthetic-{PACKAGES}")
    }

    fn function(&self, number: usize) -> Result<Function> {
        let mut random = Rng::with_seed(SEED + 1 + number as u64);
        let mut packages: Vec<usize> =
            (0..random.usize(1..=3)).map(|_| self.popularity.draw(&mut random)).collect();
        packages.sort_unstable();
        packages.dedup();
        let modules: Vec<String> = packages.into_iter().map(module).collect();
        let pins: Vec<_> =
            modules.iter().map(|name| format!("{name}=={}", wheel::VERSION)).collect();
        // TOML's arrays of plain strings are JSON's.
        let pins = serde_json::to_string(&pins)?;
        let imports: String = modules.iter().map(|name| format!("import {name}\n")).collect();
        let source =
            format!("# /// script\n# dependencies = {pins}\n# ///\nN = {number}\n{imports}");
        Ok(Function { name: name(number), source: observed(&source) })
    }

    fn environment(&self) -> Vec<(String, String)> {
        vec![("UV_DEFAULT_INDEX".to_owned(), self.index.url())]
    }
}

/// What a package imports, and how busy it is then, in ms of processor time, and what it holds, in MiB.
fn source(needs: &[String], busy: f64, mib: f64) -> String {
    let imports: String = needs.iter().map(|name| format!("import {name}\n")).collect();
    format!(
        "import time\n{imports}\n_end = time.thread_time() + {busy:.3} / 1e3\nwhile time.thread_time() < _end:\n    pass\nHELD = bytearray(b'x') * int({mib:.3} * 2**20)\n"
    )
}

/// Packages of lower numbers: so there are no circles.
fn needs(package: usize, popularity: &Popularity, random: &mut Rng) -> Vec<usize> {
    let mut needs = Vec::new();
    while needs.len() < MOST_NEEDS && random.f64() < FURTHER {
        let other = popularity.draw(random);
        if other < package && !needs.contains(&other) {
            needs.push(other);
        } else if other >= package {
            break;
        }
    }
    needs
}

/// Evenly on a logarithmic scale.
fn spread(random: &mut Rng, low: f64, high: f64) -> f64 {
    low * (high / low).powf(random.f64())
}

/// Packages, drawn by popularity.
#[derive(Debug)]
struct Popularity {
    /// For each package, the popularity of all up to it.
    up_to: Vec<f64>,
}

impl Popularity {
    fn of(packages: usize) -> Self {
        let mut random = Rng::with_seed(SEED);
        // Beyond, one in a thousand million.
        let most = 1_000_000;
        let probability = (1..most).map(|n| float(n).powf(-ZIPF));
        let mut sum = 0.0;
        let zipf: Vec<f64> = probability
            .map(|p| {
                sum += p;
                sum
            })
            .collect();
        let up_to = (0..packages).scan(0.0, |total, _| {
            let at = random.f64() * sum;
            *total += float(1 + zipf.partition_point(|up_to| *up_to < at));
            Some(*total)
        });
        Self { up_to: up_to.collect() }
    }

    fn draw(&self, random: &mut Rng) -> usize {
        let at = random.f64() * self.up_to.last().copied().unwrap_or(0.0);
        self.up_to.partition_point(|up_to| *up_to < at).min(self.up_to.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_quarters_of_packages_are_of_least_popularity_and_a_few_are_drawn_often() {
        let popularity = Popularity::of(1000);
        let weights = std::iter::once(0.0).chain(popularity.up_to.iter().copied());
        let weights: Vec<f64> = popularity.up_to.iter().zip(weights).map(|(b, a)| b - a).collect();
        let least = float(weights.iter().filter(|weight| **weight < 1.5).count()) / 1000.0;
        // 1 / zeta(2.5) = 0.745
        assert!((least - 0.745).abs() < 0.05, "{least}");
        let mut random = Rng::with_seed(1);
        let mut drawn = vec![0usize; 1000];
        (0..20_000).for_each(|_| drawn[popularity.draw(&mut random)] += 1);
        assert!(drawn.iter().max().is_some_and(|most| *most > 200), "{:?}", drawn.iter().max());
    }

    #[test]
    fn no_package_needs_one_that_needs_it() {
        let (popularity, mut random) = (Popularity::of(100), Rng::with_seed(2));
        for package in 0..100 {
            assert!(
                needs(package, &popularity, &mut random).into_iter().all(|other| other < package)
            );
        }
    }
}
