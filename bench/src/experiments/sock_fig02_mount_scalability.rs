//! SOCK, figure 2: what many root file systems cost whoever makes one more, and whoever only makes a mount namespace.
//!
//! The paper hangs each container's root in the host's mount table, which every new mount namespace copies. A detached
//! tree is in no table. Kernel calls only, from a program in C: no worker and no HTTP is in between.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{Measured, at_most};
use crate::guests::build;
use crate::plot::{Line, Plot};
use crate::run::{Comparison, Run, Table};
use crate::sample::{float, median, quantile};
use crate::stage::Stage;

pub(super) const FIGURE: &str = "sock_fig2";
pub(super) const TITLE: &str =
    "Mount operations a second, by the root file systems that are there: in the table, detached";

const PROGRAM: &str = include_str!("../../workloads/mounts.c");

/// What is done, as the program calls it and as the plot does.
const WAYS: [(&str, &str); 5] = [
    ("unshare-table", "unshare, roots in the table"),
    ("unshare-detached", "unshare, roots detached"),
    ("bind", "bind mount a root"),
    ("tree", "detached tree of a root"),
    ("chroot", "chroot"),
];

/// Root file systems that are there.
const PRESENT: [usize; 5] = [1, 10, 100, 1000, 5000];

/// Processes that do it at once.
const CLIENTS: [usize; 2] = [1, 10];

/// One way beside so many others, over all rounds.
struct Cell {
    way: usize,
    present: usize,
    clients: usize,
    /// Operations a second, a round each.
    rates: Vec<f64>,
    microseconds: Vec<f64>,
}

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let mut run = Run::new(FIGURE, TITLE);
    run.method = vec![
        "bench/workloads/mounts.c: system calls in a loop, in a mount namespace of its own; each operation is in raw/operations.csv".to_owned(),
        "unshare: a bystander's new mount namespace, which copies the table; the one before is let go in the same step".to_owned(),
        "bind mount: made and detached again; detached tree: `open_tree(OPEN_TREE_CLONE | AT_RECURSIVE)` and closed again".to_owned(),
        "ways take turns within a round, and who begins changes from round to round".to_owned(),
    ];
    let program = build(&stage.scratch().join("mounts"), PROGRAM, &[])?;
    let place = stage.scratch().join("place");
    std::fs::create_dir(&place).context("make a directory to mount on")?;
    stage.rest(&mut run).await?;
    let (present, rounds, milliseconds) =
        stage.amount((&PRESENT[..], 5, 400), (&PRESENT[..3], 1, 50));
    let mut cells = Vec::new();
    for &present in present {
        for clients in CLIENTS {
            for way in 0..WAYS.len() {
                let (rates, microseconds) = (Vec::new(), Vec::new());
                cells.push(Cell { way, present, clients, rates, microseconds });
            }
        }
    }
    for round in 0..rounds {
        // Those of one place on the axis are next to each other.
        for group in cells.chunks_mut(WAYS.len()) {
            for turn in 0..group.len() {
                let cell = &mut group[(turn + round) % WAYS.len()];
                cell.measure(&program, &place, milliseconds)?;
            }
        }
    }
    for cell in &cells {
        eprintln!(
            "{:28} beside {:5}, {:2} at a time {:10.1}/s {:9.1} µs p50",
            WAYS[cell.way].1,
            cell.present,
            cell.clients,
            median(&cell.rates),
            median(&cell.microseconds)
        );
    }
    run.comparisons = compare(&cells);
    run.tables.push(table(&cells));
    let plot = plot(&cells);
    Ok(Measured { run, plots: vec![("plot", plot)] })
}

