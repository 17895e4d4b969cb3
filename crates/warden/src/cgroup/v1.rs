//! Cgroups, version 1 and hybrid. Each sandbox has a directory in each of three hierarchies. In the
//! hierarchy of the cpu controller all sandboxes share one directory, and each sandbox with a limit
//! has another one below.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;

use super::processors::{PERIOD, microseconds, move_to};
use super::{
    Files, Group, HeldMemory, UNCHARGED, is_empty, open_as, open_read, open_write, read_number,
    stat, write_to,
};
use crate::limits::{Cpu, Limits};

/// The freezer comes last, so that it is cleared first: a frozen process does not die.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "freezer"];

/// The warden's directories in the hierarchies.
#[derive(Debug)]
pub struct Hierarchies {
    /// The mount point of each controller; controllers may share a mount.
    memory: PathBuf,
    pids: PathBuf,
    freezer: PathBuf,
    cpu: Option<CpuHierarchy>,
    name: String,
}

/// The hierarchy of the cpu controller. The shared directory lies below the group that limits the
/// warden itself, because weights count among siblings.
#[derive(Debug)]
struct CpuHierarchy {
    /// The warden's own group, in which sandboxes without a common group begin.
    beside: PathBuf,
    /// The warden's directory below it.
    dir: PathBuf,
    /// Whether it holds all sandboxes, or only those with a limit.
    holds_all: bool,
    /// Whether the kernel has quotas.
    limits: bool,
}

impl Hierarchies {
    /// Finds the three controllers' mounts and makes the warden's directory in each; none when one
    /// is missing or not writable.
    #[must_use]
    pub fn detect(name: &str) -> Option<Self> {
        let [memory, pids, freezer] = tops(name);
        let mut found = Self {
            memory: memory?,
            pids: pids?,
            freezer: freezer?,
            cpu: None,
            name: name.to_owned(),
        };
        for dir in found.tops() {
            if let Err(error) = fs::create_dir(dir)
                && error.kind() != io::ErrorKind::AlreadyExists
            {
                return None;
            }
        }
        found.cpu = CpuHierarchy::detect(name);
        Some(found)
    }

    pub(super) fn tops(&self) -> [&PathBuf; 3] {
        [&self.memory, &self.pids, &self.freezer]
    }

    /// The directory in which processes are counted.
    pub(super) fn pids(&self) -> &Path {
        &self.pids
    }

    /// The warden's directory in the hierarchy of the cpu controller.
    pub(super) fn processors(&self) -> Option<&Path> {
        self.cpu.as_ref().map(|hierarchy| &*hierarchy.dir)
    }

    /// Lets sandboxes begin in one group of that weight. False where no such group can be made.
    pub(super) fn weigh_together(&mut self, weight: u32) -> bool {
        let Some(hierarchy) = &mut self.cpu else { return false };
        let shares = shares(weight).to_string();
        hierarchy.holds_all = write_to(&hierarchy.dir.join("cpu.shares"), &shares).is_ok();
        hierarchy.holds_all
    }

    /// The files by which a sandbox enters the group: one for each hierarchy.
    pub(super) fn entrances(&self, group: &Group) -> Vec<PathBuf> {
        let common = self.cpu.iter().filter(|hierarchy| hierarchy.holds_all);
        let common = common.map(|hierarchy| hierarchy.dir.join("cgroup.procs"));
        self.procs(group).into_iter().chain(common).collect()
    }

    pub(super) fn make(&self, group: &Group) -> io::Result<()> {
        for (made, top) in self.tops().into_iter().enumerate() {
            if let Err(error) = fs::create_dir(top.join(&group.name)) {
                for top in self.tops().into_iter().take(made) {
                    let _ = fs::remove_dir(top.join(&group.name));
                }
                return Err(error);
            }
        }
        // This limit covers memory without swap: a process that reaches it is killed, not swapped
        // out.
        let _ = write_to(&self.memory.join(&group.name).join("memory.swappiness"), "0");
        Ok(())
    }

    pub(super) fn procs(&self, group: &Group) -> [PathBuf; 3] {
        self.tops().map(|top| top.join(&group.name).join("cgroup.procs"))
    }

    pub(super) fn files(&self, group: &Group, zygote: u32) -> io::Result<Files> {
        let mut files = Files::default();
        for procs in self.procs(group) {
            files.procs.push(open_as(&procs, zygote)?);
        }
        files.freezer = Some(open_write(&self.freezer.join(&group.name).join("freezer.state"))?);
        let usage = self.memory.join(&group.name).join("memory.usage_in_bytes");
        files.memory = Some(open_read(&usage)?);
        Ok(files)
    }

