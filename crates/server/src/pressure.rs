//! How the host is off for memory: the engine is told once a second, off the path of calls.
//!
//! The kernel counts the microseconds in which some task waited for memory (PSI, Documentation/accounting/psi.rst). Its own
//! averages go back ten seconds and more, and would have caches shrink long after it was enough: the difference between two
//! looks tells at once. A trigger would need a privilege, and a look costs microseconds.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Engine, Pressure};
use tokio_util::sync::CancellationToken;

/// Where the kernel tells of the whole machine's.
pub const MACHINE: &str = "/proc/pressure/memory";

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// Looks at one file again and again.
#[derive(Debug)]
struct Gauge {
    file: PathBuf,
    before: Option<(Instant, u64)>,
}

impl Gauge {
    fn look(&mut self, now: Instant) -> Pressure {
        let count = stalled_us(&self.file);
        let before = std::mem::replace(&mut self.before, count.map(|count| (now, count)));
        let stalled = count.map(|count| {
            let Some((then, less)) = before else { return 0.0 };
            let stalled = Duration::from_micros(count.saturating_sub(less));
            stalled.as_secs_f64() / (now - then).as_secs_f64().max(1e-3)
        });
        let memory = Memory::look();
        #[expect(clippy::cast_precision_loss, reason = "bytes in a ratio")]
        let available = memory.available as f64 / memory.total.max(1) as f64;
        Pressure { stalled, available }
    }
}

/// Tells the engine, until it is told to stop.
pub(crate) async fn watch(engine: Arc<Engine>, file: PathBuf, stop: CancellationToken) {
    let mut gauge = Gauge { file, before: None };
    let mut every = tokio::time::interval(EVERY);
    while stop.run_until_cancelled(every.tick()).await.is_some() {
        engine.feel(gauge.look(Instant::now()));
    }
}

/// Microseconds in which some task waited for memory, since the machine or the group is there; none where the kernel does
/// not count them.
pub(crate) fn stalled_us(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.split(' ').find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

/// Bytes of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    /// What new work can have without swapping, as the kernel estimates it.
    pub(crate) available: u64,
}

impl Memory {
    /// The machine's, and no more than the groups that this process is in may have. On version 2 only: on version 1 our
    /// sandboxes' groups are at the top, whatever group the worker is in.
    pub(crate) fn look() -> Self {
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kilobytes = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            line.trim().trim_end_matches(" kB").parse::<u64>().ok()
        };
        let limit = limit();
        let total = kilobytes("MemTotal:").map_or(1 << 30, |kilobytes| kilobytes << 10);
        let available = kilobytes("MemAvailable:").map_or(total / 2, |kilobytes| kilobytes << 10);
        Self { total: total.min(limit), available: available.min(limit) }
    }
}

fn limit() -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(own) = groups.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return u64::MAX;
    };
    let own = Path::new("/sys/fs/cgroup").join(own);
    let limits =
        own.ancestors().filter_map(|group| fs::read_to_string(group.join("memory.max")).ok());
    limits.filter_map(|text| text.trim().parse().ok()).min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_between_two_looks_count_and_older_ones_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("memory");
        let say = |total: u64| {
            let full = "full avg10=0.00 avg60=0.00 avg300=0.00 total=7";
            fs::write(
                &file,
                format!("some avg10=9.00 avg60=0.00 avg300=0.00 total={total}\n{full}\n"),
            )
            .unwrap();
        };
        let mut gauge = Gauge { file: file.clone(), before: None };
        let begun = Instant::now();
        let mut look = |seconds| gauge.look(begun + Duration::from_secs(seconds)).stalled;
        assert_eq!(look(0), None, "it is not there");
        say(5_000_000);
        assert_eq!(look(1), Some(0.0));
        say(5_500_000);
        assert_eq!(look(2), Some(0.5));
        assert_eq!(look(3), Some(0.0));
        say(1);
        assert_eq!(look(4), Some(0.0), "another file, or one that began anew");
    }

    #[test]
    fn this_machine_has_memory() {
        let memory = Memory::look();
        assert!(memory.available > 0 && memory.available <= memory.total);
    }
}
