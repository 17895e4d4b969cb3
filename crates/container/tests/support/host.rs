//! The host's view of one warden's sandboxes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A process in one of the warden's cgroups.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// Its number in P; 0 outside of any.
    pub(crate) inside: i32,
    pub(crate) uid: u32,
    /// The lines of its `/proc/<pid>/status`.
    pub(crate) status: BTreeMap<String, String>,
}

impl Process {
    fn read(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let status: BTreeMap<String, String> = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
            .collect();
        let number = |key: &str, at: usize| -> Option<u32> {
            status.get(key)?.split_whitespace().nth(at)?.parse().ok()
        };
        let inside = i32::try_from(number("NSpid", 1).unwrap_or(0)).ok()?;
        let uid = number("Uid", 0)?;
        Some(Self { pid, inside, uid, status })
    }

    pub(crate) fn zombie(&self) -> bool {
        self.status["State"].starts_with('Z')
    }
}

/// Directories of the warden in all hierarchies, its own tops included.
pub(crate) fn cgroups(name: &str) -> BTreeSet<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mut found = BTreeSet::new();
    for line in mounts.lines() {
        let fields: Vec<_> = line.split(' ').collect();
        if fields[2].starts_with("cgroup") {
            let tops = fs::read_dir(fields[1])
                .into_iter()
                .flatten()
                .flatten()
                .filter(|entry| entry.file_name() == name);
            let mut open: Vec<_> = tops.map(|entry| entry.path()).collect();
            while let Some(dir) = open.pop() {
                let below = fs::read_dir(&dir).into_iter().flatten().flatten();
                open.extend(below.map(|e| e.path()).filter(|path| path.is_dir()));
                found.insert(dir);
            }
        }
    }
    found
}

/// Sandboxes' processes in those cgroups.
pub(crate) fn processes(name: &str) -> Vec<Process> {
    let mut pids = BTreeSet::new();
    // The warden's own helpers; of version 2, processes are one further down.
    let apart = |dir: &PathBuf| dir.iter().any(|part| part == "pacemaker" || part == "egress");
    for dir in cgroups(name).into_iter().filter(|dir| !apart(dir)) {
        let listed = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        pids.extend(listed.lines().filter_map(|line| line.parse::<i32>().ok()));
    }
    pids.into_iter().filter_map(Process::read).collect()
}

/// Processes of the whole host whose parent is `parent`, zombies included.
pub(crate) fn children(parent: u32) -> Vec<Process> {
    everybody().filter(|process| process.status["PPid"] == parent.to_string()).collect()
}

/// Names the mount namespace that all sandboxes of one warden share (M).
pub(crate) fn mount_namespace_of(pid: i32) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/ns/mnt")).unwrap()
}

/// Processes of the whole host in that mount namespace.
pub(crate) fn living_in(namespace: &Path) -> Vec<Process> {
    let here =
        |pid: i32| fs::read_link(format!("/proc/{pid}/ns/mnt")).is_ok_and(|at| at == namespace);
    everybody().filter(|process| here(process.pid)).collect()
}

fn everybody() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).filter_map(Process::read)
}

pub(crate) fn own_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

pub(crate) fn mounts() -> usize {
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count()
}

/// IPv4 addresses of the host's interfaces.
pub(crate) fn addresses() -> BTreeSet<std::net::IpAddr> {
    // The kernel's own routing table: each local address once or more.
    let table = fs::read_to_string("/proc/net/fib_trie").unwrap();
    let mut last: Option<std::net::IpAddr> = None;
    let mut found = BTreeSet::new();
    for line in table.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["|--", address] => last = address.parse().ok(),
            ["/32", "host", "LOCAL"] => found.extend(last),
            _ => {}
        }
    }
    found
}

/// Thousandths of a processor that the process's own group may have; none: unlimited.
pub(crate) fn quota(pid: i32) -> Option<u64> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let named = |controller: &str| {
        let mut lines = groups.lines().map(|line| line.splitn(3, ':').collect::<Vec<_>>());
        let line = lines.find(|line| line[1].split(',').any(|one| one == controller))?;
        Some(Path::new("/sys/fs/cgroup").join(line[1]).join(line[2].trim_start_matches('/')))
    };
    let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    if let Some(group) = named("cpu") {
        let period = number(group.join("cpu.cfs_period_us"))?;
        return Some(number(group.join("cpu.cfs_quota_us"))? * 1000 / period);
    }
    let max = fs::read_to_string(named("")?.join("cpu.max")).ok()?;
    let (quota, period) = max.trim().split_once(' ')?;
    Some(quota.parse::<u64>().ok()? * 1000 / period.parse::<u64>().ok()?)
}

/// Readers of the limit and of the use of socket buffers of the process's group, where these are
/// counted apart from its memory: cgroups of version 1.
pub(crate) fn sockets(pid: i32) -> Option<(impl Fn() -> u64, impl Fn() -> u64)> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let mut lines = groups.lines().map(|line| line.splitn(3, ':').collect::<Vec<_>>());
    let line = lines.find(|line| line[1].split(',').any(|one| one == "memory"))?;
    let group = Path::new("/sys/fs/cgroup/memory").join(line[2].trim_start_matches('/'));
    let read = |file: &str| {
        let path = group.join(file);
        move || fs::read_to_string(&path).unwrap().trim().parse::<u64>().unwrap()
    };
    let limit = "memory.kmem.tcp.limit_in_bytes";
    group.join(limit).exists().then(|| (read(limit), read("memory.kmem.tcp.usage_in_bytes")))
}