    pub(super) fn limit(&self, group: &Group, limits: Limits) -> io::Result<()> {
        let memory = self.memory.join(&group.name).join("memory.limit_in_bytes");
        write_to(&memory, &limits.memory_bytes.to_string())?;
        write_to(&self.pids.join(&group.name).join("pids.max"), &limits.pids.to_string())
    }

    /// Starts counting socket buffers: without a limit they are charged to no group. Above the
    /// limit a socket gets the kernel's minimum (tcp(7), `tcp_rmem` and `tcp_wmem`), and nothing is
    /// killed.
    pub(super) fn limit_sockets(&self, group: &Group, bytes: u64) -> io::Result<()> {
        let limit = self.memory.join(&group.name).join("memory.kmem.tcp.limit_in_bytes");
        match write_to(&limit, &bytes.to_string()) {
            // This kernel does not count them.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            written => written,
        }
    }

    pub(super) fn limits_cpu(&self) -> bool {
        self.cpu.as_ref().is_some_and(|hierarchy| hierarchy.limits)
    }

    pub(super) fn limit_cpu(&self, group: &Group, cpu: Cpu, pids: &[i32]) -> io::Result<()> {
        let Some(hierarchy) = self.cpu.as_ref().filter(|hierarchy| hierarchy.limits) else {
            return Ok(());
        };
        let dir = hierarchy.dir(group);
        match fs::create_dir(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let quota = cpu.quota.map_or(-1, |quota| microseconds(quota).cast_signed());
        let shares = shares(cpu.weight.unwrap_or(100).into());
        write_to(&dir.join("cpu.cfs_period_us"), &PERIOD.to_string())?;
        write_to(&dir.join("cpu.cfs_quota_us"), &quota.to_string())?;
        write_to(&dir.join("cpu.shares"), &shares.to_string())?;
        move_to(&dir.join("cgroup.procs"), pids)
    }

    pub(super) fn unlimit_cpu(&self, group: &Group) -> io::Result<()> {
        let Some(hierarchy) = &self.cpu else { return Ok(()) };
        let dir = hierarchy.dir(group);
        let listed = match fs::read_to_string(dir.join("cgroup.procs")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            listed => listed?,
        };
        let pids: Vec<i32> = listed.lines().filter_map(|line| line.parse().ok()).collect();
        let home = if hierarchy.holds_all { &hierarchy.dir } else { &hierarchy.beside };
        move_to(&home.join("cgroup.procs"), &pids)?;
        // A process that still ends there is no reason to fail: the directory goes with the group.
        let _ = fs::remove_dir(&dir);
        Ok(())
    }

    pub(super) fn named_in(&self, group: &Group, proc_cgroup: &str) -> bool {
        CONTROLLERS.iter().all(|controller| {
            proc_cgroup.lines().any(|line| {
                let mut fields = line.splitn(3, ':').skip(1);
                let listed = fields.next().unwrap_or("").split(',').any(|c| c == *controller);
                let path = fields.next().unwrap_or("");
                listed
                    && path.strip_suffix(&group.name).is_some_and(|up| {
                        up.strip_suffix('/').is_some_and(|up| up.ends_with(&self.name))
                    })
            })
        })
    }

    pub(super) fn oom_kills(&self, group: &Group) -> u64 {
        let path = self.memory.join(&group.name).join("memory.oom_control");
        let text = fs::read_to_string(path).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
    }

    pub(super) fn thaw(&self, group: &Group) {
        let _ = write_to(&self.freezer.join(&group.name).join("freezer.state"), "THAWED");
    }

    /// The kernel's memory includes names and files that it can reclaim: version 1 does not tell
    /// them apart.
    pub(super) fn held(&self, group: &Group) -> HeldMemory {
        let dir = self.memory.join(&group.name);
        let text = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
        let memory = ["rss", "shmem"].into_iter().filter_map(|name| stat(&text, name));
        let kernel = ["memory.kmem.usage_in_bytes", "memory.kmem.tcp.usage_in_bytes"];
        let kernel = kernel.into_iter().filter_map(|file| read_number(&dir.join(file)));
        HeldMemory { memory: memory.sum(), kernel: kernel.sum() }
    }

    pub(super) fn reusable(&self, group: &Group) -> bool {
        let state = fs::read_to_string(self.freezer.join(&group.name).join("freezer.state"));
        let usage = self.memory.join(&group.name).join("memory.usage_in_bytes");
        let sockets = self.memory.join(&group.name).join("memory.kmem.tcp.usage_in_bytes");
        state.is_ok_and(|state| state.trim() == "THAWED")
            && self.procs(group).iter().all(|procs| is_empty(procs))
            && read_number(&usage).is_some_and(|bytes| bytes <= UNCHARGED)
            && read_number(&sockets).is_none_or(|bytes| bytes <= UNCHARGED)
            && self.oom_kills(group) == 0
    }

    pub(super) fn remove(&self, group: &Group) -> bool {
        let mut gone = true;
        let limited = self.cpu.as_ref().map(|hierarchy| hierarchy.dir(group));
        for dir in self.tops().map(|top| top.join(&group.name)).into_iter().chain(limited) {
            gone &= fs::remove_dir(&dir).is_ok() || !dir.exists();
        }
        gone
    }
}

impl CpuHierarchy {
    fn detect(name: &str) -> Option<Self> {
        let mount = mount_of("cpu")?;
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let listed = fields.next()?.split(',').any(|controller| controller == "cpu");
            listed.then(|| fields.next()).flatten()
        })?;
        // Where only a part of the hierarchy is mounted, the path begins above it.
        let own = mount.join(own.trim_start_matches('/'));
        let beside = if own.is_dir() { own } else { mount };
        let writable = rustix::fs::statvfs(&beside)
            .is_ok_and(|stat| !stat.f_flag.contains(StatVfsMountFlags::RDONLY));
        // A new cpuset group has no processors to run on (cpuset(7)): where cpu and cpuset are one
        // hierarchy, no process could enter the warden's.
        if !writable || beside.join("cpuset.cpus").exists() {
            return None;
        }
        let dir = beside.join(name);
        match fs::create_dir(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return None,
            _ => {}
        }
        // A kernel may have weights without quotas: CONFIG_CFS_BANDWIDTH.
        let limits = beside.join("cpu.cfs_quota_us").exists();
        Some(Self { beside, dir, holds_all: false, limits })
    }

    fn dir(&self, group: &Group) -> PathBuf {
        self.dir.join(&group.name)
    }
}

