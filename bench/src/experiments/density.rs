//! What a paused instance costs the machine: the slope of the host's memory over their number.
//!
//! The host's own numbers see everything: pages, page tables, kernel stacks, cgroups, mounts, sockets, and the worker's
//! own bookkeeping. A cgroup's sees less.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::load::Target;
use crate::meminfo::meminfo;
use crate::run::{Run, Table};
use crate::sample::{float, slope};
use crate::worker::Worker;

/// The head of the raw table.
static HEAD: [&str; 10] = [
    "instances",
    "available",
    "free",
    "page_tables",
    "kernel_stack",
    "slab",
    "percpu",
    "cgroup",
    "cgroup_kernel",
    "monitors_pss",
];

/// Bytes a paused instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// By `MemAvailable`: what the machine can no longer give to others.
    pub(super) available: (f64, f64),
    /// By the cgroups' own count.
    pub(super) cgroup: f64,
    /// Page tables alone.
    pub(super) page_tables: f64,
    /// Slab, kernel stacks and per-CPU memory.
    pub(super) kernel: f64,
    /// Proportional set size of the monitors of micro-VMs.
    pub(super) monitors: f64,
}

/// Makes `instances` calls to as many functions of a worker and watches memory as the paused instances pile up.
pub(super) async fn measure(
    worker: &Worker,
    calls: &dyn Target,
    run: &mut Run,
    table: &'static str,
    (instances, step): (usize, usize),
) -> Result<Cost> {
    let group = memory_group(worker);
    let already = idle(worker).await?;
    let mut rows = Vec::new();
    for made in 0..=instances {
        if made > 0 {
            let shot = calls.shoot(0).await?;
            ensure!(shot.start != "resume", "a function that was to be new had an instance");
        }
        if made.is_multiple_of(step) {
            // Instances are being paused, spare forks made, per-CPU counters folded.
            worker.settle().await?;
            tokio::time::sleep(Duration::from_millis(1500)).await;
            let there = idle(worker).await? - already;
            ensure!(
                there == made,
                "{there} of {made} instances are kept: the handler cache is too small for this"
            );
            rows.push(reading(made, group.as_deref())?);
        }
    }
    let cost = Cost::of(&rows);
    run.tables.push(Table { name: table, head: &HEAD, rows });
    Ok(cost)
}

/// As [`measure`], of what this program itself keeps: `make` makes one more.
pub(super) fn measure_here(
    mut make: impl FnMut() -> Result<()>,
    run: &mut Run,
    table: &'static str,
    (instances, step): (usize, usize),
) -> Result<Cost> {
    let mut rows = Vec::new();
    for made in 0..=instances {
        if made > 0 {
            make()?;
        }
        if made.is_multiple_of(step) {
            std::thread::sleep(Duration::from_millis(500));
            let mut row = reading(made, None)?;
            row[HEAD.len() - 1] = pss(Path::new("/proc/self")).unwrap_or(f64::NAN);
            rows.push(row);
        }
    }
    let cost = Cost::of(&rows);
    run.tables.push(Table { name: table, head: &HEAD, rows });
    Ok(cost)
}

impl Cost {
    fn of(rows: &[Vec<f64>]) -> Self {
        // The first readings hold what grows once: arenas of the worker, caches of the kernel.
        let steady = &rows[rows.len() / 10..];
        let column = |name: &str| HEAD.iter().position(|head| *head == name).unwrap_or(0);
        let rise = |name: &str| {
            let points: Vec<_> = steady.iter().map(|row| (row[0], row[column(name)])).collect();
            slope(&points)
        };
        let (fall, error) = rise("available");
        Self {
            available: (-fall, error),
            cgroup: rise("cgroup").0,
            page_tables: rise("page_tables").0,
            kernel: rise("slab").0 + rise("kernel_stack").0 + rise("percpu").0,
            monitors: rise("monitors_pss").0,
        }
    }
}

async fn idle(worker: &Worker) -> Result<usize> {
    let status = worker.status().await?;
    let idle = status["instances"]["idle"].as_u64().context("status names no idle instances")?;
    Ok(usize::try_from(idle)?)
}

fn reading(instances: usize, group: Option<&Path>) -> Result<Vec<f64>> {
    let host = |name: &str| {
        meminfo(name).map(bytes).with_context(|| format!("/proc/meminfo has no {name}"))
    };
    let read = |name: &str| {
        let text = group.and_then(|dir| fs::read_to_string(dir.join(name)).ok());
        text.and_then(|text| text.trim().parse().ok())
    };
    let charged = read("memory.usage_in_bytes").or_else(|| read("memory.current"));
    Ok(vec![
        float(instances),
        host("MemAvailable")?,
        host("MemFree")?,
        host("PageTables")?,
        host("KernelStack")?,
        host("Slab")?,
        host("Percpu")?,
        charged.unwrap_or(f64::NAN),
        read("memory.kmem.usage_in_bytes").unwrap_or(f64::NAN),
        monitors_pss(),
    ])
}

/// Of all monitors that there are.
fn monitors_pss() -> f64 {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let is_monitor = |dir: &PathBuf| {
        fs::read_to_string(dir.join("comm")).is_ok_and(|name| name.trim() == "wool-vmm")
    };
    processes.filter(is_monitor).filter_map(|dir| pss(&dir)).fold(0.0, |all, one| all + one)
}

/// Bytes of a process: what it shares counts for a part.
fn pss(process: &Path) -> Option<f64> {
    let rollup = fs::read_to_string(process.join("smaps_rollup")).ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse().ok()?;
    Some(bytes(kib << 10))
}

fn memory_group(worker: &Worker) -> Option<PathBuf> {
    let name = worker.cgroup_name().ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let groups = places.map(|at| Path::new(at).join(&name));
    let has = |dir: &PathBuf| {
        ["memory.usage_in_bytes", "memory.current"].iter().any(|f| dir.join(f).exists())
    };
    groups.into_iter().find(has)
}

#[expect(clippy::cast_precision_loss, reason = "2^53 bytes are 9 petabytes")]
fn bytes(value: u64) -> f64 {
    value as f64
}
