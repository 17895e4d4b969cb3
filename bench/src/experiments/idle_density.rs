//! How many idle instances of one library a gigabyte holds, with the import cache and without it.

use anyhow::{Context as _, Result};

use super::Measured;
use super::density;
use crate::calls::{self, Calls, WORK};
use crate::libraries::{self, Copies, Library};
use crate::plot::{Line, Plot};
use crate::run::{Comparison, Run};
use crate::stage::{NO_ZYGOTE, Stage};

pub(super) const FIGURE: &str = "idle_density";
pub(super) const TITLE: &str =
    "Idle instances of functions that use pandas in a gigabyte, with and without the import cache";

const ON: &str = "import cache on";
const OFF: &str = "import cache off";

/// How many times as many the import cache is to allow.
const TARGET: f64 = 3.0;

/// More than all instances of a run.
const ROOM: (&str, &str) = ("handler_cache_bytes", "12GiB");

/// Copies that are called before.
const WARMERS: usize = 3;

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
const MIB: f64 = 1024.0 * 1024.0;

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let mut run = Run::new(FIGURE, TITLE);
    let (instances, step) = stage.amount((60, 4), (8, 2));
    run.method = vec![
        format!("distinct functions of one lock (pandas), each called once with a little work, then paused and kept; {instances} of them on a worker of its own for each arm, one arm after the other"),
        "bytes an instance: the slope over the number of paused instances, least squares, the first tenth left out, of the host's `MemAvailable` or of what the cgroups are charged, whichever is more".to_owned(),
        "in a gigabyte: 2^30 bytes, less what the worker's zygotes cost, over that slope".to_owned(),
        "without the import cache each instance is a fresh interpreter that imports for itself; files that it maps are shared through the page cache in both arms".to_owned(),
    ];
    let library = Library::named("pandas")?;
    let wheels = libraries::wheels(stage.work(), &stage.rootfs).await?;
    let kind = Copies::of(std::slice::from_ref(&library), &wheels).await?;
    let copies = WARMERS + instances;
    let template = stage.template(&kind, copies).await?;
    stage.rest(&mut run).await?;
    let settings = [ROOM, NO_ZYGOTE];
    let arms = [(ON, "memory-on", &settings[..1]), (OFF, "memory-off", &settings[..])];
    let mut held = Vec::new();
    for (arm, table, settings) in arms {
        let worker = stage.worker_on(&template, arm, settings, 1).await?;
        calls::warm(&worker, &library, 0..WARMERS).await?;
        let calls = Calls::new(&worker, arm.to_owned(), WORK, library.functions(WARMERS..copies));
        let cost = density::measure(&worker, &calls, &mut run, table, (instances, step)).await?;
        let status = worker.status().await?;
        let zygotes = status["zygotes"].as_array().context("status names no zygotes")?;
        let zygotes = zygotes
            .iter()
            .filter_map(|zygote| zygote["memory_bytes"].as_f64())
            .fold(0.0, |a, b| a + b);
        worker.stop().await?;
        held.push(Held {
            arm,
            bytes: cost.available.0,
            error: cost.available.1,
            cgroup: cost.cgroup,
            zygotes,
        });
    }
    run.comparisons = held.iter().map(Held::comparison).collect();
    let times = held[0].in_a_gigabyte() / held[1].in_a_gigabyte();
    run.comparisons.push(Comparison {
        what: "idle instances in a gigabyte, import cache on over off".to_owned(),
        paper: String::new(),
        target: format!("≥ {TARGET}×"),
        ours: format!("{times:.1}×"),
        reached: times.is_finite().then_some(times >= TARGET),
    });
    let plot = plot(&run);
    Ok(Measured { run, plots: vec![("plot", plot)] })
}

/// What one arm's instances cost, in bytes.
struct Held {
    arm: &'static str,
    bytes: f64,
    error: f64,
    cgroup: f64,
    zygotes: f64,
}

impl Held {
    fn in_a_gigabyte(&self) -> f64 {
        (GIB - self.zygotes) / self.each()
    }

    /// The dearer of the two counts: what others give back meanwhile makes an instance seem cheap to the host.
    fn each(&self) -> f64 {
        self.bytes.max(self.cgroup)
    }

    fn comparison(&self) -> Comparison {
        Comparison {
            what: format!("idle instances in a gigabyte, {}", self.arm),
            paper: String::new(),
            target: String::new(),
            ours: format!(
                "{:.0}: {:.2} MiB each ({:.2} ± {:.2} by `MemAvailable`, {:.2} by the cgroups' count), zygotes {:.0} MiB",
                self.in_a_gigabyte(),
                self.each() / MIB,
                self.bytes / MIB,
                self.error / MIB,
                self.cgroup / MIB,
                self.zygotes / MIB
            ),
            reached: None,
        }
    }
}

fn plot(run: &Run) -> Plot {
    let lines = run.tables.iter().map(|table| {
        let first = table.rows.first().map_or(0.0, |row| row[1]);
        let points = table.rows.iter().map(|row| (row[0], (first - row[1]) / MIB, String::new()));
        let name = if table.name == "memory-on" { ON } else { OFF };
        Line { name: name.to_owned(), points: points.collect(), cited: false }
    });
    Plot {
        title: TITLE.to_owned(),
        x: "paused instances".to_owned(),
        y: "MiB that the machine can no longer give to others".to_owned(),
        log_x: false,
        log_y: false,
        room: 1.2,
        lines: lines.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_zygotes_cost_is_no_room_for_instances() {
        let held =
            |zygotes: f64| Held { arm: ON, bytes: 10.0 * MIB, error: 0.0, cgroup: 0.0, zygotes };
        assert!((held(0.0).in_a_gigabyte() - 102.4).abs() < 1e-9);
        assert!((held(GIB / 2.0).in_a_gigabyte() - 51.2).abs() < 1e-9);
    }

    #[test]
    fn the_dearer_count_of_an_instance_is_believed() {
        let held = |bytes, cgroup| Held { arm: ON, bytes, error: 0.0, cgroup, zygotes: 0.0 };
        assert_eq!(held(1.0, 2.0).each(), 2.0);
        assert_eq!(held(2.0, 1.0).each(), 2.0);
    }
}
