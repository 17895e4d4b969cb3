//! Cold calls to functions whose archive brings pandas and numpy, beside the same functions that list them.

use std::collections::HashSet;
use std::fs;
use std::io::{Cursor, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use hyper::Method;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::Measured;
use crate::calls::{self, Calls, WORK};
use crate::libraries::{self, Copies, Library};
use crate::load::{Target as _, Until, closed};
use crate::run::{Comparison, Run};
use crate::sample::{Sample, median};
use crate::stage::{NOTHING_KEPT, Stage};
use crate::worker::Worker;

pub(super) const FIGURE: &str = "bundled";
pub(super) const TITLE: &str =
    "Cold calls to functions whose archive brings pandas and numpy, beside those that list them";

/// What the archive brings: all that pandas needs.
const BROUGHT: [&str; 4] = ["numpy", "pandas", "python-dateutil", "six"];

/// What a cold call of the one may take of the other's.
const MOST_TIMES: f64 = 1.2;

/// What a second archive may add on the disk, in bytes.
const MOST_BYTES: u64 = 1 << 20;

/// Copies of each function that are called before, so that the zygotes come.
const WARMERS: usize = 3;

const LISTED: &str = "requirements";
const ARCHIVE: &str = "archive of pip install -t";

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let mut run = Run::new(FIGURE, TITLE);
    let (rounds, calls) = stage.amount((40, 5), (2, 2));
    let library = Library::named("pandas")?;
    run.method = vec![
        format!("the archive: what `pip install --target` leaves of {}, unmodified, and the function's file", BROUGHT.join(", ")),
        "the other functions have the same source and list pandas in it; both are on one worker, `handler_cache = false`, one call at a time, in turns of a few calls".to_owned(),
        format!("{WARMERS} other copies of each were called before until they imported nothing from packages any more; a measured call that did says so among its starts"),
        "disk: what all files below the state directory take, each once, before and after a second archive with other code".to_owned(),
    ];
    let wheels = libraries::wheels(stage.work(), &stage.rootfs).await?;
    let site = libraries::site(&wheels, &stage.rootfs, &BROUGHT).await?;
    let one = [library.clone()];
    let kind = Copies::of(&one, &wheels).await?;
    let copies = WARMERS + 2;
    let template = stage.template(&kind, copies).await?;
    let worker = stage.worker_on(&template, "worker", &[NOTHING_KEPT], 1).await?;
    let mut archives = library.clone();
    archives.name = "archive".to_owned();
    for copy in 0..copies {
        let archive = archive(&site, &source(&library, copy))?;
        deploy(&worker, &archives.function(copy), archive).await?;
    }
    for (arm, library) in [(LISTED, &library), (ARCHIVE, &archives)] {
        let left = calls::warm(&worker, library, 0..WARMERS).await?;
        if left > 0 {
            let words = format!("{arm}: no exact zygote came, {left} modules were still imported");
            run.warnings.push(words);
        }
    }
    worker.settle().await?;
    stage.rest(&mut run).await?;
    let of = |arm: &str, library: &Library| {
        Calls::new(&worker, arm.to_owned(), WORK, library.functions(WARMERS..copies))
    };
    let arms = [of(LISTED, &library), of(ARCHIVE, &archives)];
    for round in 0..rounds {
        for turn in 0..arms.len() {
            let arm = &arms[(turn + round as usize) % arms.len()];
            run.add(closed(arm, round, 1, Until::Calls(calls)).await?);
        }
    }
    let before = bytes(worker.state())?;
    deploy(&worker, "second", archive(&site, &source(&library, copies))?).await?;
    let more = bytes(worker.state())?.saturating_sub(before);
    worker.stop().await?;
    let middle = |arm: &str| {
        let latencies = |sample: &&Sample| sample.latency_ms;
        median(&run.answered(arm).iter().map(latencies).collect::<Vec<_>>())
    };
    let (listed, brought) = (middle(LISTED), middle(ARCHIVE));
    let ratio = brought / listed;
    run.comparisons = vec![
        Comparison {
            what: "cold call, p50: archive ÷ requirements".to_owned(),
            paper: String::new(),
            target: format!("≤ {MOST_TIMES}"),
            ours: format!("{ratio:.2} ({brought:.2} ms ÷ {listed:.2} ms)"),
            reached: ratio.is_finite().then_some(ratio <= MOST_TIMES),
        },
        Comparison {
            what: "disk of a second archive with other code".to_owned(),
            paper: String::new(),
            target: format!("≤ {} KiB", MOST_BYTES >> 10),
            ours: format!("{} KiB", more >> 10),
            reached: Some(more <= MOST_BYTES),
        },
    ];
    Ok(Measured { run, plots: Vec::new() })
}

/// A copy of the function that lists nothing.
fn source(library: &Library, copy: usize) -> String {
    let source = library.source(copy);
    let header = |line: &&str| line.starts_with("# ///") || line.starts_with("# dependencies");
    source.lines().filter(|line| !header(line)).map(|line| format!("{line}\n")).collect()
}

async fn deploy(worker: &Worker, name: &str, archive: Vec<u8>) -> Result<()> {
    let path = format!("/v1/functions/{name}");
    let sent =
        worker.control().send(Method::PUT, &path, "application/zip", Bytes::from(archive)).await?;
    sent.good().with_context(|| format!("deploy {name}")).map(drop)
}

/// A ZIP archive of all that is installed, and a function's file.
fn archive(site: &Path, source: &str) -> Result<Vec<u8>> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default();
    for path in files(site)? {
        let name = path.strip_prefix(site).context("a file of another directory")?;
        archive.start_file(name.to_string_lossy(), options).context("write an archive")?;
        let content = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        archive.write_all(&content).context("write an archive")?;
    }
    archive.start_file("main.py", options).context("write an archive")?;
    archive.write_all(source.as_bytes()).context("write an archive")?;
    Ok(archive.finish().context("write an archive")?.into_inner())
}

fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut open) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = open.pop() {
        let entries = fs::read_dir(&directory);
        for entry in entries.with_context(|| format!("list {}", directory.display()))? {
            let entry = entry.context("list a directory")?;
            let kind = entry.file_type().context("look at a file")?;
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Bytes that the code, packages and kept archives of a state directory take on the disk, each file once.
fn bytes(state: &Path) -> Result<u64> {
    let (mut seen, mut sum) = (HashSet::new(), 0);
    for part in ["layers", "bundles"] {
        for path in files(&state.join(part))? {
            let about = fs::symlink_metadata(&path).context("look at a file")?;
            if seen.insert(about.ino()) {
                sum += about.blocks() * 512;
            }
        }
    }
    Ok(sum)
}
