//! Files about the machine: `/proc`, `/sys/devices/system/cpu` and `/sys/fs/cgroup`, with the names
//! that containers have.
//!
//! A machine has one processor, and a limit of memory of its own. Texts that change are made from
//! the process ([`GeneratedFile`]); all others are fixed.

use super::builder::TreeBuilder;
use super::node::GeneratedFile;

/// Files that are made at each reading.
const GENERATED: [(&str, GeneratedFile); 11] = [
    ("/proc/self/comm", GeneratedFile::Name),
    ("/proc/self/limits", GeneratedFile::Limits),
    ("/proc/self/maps", GeneratedFile::Maps),
    ("/proc/self/stat", GeneratedFile::Stat),
    ("/proc/self/statm", GeneratedFile::StatMemory),
    ("/proc/self/status", GeneratedFile::Status),
    ("/proc/loadavg", GeneratedFile::Load),
    ("/proc/meminfo", GeneratedFile::Memory),
    ("/proc/stat", GeneratedFile::System),
    ("/proc/uptime", GeneratedFile::Uptime),
    ("/sys/fs/cgroup/memory.current", GeneratedFile::MemoryUse),
];

const MEMORY_LIMITS: [&str; 3] = [
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    "/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes",
];

/// Files of `/proc` with a fixed text.
const PROC: [(&str, &str); 9] = [
    ("/proc/version", "Linux version 6.1.0 (microvm) #Lambswool\n"),
    ("/proc/filesystems", "nodev\tproc\nnodev\ttmpfs\n"),
    ("/proc/self/cgroup", "0::/\n"),
    (
        "/proc/self/mountinfo",
        "20 1 0:1 / / ro,relatime - overlay overlay ro\n\
         21 20 0:2 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw\n\
         22 20 0:3 / /dev ro,nosuid,noexec,relatime - tmpfs dev ro\n\
         23 20 0:4 / /tmp rw,nosuid,nodev,relatime - tmpfs tmpfs rw\n\
         24 22 0:4 / /dev/shm rw,nosuid,nodev,relatime - tmpfs tmpfs rw\n\
         25 20 0:5 / /sys ro,nosuid,nodev,noexec,relatime - tmpfs sys ro\n\
         26 25 0:6 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup2 ro\n",
    ),
    (
        "/proc/self/mounts",
        "overlay / overlay ro,relatime 0 0\n\
         proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0\n\
         dev /dev tmpfs ro,nosuid,noexec,relatime 0 0\n\
         tmpfs /tmp tmpfs rw,nosuid,nodev,relatime 0 0\n\
         tmpfs /dev/shm tmpfs rw,nosuid,nodev,relatime 0 0\n\
         sys /sys tmpfs ro,nosuid,nodev,noexec,relatime 0 0\n\
         cgroup2 /sys/fs/cgroup cgroup2 ro,nosuid,nodev,noexec,relatime 0 0\n",
    ),
    ("/proc/sys/kernel/ostype", "Linux\n"),
    ("/proc/sys/kernel/osrelease", "6.1.0\n"),
    ("/proc/sys/kernel/pid_max", "4194304\n"),
    ("/proc/sys/vm/overcommit_memory", "0\n"),
];

/// Below `/sys/devices/system/cpu`: one processor.
const PROCESSORS: [(&str, &str); 26] = [
    ("online", "0"),
    ("possible", "0"),
    ("present", "0"),
    ("offline", ""),
    ("cpu0/topology/core_id", "0"),
    ("cpu0/topology/physical_package_id", "0"),
    ("cpu0/topology/die_id", "0"),
    ("cpu0/topology/cluster_id", "0"),
    ("cpu0/topology/core_cpus", "1"),
    ("cpu0/topology/core_cpus_list", "0"),
    ("cpu0/topology/thread_siblings", "1"),
    ("cpu0/topology/thread_siblings_list", "0"),
    ("cpu0/topology/cluster_cpus", "1"),
    ("cpu0/topology/cluster_cpus_list", "0"),
    ("cpu0/topology/die_cpus", "1"),
    ("cpu0/topology/die_cpus_list", "0"),
    ("cpu0/topology/package_cpus", "1"),
    ("cpu0/topology/package_cpus_list", "0"),
    ("cpu0/topology/core_siblings", "1"),
    ("cpu0/topology/core_siblings_list", "0"),
    ("cpu0/cache/index0/level", "1"),
    ("cpu0/cache/index0/type", "Data"),
    ("cpu0/cache/index0/size", "32K"),
    ("cpu0/cache/index0/coherency_line_size", "64"),
    ("cpu0/cache/index0/shared_cpu_map", "1"),
    ("cpu0/cache/index0/shared_cpu_list", "0"),
];

