//! How the host is off for memory: the engine is told once a second, off the path of calls.
//!
//! The kernel counts the microseconds in which some task waited for memory (PSI, Documentation/accounting/psi.rst). Its own
//! averages go back ten seconds and more, and would have caches shrink long after it was enough: the difference between two
//! looks tells at once. A trigger would need a privilege, and a look costs microseconds.
//!
//! It counts as well who waits at the limit of a group of its own, a greedy handler say: what is available is told with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Engine, Pressure};
use tokio_util::sync::CancellationToken;

use platform::deploy::builder::BuildSandboxes;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// Looks again and again.
#[derive(Debug)]
struct Gauge {
    proc: PathBuf,
    before: Option<(Instant, u64)>,
}

impl Gauge {
    fn look(&mut self, now: Instant) -> Pressure {
        let count = stalled_us(&self.proc);
        let before = std::mem::replace(&mut self.before, count.map(|count| (now, count)));
        let stalled = count.map(|count| {
            let Some((then, less)) = before else { return 0.0 };
            let stalled = Duration::from_micros(count.saturating_sub(less));
            stalled.as_secs_f64() / (now - then).as_secs_f64().max(1e-3)
        });
        let memory = Memory::look(&self.proc);
        #[expect(clippy::cast_precision_loss, reason = "bytes in a ratio")]
        let available = memory.available as f64 / memory.total.max(1) as f64;
        Pressure { stalled, available }
    }
}

/// Tells the engine, until it is told to stop.
pub(crate) async fn watch(
    engine: Arc<Engine>,
    builds: Option<Arc<BuildSandboxes>>,
    proc: PathBuf,
    stop: CancellationToken,
) {
    let mut gauge = Gauge { proc, before: None };
    let mut every = tokio::time::interval(EVERY);
    while stop.run_until_cancelled(every.tick()).await.is_some() {
        engine.note_pressure(gauge.look(Instant::now()));
        engine.note_builds(builds.as_ref().map_or(0, |builds| builds.memory()));
    }
}

/// Microseconds in which some task waited for memory, since the machine started; none where the kernel does not count them.
pub(crate) fn stalled_us(proc: &Path) -> Option<u64> {
    let text = fs::read_to_string(proc.join("pressure/memory")).ok()?;
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
    pub(crate) fn look(proc: &Path) -> Self {
        let text = fs::read_to_string(proc.join("meminfo")).unwrap_or_default();
        let kilobytes = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            line.trim().trim_end_matches(" kB").parse::<u64>().ok()
        };
        let total = kilobytes("MemTotal:").map_or(1 << 30, |kilobytes| kilobytes << 10);
        let available = kilobytes("MemAvailable:").map_or(total / 2, |kilobytes| kilobytes << 10);
        let machine = Self { total, available };
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let Some(own) = groups.lines().find_map(|line| line.strip_prefix("0::/")) else {
            return machine;
        };
        let own = Path::new("/sys/fs/cgroup").join(own);
        own.ancestors().filter_map(Self::of_group).fold(machine, |all, group| Self {
            total: all.total.min(group.total),
            available: all.available.min(group.available),
        })
    }

    /// What a group of version 2 that has a limit may have; files that it has read can be given back. Shared memory and
    /// tmpfs are counted as files as well, and cannot (Documentation/admin-guide/cgroup-v2.rst).
    fn of_group(group: &Path) -> Option<Self> {
        let read = |name: &str| fs::read_to_string(group.join(name)).ok();
        let number = |text: String| text.trim().parse::<u64>().ok();
        let total = number(read("memory.max")?)?;
        let used = number(read("memory.current")?)?;
        let stat = read("memory.stat")?;
        let of =
            |key: &str| stat.lines().find_map(|line| line.strip_prefix(key)?.parse::<u64>().ok());
        let files = of("file ")?.saturating_sub(of("shmem ").unwrap_or(0));
        Some(Self { total, available: total.saturating_sub(used.saturating_sub(files)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_between_two_looks_count_and_older_ones_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let say = |total: u64| {
            let some = format!("some avg10=9.00 avg60=0.00 avg300=0.00 total={total}\n");
            let full = "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
            fs::create_dir_all(dir.path().join("pressure")).unwrap();
            fs::write(dir.path().join("pressure/memory"), some + full).unwrap();
        };
        let mut gauge = Gauge { proc: dir.path().to_owned(), before: None };
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
        let memory = Memory::look(Path::new("/proc"));
        assert!(memory.available > 0 && memory.available <= memory.total);
    }

    #[test]
    fn a_group_with_a_limit_has_what_it_does_not_use_and_what_it_can_give_back() {
        let dir = tempfile::tempdir().unwrap();
        let say = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        say("memory.max", "max\n");
        say("memory.current", "700\n");
        say("memory.stat", "anon 400\nfile 300\nkernel 0\nshmem 50\n");
        assert!(Memory::of_group(dir.path()).is_none());
        say("memory.max", "1000\n");
        let group = Memory::of_group(dir.path()).unwrap();
        assert_eq!((group.total, group.available), (1000, 550));
    }
}
