//! The contents of a view's files: pure functions of what was read from the host. Formats: proc(5),
//! the kernel's `Documentation/admin-guide/cputopology.rst`, `cgroup-v2.rst` and
//! `cgroup-v1/memory.rst`.

use std::collections::BTreeSet;
use std::fmt::Write;

/// The period of a processor quota, in microseconds.
const PERIOD: u64 = crate::cgroup::PERIOD;

/// Version 1's value for no limit: the maximum, in whole pages.
const NO_LIMIT_V1: u64 = i64::MAX as u64 / 4096 * 4096;

/// Memory in bytes that a sandbox has used when its program begins, at most: 32 MiB for the
/// interpreter.
const IN_USE: u64 = 32 << 20;

/// Processors as the kernel lists them: `0-3,8`.
pub(super) fn list(numbers: &[usize]) -> String {
    let mut text = String::new();
    let mut rest = numbers;
    while let Some((first, _)) = rest.split_first() {
        let length = rest.iter().zip(*first..).take_while(|(has, next)| **has == *next).count();
        let last = first + length - 1;
        let comma = if text.is_empty() { "" } else { "," };
        let _ = match last == *first {
            true => write!(text, "{comma}{first}"),
            false => write!(text, "{comma}{first}-{last}"),
        };
        rest = &rest[length..];
    }
    text
}

/// The reverse of [`list`].
pub(super) fn numbers(list: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        match part.split_once('-') {
            Some((first, last)) => {
                all.extend(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?);
            }
            None => all.push(part.parse().ok()?),
        }
    }
    Some(all)
}

/// The set bits of a mask: hexadecimal digits, a comma after each 32 bits.
pub(super) fn bits(mask: &str) -> Option<Vec<usize>> {
    let mut set = Vec::new();
    for (place, digit) in mask.chars().rev().filter(|digit| *digit != ',').enumerate() {
        let digit = digit.to_digit(16)?;
        set.extend((0..4).filter(|bit| digit >> bit & 1 == 1).map(|bit| 4 * place + bit));
    }
    Some(set)
}

/// The reverse of [`bits`], as wide as another mask.
pub(super) fn mask(set: &[usize], width: &str) -> String {
    let mut place = width.chars().filter(|digit| *digit != ',').count();
    let digit = |digit: char| {
        if digit == ',' {
            return digit;
        }
        place -= 1;
        let value = (0..4).filter(|bit| set.contains(&(4 * place + bit))).map(|bit| 1 << bit).sum();
        char::from_digit(value, 16).unwrap_or('0')
    };
    width.chars().map(digit).collect()
}

/// The numbers that are in both.
pub(super) fn both(one: &[usize], other: &[usize]) -> Vec<usize> {
    one.iter().copied().filter(|number| other.contains(number)).collect()
}

/// `/proc/cpuinfo` with these processors. The counts in it, `siblings` and `cpu cores`, leave out
/// the others too.
pub(super) fn cpuinfo(host: &str, shown: &[usize]) -> String {
    let field = |block: &str, name: &str| -> Option<String> {
        let lines = block.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines.into_iter().find(|(found, _)| found.trim() == name)?;
        Some(value.trim().to_owned())
    };
    let is_shown = |block: &&str| {
        let number = field(block, "processor").and_then(|number| number.parse().ok());
        number.is_none_or(|number| shown.contains(&number))
    };
    let blocks: Vec<&str> =
        host.split("\n\n").filter(|block| !block.trim().is_empty()).filter(is_shown).collect();
    let mut text = String::new();
    for block in &blocks {
        let package = field(block, "physical id");
        let beside = || blocks.iter().filter(|other| field(other, "physical id") == package);
        for line in block.lines() {
            let name = line.split(':').next().unwrap_or_default();
            let count = match name.trim() {
                "siblings" => beside().count(),
                "cpu cores" => beside()
                    .filter_map(|other| field(other, "core id"))
                    .collect::<BTreeSet<_>>()
                    .len(),
                _ => {
                    let _ = writeln!(text, "{line}");
                    continue;
                }
            };
            let _ = writeln!(text, "{name}: {count}");
        }
        text.push('\n');
    }
    text
}