/// Below `/sys/fs/cgroup`: version 2 at the top, version 1 in a directory for each controller. A
/// guest sees one whole processor; the share of its family is not shown.
const CGROUP: [(&str, &str); 23] = [
    ("cgroup.controllers", "cpuset cpu memory pids"),
    ("memory.high", "max"),
    ("memory.low", "0"),
    ("memory.min", "0"),
    ("memory.swap.max", "0"),
    ("cpu.max", "max 100000"),
    ("cpu.weight", "100"),
    ("cpuset.cpus", "0"),
    ("cpuset.cpus.effective", "0"),
    ("memory/memory.soft_limit_in_bytes", "9223372036854771712"),
    ("memory/memory.use_hierarchy", "1"),
    ("cpuset/cpuset.cpus", "0"),
    ("cpuset/cpuset.effective_cpus", "0"),
    ("cpu/cpu.cfs_quota_us", "-1"),
    ("cpu/cpu.cfs_period_us", "100000"),
    ("cpu/cpu.shares", "1024"),
    ("cpu,cpuacct/cpu.cfs_quota_us", "-1"),
    ("cpu,cpuacct/cpu.cfs_period_us", "100000"),
    ("cpu,cpuacct/cpu.shares", "1024"),
    ("cpuacct,cpu/cpu.cfs_quota_us", "-1"),
    ("cpuacct,cpu/cpu.cfs_period_us", "100000"),
    ("cpuacct,cpu/cpu.shares", "1024"),
    ("pids.max", "max"),
];

const LINKS: [(&str, &str); 6] = [
    ("/proc/thread-self", "/proc/self"),
    ("/proc/mounts", "/proc/self/mounts"),
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

impl TreeBuilder {
    /// Adds files about the process and its machine to `/proc` and `/sys`, and links to its
    /// descriptors to `/dev`. `cpuinfo` is the text of `/proc/cpuinfo`:
    /// [`Hypervisor::cpuinfo`](crate::machine::Hypervisor::cpuinfo).
    #[must_use]
    pub fn machine(self, cpuinfo: impl Into<Vec<u8>>) -> Self {
        let tree = self.proc().text("/proc/cpuinfo", cpuinfo);
        let line = |text: &str| format!("{text}\n");
        let tree = PROCESSORS.iter().fold(tree, |tree, (name, text)| {
            tree.text(&format!("/sys/devices/system/cpu/{name}"), line(text))
        });
        CGROUP.iter().fold(tree, |tree, (name, text)| {
            tree.text(&format!("/sys/fs/cgroup/{name}"), line(text))
        })
    }

    /// Adds files about the process to `/proc`, and links to its descriptors to `/dev`.
    #[must_use]
    pub fn proc(self) -> Self {
        let tree = GENERATED.into_iter().fold(self, |tree, (at, file)| tree.generated(at, file));
        let limit = |tree: Self, at: &&str| tree.generated(at, GeneratedFile::MemoryLimit);
        let tree = MEMORY_LIMITS.iter().fold(tree, limit);
        let tree = PROC.into_iter().fold(tree, |tree, (at, text)| tree.text(at, text));
        let tree = tree.descriptors("/proc/self/fd");
        LINKS.into_iter().fold(tree, |tree, (at, target)| tree.symlink(at, target))
    }
}
