//! Processor time: of the whole machine, of a group of processes, of this program.
//!
//! The machine's counts everything that a call causes: work done ahead of it, in the kernel's own threads and after it,
//! and the load generator. What it does when nothing is called is measured first and taken off. A group's is exact for
//! the worker, its warden and all sandboxes, and sees none of the kernel's own threads.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Serialize;

/// A reading of all clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    when: Instant,
    machine: f64,
    stolen: f64,
    own: f64,
    group: Option<f64>,
}

/// Seconds of processor time between two readings.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Spent {
    /// Seconds that passed.
    pub(crate) wall: f64,
    /// Busy, over all processors: user, system, interrupts.
    pub(crate) machine: f64,
    /// Taken by the hypervisor.
    pub(crate) stolen: f64,
    /// This program's: the load generator.
    pub(crate) own: f64,
    /// The group's, where there is one.
    pub(crate) group: Option<f64>,
}

impl Clocks {
    /// Reads them.
    pub(crate) fn read(group: Option<&CpuGroup>) -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
        let ticks: Vec<f64> = stat
            .lines()
            .next()
            .unwrap_or_default()
            .split_ascii_whitespace()
            .skip(1)
            .filter_map(|field| field.parse().ok())
            .collect();
        // proc(5): user nice system idle iowait irq softirq steal
        let tick = |at: usize| ticks.get(at).copied().unwrap_or(0.0) / ticks_a_second();
        let own = fs::read_to_string("/proc/self/stat").context("read /proc/self/stat")?;
        // Fields 14 and 15, counted after the name, which may hold blanks.
        let own: f64 = own
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest)
            .split_ascii_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<f64>().ok())
            .sum();
        Ok(Self {
            when: Instant::now(),
            machine: tick(0) + tick(1) + tick(2) + tick(5) + tick(6),
            stolen: tick(7),
            own: own / ticks_a_second(),
            group: group.map(CpuGroup::seconds).transpose()?,
        })
    }

    /// What was spent since an earlier reading.
    pub(crate) fn since(&self, earlier: &Self) -> Spent {
        Spent {
            wall: self.when.duration_since(earlier.when).as_secs_f64(),
            machine: self.machine - earlier.machine,
            stolen: self.stolen - earlier.stolen,
            own: self.own - earlier.own,
            group: self.group.zip(earlier.group).map(|(now, then)| now - then),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "100 on every Linux")]
fn ticks_a_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// How busy the machine is when nobody asks it anything: seconds of processor time a second.
pub(crate) async fn idle(time: Duration) -> Result<f64> {
    let before = Clocks::read(None)?;
    tokio::time::sleep(time).await;
    let spent = Clocks::read(None)?.since(&before);
    Ok(spent.machine / spent.wall)
}

/// A cgroup of ours that only counts: the worker and all that comes of it are in it.
#[derive(Debug)]
pub(crate) struct CpuGroup {
    dir: PathBuf,
    usage: Usage,
}

#[derive(Debug)]
enum Usage {
    V1,
    V2,
}

impl CpuGroup {
    /// Makes one; none where the host does not let us.
    pub(crate) fn make(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let find = |kind: &str, option: &str| {
            mounts.lines().find_map(|line| {
                let mut fields = line.split(' ').skip(1);
                let (at, is, options) = (fields.next()?, fields.next()?, fields.next()?);
                let fits =
                    is == kind && (option.is_empty() || options.split(',').any(|o| o == option));
                fits.then(|| PathBuf::from(at))
            })
        };
        let (top, usage) = match find("cgroup", "cpuacct") {
            Some(top) => (top, Usage::V1),
            None => (find("cgroup2", "")?, Usage::V2),
        };
        let dir = top.join(format!("bench-{}-{name}", std::process::id()));
        fs::create_dir(&dir).ok()?;
        Some(Self { dir, usage })
    }

    /// Where a process writes itself to join.
    pub(crate) fn procs(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// Processor time that it has used, in seconds.
    pub(crate) fn seconds(&self) -> Result<f64> {
        let read = |name: &str| {
            let path = self.dir.join(name);
            fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
        };
        let number = |text: &str| text.trim().parse::<f64>().context("no number");
        match self.usage {
            Usage::V1 => Ok(number(&read("cpuacct.usage")?)? / 1e9),
            Usage::V2 => {
                let stat = read("cpu.stat")?;
                let line = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
                Ok(number(line.context("cpu.stat has no usage_usec")?)? / 1e6)
            }
        }
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        // The last process may still be on its way out.
        for _ in 0..100 {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
