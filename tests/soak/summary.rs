//! The table at the end.

use std::time::Duration;

use crate::census::Census;
use crate::client::Load;
use crate::history::Tally;

/// Slow answers that are shown.
const OUTLIERS: usize = 20;

const VERDICTS: [&str; 6] = ["right", "cut off", "not taken", "killed", "hung up", "WRONG"];

/// Prints everything; whether all promises were kept.
pub(crate) fn print(load: &Load, census: &Census, seed: u64) -> bool {
    let mut total = Tally::default();
    println!(
        "\n{:14} {:>7} {:>8} {:>9} {:>7} {:>8} {:>6} | {:>8} {:>8} {:>8} ms",
        "",
        VERDICTS[0],
        VERDICTS[1],
        VERDICTS[2],
        VERDICTS[3],
        VERDICTS[4],
        VERDICTS[5],
        "p50",
        "p99",
        "most"
    );
    for (kind, tally) in load.history.tallies() {
        row(kind, &tally);
        for (verdict, count) in &tally.verdicts {
            *total.verdicts.entry(verdict).or_default() += count;
        }
        total.took.extend(&tally.took);
    }
    row("all", &total);
    println!("\nbroken on purpose:");
    for (what, count) in load.history.breaks() {
        println!("  {count:4} {what}");
    }
    println!(
        "\ncalm points: calls, zygotes, sandboxed processes, their cgroups and MiB; descriptors (not of cgroups) and KiB of worker and warden"
    );
    for calm in census.points() {
        println!(
            "  life {:3} {:7} {:4} {:4} {:4} {:5}  {:5} {:8}  {:5} {:8}",
            calm.epoch,
            calm.calls,
            calm.zygotes,
            calm.sandboxes,
            calm.groups,
            calm.bytes >> 20,
            calm.worker.fds,
            calm.worker.kib,
            calm.warden.fds,
            calm.warden.kib
        );
    }
    list("what grew with the calls", &census.grown());
    let peaks = census.peaks();
    println!(
        "\nmost at a time: {} MiB of idle instances, {} MiB of zygotes, {} instances; {} MiB of all sandboxes, as the kernel counts",
        peaks.idle >> 20,
        peaks.zygotes >> 20,
        peaks.instances,
        peaks.sandboxes >> 20
    );
    let outliers = load.history.outliers();
    let shown = &outliers[..outliers.len().min(OUTLIERS)];
    list(&format!("answers after more than 5 s: {}, the slowest", outliers.len()), shown);
    let (failed, failures) = load.history.failures();
    list("FAILURES", &failures);
    println!("\nseed {seed}: {failed} failures");
    failed == 0
}

fn row(kind: &str, tally: &Tally) {
    let count = |verdict| tally.verdicts.get(verdict).copied().unwrap_or(0);
    let mut took = tally.took.clone();
    took.sort_unstable();
    let at = |hundredth: usize| {
        let index = (took.len() * hundredth / 100).min(took.len().saturating_sub(1));
        took.get(index).map_or(0.0, Duration::as_secs_f64) * 1e3
    };
    println!(
        "{kind:14} {:7} {:8} {:9} {:7} {:8} {:6} | {:8.1} {:8.1} {:8.1}",
        count(VERDICTS[0]),
        count(VERDICTS[1]),
        count(VERDICTS[2]),
        count(VERDICTS[3]),
        count(VERDICTS[4]),
        count(VERDICTS[5]),
        at(50),
        at(99),
        at(100)
    );
}

fn list(title: &str, lines: &[String]) {
    if !lines.is_empty() {
        println!("\n{title}:");
        lines.iter().for_each(|line| println!("  {line}"));
    }
}