/// A weight on the scale of version 1: a thread's is 1024 here and 100 in version 2. The kernel
/// takes 2 to 2^18 (`MIN_SHARES` and `MAX_SHARES` of kernel/sched).
fn shares(weight: u32) -> u64 {
    (u64::from(weight) * 1024 / 100).clamp(2, 1 << 18)
}

/// The directories in `dir`, with their names.
fn below(dir: &Path) -> impl Iterator<Item = (PathBuf, String)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.map(|entry| (entry.path(), entry.file_name().to_string_lossy().into_owned()))
}

/// Directories that an earlier start with this name has left in the hierarchy of the cpu
/// controller. Its own group may have been another one.
pub(super) fn processors_of(name: &str) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), Vec::from_iter(mount_of("cpu")));
    while let Some(dir) = open.pop() {
        for (path, below) in below(&dir) {
            if below == name { found.push(path) } else { open.push(path) }
        }
    }
    found
}

/// The warden's directory in the hierarchy of each controller, whether it exists or not.
pub(super) fn tops(name: &str) -> [Option<PathBuf>; 3] {
    CONTROLLERS.map(|controller| mount_of(controller).map(|at| at.join(name)))
}

fn mount_of(controller: &str) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (at, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let ours = kind == "cgroup" && options.split(',').any(|option| option == controller);
        ours.then(|| at.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours() -> Hierarchies {
        let at =
            |controller: &str| Path::new("/sys/fs/cgroup").join(controller).join("lambswool-x");
        Hierarchies {
            memory: at("memory"),
            pids: at("pids"),
            freezer: at("freezer"),
            cpu: None,
            name: "lambswool-x".to_owned(),
        }
    }

    #[test]
    fn a_process_must_be_in_the_group_in_every_hierarchy() {
        let group = Group::new("s7".to_owned());
        let all = "9:name=systemd:/\n8:pids:/lambswool-x/s7\n6:freezer:/lambswool-x/s7\n4:cpu,memory:/lambswool-x/s7\n";
        assert!(ours().named_in(&group, all));
        assert!(!ours().named_in(&group, &all.replace("freezer:/lambswool-x/s7", "freezer:/")));
        assert!(!ours().named_in(&group, &all.replace("s7\n4", "s17\n4")));
        assert!(!ours().named_in(&Group::new("7".to_owned()), all));
        assert!(!ours().named_in(&group, ""));
    }
}