impl Cell {
    fn measure(&mut self, program: &Path, place: &Path, milliseconds: u32) -> Result<()> {
        let numbers =
            [self.present.to_string(), self.clients.to_string(), milliseconds.to_string()];
        let mut command = Command::new(program);
        let said = command.arg(WAYS[self.way].0).args(numbers).arg(place).output();
        let said = said.context("start the program that mounts")?;
        let words = String::from_utf8_lossy(&said.stderr);
        ensure!(said.status.success(), "{} failed: {words}", WAYS[self.way].0);
        let text = String::from_utf8(said.stdout).context("read its numbers")?;
        let mut numbers = text.lines().map(str::parse::<f64>);
        let whole = numbers.next().context("it said nothing")?.context("read how long it took")?;
        let before = self.microseconds.len();
        for number in numbers {
            self.microseconds.push(number.context("read an operation's time")?);
        }
        let operations = self.microseconds.len() - before;
        ensure!(operations > 0, "{} did nothing", WAYS[self.way].0);
        self.rates.push(float(operations) * 1e6 / whole);
        Ok(())
    }
}

fn of<'a>(cells: &'a [Cell], way: &str, present: usize, clients: usize) -> Option<&'a Cell> {
    cells
        .iter()
        .find(|cell| WAYS[cell.way].0 == way && cell.present == present && cell.clients == clients)
}

fn compare(cells: &[Cell]) -> Vec<Comparison> {
    let most = cells.iter().map(|cell| cell.present).max().unwrap_or(0);
    let rate = |way, present| of(cells, way, present, 10).map_or(f64::NAN, |c| median(&c.rates));
    let p50 = |way, present| {
        of(cells, way, present, 1).map_or(f64::NAN, |cell| median(&cell.microseconds))
    };
    let told = |what: String, paper: &str, ours: String| Comparison {
        what,
        paper: paper.to_owned(),
        target: String::new(),
        ours,
        reached: None,
    };
    let few = rate("unshare-table", 1);
    let mut all = vec![
        told(
            "mount namespaces a second, few mounts, 10 at a time".to_owned(),
            "about 1500/s",
            format!("{few:.0}/s"),
        ),
        told(
            format!("the same, {most} roots in the table"),
            "towards 0",
            format!("{:.0}/s", rate("unshare-table", most)),
        ),
        told(
            format!("the same, {most} roots detached"),
            "",
            format!("{:.0}/s", rate("unshare-detached", most)),
        ),
        told("chroot, p50".to_owned(), "< 1 µs", format!("{:.2} µs", p50("chroot", 1))),
    ];
    all.extend([
        at_most(
            &format!("a bystander's mount namespace, {most} roots detached over 1, p50"),
            p50("unshare-detached", most) / p50("unshare-detached", 1),
            "×",
            1.5,
        ),
        at_most(
            &format!("a detached tree, {most} roots there over 1, p50"),
            p50("tree", most) / p50("tree", 1),
            "×",
            1.5,
        ),
    ]);
    all
}

fn table(cells: &[Cell]) -> Table {
    let rows = cells.iter().flat_map(|cell| {
        let of = [float(cell.way), float(cell.present), float(cell.clients)];
        // Evenly spread: the quantiles stay, and the file stays small.
        let step = cell.microseconds.len().div_ceil(2000).max(1);
        cell.microseconds.iter().step_by(step).map(move |took| [&of[..], &[*took]].concat())
    });
    Table {
        name: "operations",
        head: &["way (place in the list of ways)", "roots there", "at a time", "microseconds"],
        rows: rows.collect(),
    }
}

fn plot(cells: &[Cell]) -> Plot {
    let line = |way: usize, clients: usize| {
        let own = cells.iter().filter(|cell| cell.way == way && cell.clients == clients);
        let points = own.map(|cell| {
            let slow = quantile(&cell.microseconds, 990);
            let label =
                if cell.clients == 1 { format!("{slow:.0} µs p99") } else { String::new() };
            (float(cell.present), median(&cell.rates), label)
        });
        Line {
            name: format!("{}, {clients} at a time", WAYS[way].1),
            points: points.collect(),
            cited: false,
        }
    };
    Plot {
        title: TITLE.to_owned(),
        x: "root file systems there".to_owned(),
        y: "operations a second".to_owned(),
        log_x: true,
        log_y: true,
        room: 12.0,
        lines: (0..WAYS.len()).flat_map(|way| CLIENTS.map(|clients| line(way, clients))).collect(),
    }
}