/// The host's memory in bytes; 0 when its `/proc/meminfo` does not say.
pub(super) fn total_memory(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// `/proc/meminfo` of a machine with `bytes` of memory, of which its first program has a little,
/// and no swap.
pub(super) fn meminfo(bytes: u64) -> String {
    let total = bytes / 1024;
    let used = (IN_USE / 1024).min(total / 8);
    let sizes = [
        ("MemTotal", total),
        ("MemFree", total - used),
        ("MemAvailable", total - used),
        ("Buffers", 0),
        ("Cached", 0),
        ("SwapCached", 0),
        ("Active", used),
        ("Inactive", 0),
        ("Active(anon)", used),
        ("Inactive(anon)", 0),
        ("Active(file)", 0),
        ("Inactive(file)", 0),
        ("Unevictable", 0),
        ("Mlocked", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", 0),
        ("Writeback", 0),
        ("AnonPages", used),
        ("Mapped", 0),
        ("Shmem", 0),
        ("KReclaimable", 0),
        ("Slab", 0),
        ("SReclaimable", 0),
        ("SUnreclaim", 0),
        ("KernelStack", 0),
        ("PageTables", 0),
        ("NFS_Unstable", 0),
        ("Bounce", 0),
        ("WritebackTmp", 0),
        ("CommitLimit", total),
        ("Committed_AS", used),
        ("VmallocTotal", (1 << 35) - 1),
        ("VmallocUsed", 0),
        ("VmallocChunk", 0),
        ("Percpu", 0),
        ("AnonHugePages", 0),
        ("ShmemHugePages", 0),
        ("ShmemPmdMapped", 0),
        ("FileHugePages", 0),
        ("FilePmdMapped", 0),
    ];
    let mut text = String::new();
    for (name, kilobytes) in sizes {
        let _ = writeln!(text, "{:<15} {kilobytes:>8} kB", format!("{name}:"));
    }
    for name in ["HugePages_Total", "HugePages_Free", "HugePages_Rsvd", "HugePages_Surp"] {
        let _ = writeln!(text, "{:<15} {:>8}", format!("{name}:"), 0);
    }
    for (name, kilobytes) in [("Hugepagesize", 2048), ("Hugetlb", 0)] {
        let _ = writeln!(text, "{:<15} {kilobytes:>8} kB", format!("{name}:"));
    }
    text
}

/// The time at which the host was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HostTime {
    /// Boot time, in seconds since 1970.
    began: u64,
    /// Time since boot, in hundredths of a second.
    ran: u64,
}

impl HostTime {
    /// Parses `/proc/stat` and `/proc/uptime`.
    pub(super) fn of(stat: &str, uptime: &str) -> Self {
        let began = stat.lines().find_map(|line| line.strip_prefix("btime "));
        let seconds = uptime.split_whitespace().next().unwrap_or_default();
        let (whole, hundredths) = seconds.split_once('.').unwrap_or((seconds, "0"));
        let number = |text: &str| text.trim().parse::<u64>().unwrap_or(0);
        Self {
            began: began.map_or(0, number),
            ran: number(whole) * 100 + number(hundredths).min(99),
        }
    }

    /// `/proc/stat` of a machine that has only idled so far. In hundredths of a second (`USER_HZ`).
    pub(super) fn stat(self, shown: &[usize]) -> String {
        let Self { began, ran } = self;
        let mut text = format!("cpu  0 0 0 {} 0 0 0 0 0 0\n", ran * shown.len() as u64);
        for number in shown {
            let _ = writeln!(text, "cpu{number} 0 0 0 {ran} 0 0 0 0 0 0");
        }
        let softirq = [" 0"; 11].concat();
        let _ = write!(
            text,
            "intr 0\nctxt 0\nbtime {began}\nprocesses 1\nprocs_running 1\nprocs_blocked 0\nsoftirq{softirq}\n"
        );
        text
    }

    /// `/proc/uptime`: the time since boot, and the sum of the processors' idle times.
    pub(super) fn uptime(self, processors: usize) -> String {
        let seconds = |hundredths: u64| format!("{}.{:02}", hundredths / 100, hundredths % 100);
        format!("{} {}\n", seconds(self.ran), seconds(self.ran * processors as u64))
    }
}

/// The files below `/sys/fs/cgroup`: the limits of a sandbox that is at the root of its cgroup
/// namespace. At the top as in version 2, in a directory for each controller as in version 1.
/// Current use is in neither: it would have to change.
pub(super) fn cgroup_files(
    memory: u64,
    quota: Option<u32>,
    processors: &str,
) -> Vec<(&'static str, String)> {
    let microseconds = quota.map(|quota| u64::from(quota) * PERIOD / 1000);
    let most = microseconds.map_or("max".to_owned(), |number| number.to_string());
    let most_v1 = microseconds.map_or("-1".to_owned(), |number| number.to_string());
    let files = [
        ("cgroup.controllers", "cpuset cpu memory pids".to_owned()),
        ("memory.max", memory.to_string()),
        ("memory.high", "max".to_owned()),
        ("memory.low", "0".to_owned()),
        ("memory.min", "0".to_owned()),
        ("memory.swap.max", "0".to_owned()),
        ("cpu.max", format!("{most} {PERIOD}")),
        ("cpu.weight", "100".to_owned()),
        ("cpuset.cpus", processors.to_owned()),
        ("cpuset.cpus.effective", processors.to_owned()),
        ("memory/memory.limit_in_bytes", memory.to_string()),
        ("memory/memory.memsw.limit_in_bytes", memory.to_string()),
        ("memory/memory.soft_limit_in_bytes", NO_LIMIT_V1.to_string()),
        ("memory/memory.use_hierarchy", "1".to_owned()),
        ("cpuset/cpuset.cpus", processors.to_owned()),
        ("cpuset/cpuset.effective_cpus", processors.to_owned()),
    ];
    let cpu = [
        ("cpu/cpu.cfs_quota_us", most_v1.clone()),
        ("cpu/cpu.cfs_period_us", PERIOD.to_string()),
        ("cpu/cpu.shares", "1024".to_owned()),
        // The same hierarchy under the names that it has where it counts time as well.
        ("cpu,cpuacct/cpu.cfs_quota_us", most_v1.clone()),
        ("cpu,cpuacct/cpu.cfs_period_us", PERIOD.to_string()),
        ("cpu,cpuacct/cpu.shares", "1024".to_owned()),
        ("cpuacct,cpu/cpu.cfs_quota_us", most_v1),
        ("cpuacct,cpu/cpu.cfs_period_us", PERIOD.to_string()),
        ("cpuacct,cpu/cpu.shares", "1024".to_owned()),
    ];
    files.into_iter().chain(cpu).map(|(path, text)| (path, text + "\n")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CPUINFO: &str = "processor\t: 0\nphysical id\t: 0\nsiblings\t: 4\ncore id\t\t: 0\ncpu cores\t: 2\nflags\t\t: fpu avx2\n\n\
        processor\t: 1\nphysical id\t: 0\nsiblings\t: 4\ncore id\t\t: 0\ncpu cores\t: 2\nflags\t\t: fpu avx2\n\n\
        processor\t: 2\nphysical id\t: 0\nsiblings\t: 4\ncore id\t\t: 1\ncpu cores\t: 2\nflags\t\t: fpu avx2\n\n";

    proptest! {
        #[test]
        fn lists_and_masks_are_read_back_as_they_are_written(set in prop::collection::btree_set(0_usize..64, 0..20)) {
            let set: Vec<usize> = set.into_iter().collect();
            prop_assert_eq!(numbers(&list(&set)), Some(set.clone()));
            let mask = mask(&set, "00000000,00000000");
            prop_assert_eq!(mask.len(), 17);
            prop_assert_eq!(bits(&mask), Some(set));
        }
    }

    #[test]
    fn lists_and_masks_are_as_the_kernel_prints_them() {
        assert_eq!(list(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(list(&[]), "");
        assert_eq!(mask(&[0, 1, 4], "ff"), "13");
        assert_eq!(numbers("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!((numbers("x"), bits("g")), (None, None));
    }

    #[test]
    fn cpuinfo_has_the_processors_that_are_shown_and_counts_no_others() {
        assert_eq!(cpuinfo(CPUINFO, &[0, 1, 2]).matches("processor\t").count(), 3);
        let one = cpuinfo(CPUINFO, &[0]);
        assert_eq!(
            one,
            "processor\t: 0\nphysical id\t: 0\nsiblings\t: 1\ncore id\t\t: 0\ncpu cores\t: 1\nflags\t\t: fpu avx2\n\n"
        );
        assert!(
            cpuinfo(CPUINFO, &[0, 2]).contains("siblings\t: 2\ncore id\t\t: 1\ncpu cores\t: 2")
        );
        // A format of another architecture: no topology, and a last part about all processors.
        let arm = "processor\t: 0\nFeatures\t: fp asimd\n\nprocessor\t: 1\nFeatures\t: fp\n\nHardware\t: board\n";
        let shown = "processor\t: 0\nFeatures\t: fp asimd\n\nHardware\t: board\n\n";
        assert_eq!(cpuinfo(arm, &[0]), shown);
    }

    #[test]
    fn memory_adds_up_to_the_limit() {
        let text = meminfo(256 << 20);
        let field = |name: &str| -> u64 {
            let line = text.lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        assert_eq!(field("MemTotal"), 256 << 10);
        assert_eq!(field("MemFree"), field("MemAvailable"));
        assert_eq!(field("MemFree") + field("AnonPages"), field("MemTotal"));
        assert_eq!(field("SwapTotal"), 0);
        assert_eq!(total_memory(&text), 256 << 20);
    }

    #[test]
    fn time_is_that_of_when_the_host_was_looked_at() {
        let moment = HostTime::of("cpu  1 2 3\nbtime 1700000000\n", "1234.56 99.00\n");
        assert_eq!(moment.uptime(2), "1234.56 2469.12\n");
        let stat = moment.stat(&[4, 5]);
        assert!(stat.starts_with("cpu  0 0 0 246912 0"), "{stat}");
        assert!(stat.contains("\ncpu4 0 0 0 123456 ") && stat.contains("\nbtime 1700000000\n"));
    }

    #[test]
    fn cgroup_files_say_the_same_in_both_versions() {
        let files = cgroup_files(256 << 20, Some(500), "0");
        let find = |path: &str| &*files.iter().find(|(found, _)| *found == path).unwrap().1;
        assert_eq!(find("memory.max"), find("memory/memory.limit_in_bytes"));
        assert_eq!(find("cpu.max"), "50000 100000\n");
        assert_eq!(find("cpu/cpu.cfs_quota_us"), "50000\n");
        let free = cgroup_files(1, None, "0-1");
        assert!(free.contains(&("cpu.max", "max 100000\n".to_owned())));
        assert!(free.contains(&("cpu/cpu.cfs_quota_us", "-1\n".to_owned())));
    }
}
