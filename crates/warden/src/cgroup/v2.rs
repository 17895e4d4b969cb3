//! Cgroups, version 2: a directory for each sandbox, with a zygote's slots below the zygote's own.
//!
//! ```text
//!   lambswool-…/           the warden's, below a delegated group (beside `supervisor`, which then holds
//!     │                    worker and warden), else at the top: see `sys::unified`
//!     s1/                  a zygote's: cgroup.procs belongs to its uid, so that it may move processes below
//!       self/              the zygote
//!       s2/                a slot of it ─ an instance is in s2/self likewise
//!         self/
//! ```
//! Processes live in leaves only (`self`): a group that enables controllers for its children may
//! hold none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sys::unified::{ParentGroup, SUPERVISOR, UnifiedHierarchy};

use super::processors::{PERIOD, microseconds};
use super::{
    Files, Group, HeldMemory, OURS, UNCHARGED, is_empty, kill_listed, open_as, open_read,
    open_write, read_number, stat, write_to,
};
use crate::limits::{Cpu, Limits};

const CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// Enabled for the warden's directory, which weighs as a whole. Below, it is enabled only on the
/// way to a sandbox that asks for it: the others are scheduled as if it were not there.
const CPU: [&str; 1] = ["cpu"];

/// The maximum weight of a group (cgroup-v2.rst: `cpu.weight`).
const MAX_WEIGHT: u32 = 10_000;

/// The warden's directory.
#[derive(Debug)]
pub struct Hierarchy {
    dir: PathBuf,
    /// Its name, as in `/proc/<pid>/cgroup`.
    path: PathBuf,
    parent: ParentGroup,
    cpu: bool,
}

impl Hierarchy {
    /// Makes the warden's directory below a delegated group, else at the top of the hierarchy as
    /// the warden sees it. None when neither has the memory and pids controllers.
    #[must_use]
    pub fn detect(name: &str) -> Option<Self> {
        let parent_groups = UnifiedHierarchy::find()?.parent_groups();
        parent_groups
            .iter()
            .filter(|parent| parent.usable(&CONTROLLERS))
            .find_map(|parent| Self::on(parent, name).ok())
    }

    fn on(parent: &ParentGroup, name: &str) -> io::Result<Self> {
        parent.enable(&CONTROLLERS)?;
        let dir = parent.dir.join(name);
        match fs::create_dir(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => enable_below(&dir, &CONTROLLERS)?,
        }
        let (path, cpu) = (parent.path.join(name), parent.usable(&CPU));
        Ok(Self { dir, path, parent: parent.clone(), cpu })
    }

    /// Whether the group above the warden's directory was delegated.
    #[must_use]
    pub fn delegated(&self) -> bool {
        self.parent.delegated
    }

    pub(super) fn top(&self) -> &Path {
        &self.dir
    }

    fn dir(&self, group: &Group) -> PathBuf {
        self.dir.join(&group.name)
    }

    pub(super) fn make(&self, group: &Group, owner: u32) -> io::Result<()> {
        let dir = self.dir(group);
        fs::create_dir(&dir)?;
        let owner =
            (Some(rustix::fs::Uid::from_raw(owner)), Some(rustix::fs::Gid::from_raw(owner)));
        rustix::fs::chown(dir.join("cgroup.procs"), owner.0, owner.1)?;
        enable_below(&dir, &CONTROLLERS)?;
        fs::create_dir(dir.join("self"))
    }

    pub(super) fn procs(&self, group: &Group) -> PathBuf {
        self.dir(group).join("self/cgroup.procs")
    }

    pub(super) fn files(&self, group: &Group, zygote: u32) -> io::Result<Files> {
        let own = self.dir(group).join("self");
        Ok(Files {
            procs: vec![open_as(&own.join("cgroup.procs"), zygote)?],
            freezer: Some(open_write(&own.join("cgroup.freeze"))?),
            memory: Some(open_read(&own.join("memory.current"))?),
        })
    }

    pub(super) fn limit(&self, group: &Group, limits: Limits) -> io::Result<()> {
        // On the leaf: forks of a zygote have limits of their own.
        let own = self.dir(group).join("self");
        write_to(&own.join("memory.max"), &limits.memory_bytes.to_string())?;
        // Forbids swap, where there is any: the limit is one of memory and swap together.
        let _ = write_to(&own.join("memory.swap.max"), "0");
        write_to(&own.join("pids.max"), &limits.pids.to_string())
    }

    /// Gives the warden's directory that weight, and at least the same to the group of worker and
    /// warden, if there is one. False where the controller is unavailable.
    pub(super) fn weigh_together(&mut self, weight: u32) -> bool {
        // A host may have the controller and be unable to enable it: cgroup-v2.rst, "RT processes".
        self.cpu = self.cpu && self.parent.enable(&CPU).is_ok();
        if !self.cpu {
            return false;
        }
        let weight = weight.min(MAX_WEIGHT).to_string();
        if self.parent.delegated {
            // Does not exist where the unit's processes are elsewhere.
            let _ = write_to(&self.parent.dir.join(SUPERVISOR).join("cpu.weight"), &weight);
        }
        write_to(&self.dir.join("cpu.weight"), &weight).is_ok()
    }

    pub(super) fn limits_cpu(&self) -> bool {
        self.cpu
    }

    /// The quota is the leaf's. The weight is that of the whole group among the forks of the same
    /// zygote.
    pub(super) fn limit_cpu(&self, group: &Group, cpu: Cpu) -> io::Result<()> {
        if !self.cpu {
            return Ok(());
        }
        self.parent.enable(&CPU)?;
        let mut dir = self.dir.clone();
        enable_below(&dir, &CPU)?;
        for name in Path::new(&group.name) {
            dir.push(name);
            enable_below(&dir, &CPU)?;
        }
        self.set_cpu(group, cpu)
    }

    pub(super) fn unlimit_cpu(&self, group: &Group) -> io::Result<()> {
        match self.set_cpu(group, Cpu::UNLIMITED) {
            // It was never enabled.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            set => set,
        }
    }

    fn set_cpu(&self, group: &Group, cpu: Cpu) -> io::Result<()> {
        let dir = self.dir(group);
        let quota = cpu.quota.map_or("max".to_owned(), |quota| microseconds(quota).to_string());
        write_to(&dir.join("self/cpu.max"), &format!("{quota} {PERIOD}"))?;
        write_to(&dir.join("cpu.weight"), &cpu.weight.unwrap_or(100).to_string())
    }

    pub(super) fn named_in(&self, group: &Group, proc_cgroup: &str) -> bool {
        let leaf = self.path.join(&group.name).join("self");
        let own = proc_cgroup.lines().find_map(|line| line.strip_prefix("0::"));
        own.is_some_and(|own| Path::new(own) == leaf)
    }

    pub(super) fn oom_kills(&self, group: &Group) -> u64 {
        let path = self.dir(group).join("self/memory.events");
        let text = fs::read_to_string(path).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
    }

    pub(super) fn thaw(&self, group: &Group) {
        let _ = write_to(&self.dir(group).join("self/cgroup.freeze"), "0");
    }

    pub(super) fn kill(&self, group: &Group) {
        let own = self.dir(group).join("self");
        // Linux ≥ 5.14.
        if write_to(&own.join("cgroup.kill"), "1").is_err() {
            kill_listed(&[own.join("cgroup.procs")]);
        }
    }

    pub(super) fn held(&self, group: &Group) -> HeldMemory {
        let text = fs::read_to_string(self.dir(group).join("self/memory.stat")).unwrap_or_default();
        let of = |name| stat(&text, name).unwrap_or(0);
        // Linux 5.18; before that the sum of its parts.
        let kernel = stat(&text, "kernel").map(|all| all.saturating_sub(of("slab_reclaimable")));
        let kernel = kernel.unwrap_or_else(|| of("slab_unreclaimable") + of("percpu"));
        HeldMemory { memory: of("anon") + of("shmem"), kernel: of("sock") + kernel }
    }

    pub(super) fn reusable(&self, group: &Group) -> bool {
        let own = self.dir(group).join("self");
        read_number(&own.join("cgroup.freeze")) == Some(0)
            && is_empty(&own.join("cgroup.procs"))
            && read_number(&own.join("memory.current")).is_some_and(|bytes| bytes <= UNCHARGED)
            && self.oom_kills(group) == 0
    }

    pub(super) fn remove(&self, group: &Group) -> bool {
        let dir = self.dir(group);
        let _ = fs::remove_dir(dir.join("self"));
        fs::remove_dir(&dir).is_ok() || !dir.exists()
    }
}

/// All directories of this name anywhere in the hierarchy: an earlier start may have been in
/// another unit.
pub(super) fn named(name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> =
        UnifiedHierarchy::find().map(|u| u.mount().to_owned()).into_iter().collect();
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let file_name = entry.file_name();
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            } else if file_name == name {
                found.push(entry.path());
            } else if !file_name.to_string_lossy().starts_with(OURS) {
                open.push(entry.path());
            }
        }
    }
    found
}

fn enable_below(dir: &Path, controllers: &[&str]) -> io::Result<()> {
    let words: Vec<String> = controllers.iter().map(|name| format!("+{name}")).collect();
    write_to(&dir.join("cgroup.subtree_control"), &words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_must_be_in_the_groups_own_leaf() {
        let ours = Hierarchy {
            dir: "/sys/fs/cgroup/unit/lambswool-x".into(),
            path: "/unit/lambswool-x".into(),
            parent: ParentGroup {
                dir: "/sys/fs/cgroup/unit".into(),
                path: "/unit".into(),
                delegated: true,
                inhabited_by_us: false,
            },
            cpu: false,
        };
        let group = Group::new("s1/s7".to_owned());
        assert!(ours.named_in(&group, "0::/unit/lambswool-x/s1/s7/self\n"));
        assert!(!ours.named_in(&group, "0::/unit/lambswool-x/s1/self\n"));
        assert!(!ours.named_in(&group, "0::/unit/unit/lambswool-x/s1/s7/self\n"));
    }

    /// A directory tree with the files that a kernel would have there, for groups of these names.
    fn pretended(names: &[&str]) -> (tempfile::TempDir, Hierarchy) {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("lambswool-x");
        fs::create_dir(&dir).unwrap();
        let directories = names.iter().map(|name| dir.join(name)).chain([dir.clone()]);
        for dir in directories.chain([top.path().to_owned()]) {
            fs::create_dir_all(dir.join("self")).unwrap();
            for file in ["cgroup.subtree_control", "cpu.weight", "self/cpu.max"] {
                fs::write(dir.join(file), "").unwrap();
            }
        }
        fs::write(top.path().join("cgroup.controllers"), "cpu memory pids").unwrap();
        let parent = ParentGroup {
            dir: top.path().to_owned(),
            path: "/".into(),
            delegated: false,
            inhabited_by_us: false,
        };
        let ours = Hierarchy { dir, path: "/lambswool-x".into(), parent, cpu: true };
        (top, ours)
    }

    #[test]
    fn the_cpu_controller_is_enabled_only_on_the_way_to_a_limited_sandbox() {
        let (top, ours) = pretended(&["s1", "s1/s7", "s1/s8", "s2"]);
        let cpu = Cpu { quota: Some(250), weight: Some(30) };
        ours.limit_cpu(&Group::new("s1/s7".to_owned()), cpu).unwrap();
        let read = |file: &str| fs::read_to_string(top.path().join(file)).unwrap();
        for dir in ["", "lambswool-x/", "lambswool-x/s1/", "lambswool-x/s1/s7/"] {
            assert_eq!(read(&format!("{dir}cgroup.subtree_control")), "+cpu", "{dir}");
        }
        for dir in ["s1/s8", "s2"] {
            assert_eq!(read(&format!("lambswool-x/{dir}/cgroup.subtree_control")), "", "{dir}");
        }
        // The quota is the leaf's: forks of a zygote have their own. The weight is that of the
        // whole.
        assert_eq!(read("lambswool-x/s1/s7/self/cpu.max"), "25000 100000");
        assert_eq!(read("lambswool-x/s1/s7/cpu.weight"), "30");
        assert_eq!(read("lambswool-x/s1/self/cpu.max"), "");
    }

    #[test]
    fn sandboxes_together_and_the_worker_weigh_as_a_thread_on_each_processor() {
        let (top, mut ours) = pretended(&["s1"]);
        fs::create_dir(top.path().join(SUPERVISOR)).unwrap();
        fs::write(top.path().join(SUPERVISOR).join("cpu.weight"), "100").unwrap();
        ours.parent.delegated = true;
        assert!(ours.weigh_together(800));
        let read = |file: &str| fs::read_to_string(top.path().join(file)).unwrap();
        assert_eq!(read("cgroup.subtree_control"), "+cpu");
        assert_eq!(read("lambswool-x/cpu.weight"), "800");
        assert_eq!(read("supervisor/cpu.weight"), "800");
        // No controller is enabled for single sandboxes.
        assert_eq!(read("lambswool-x/cgroup.subtree_control"), "");
        assert!(ours.weigh_together(12_800));
        assert_eq!(read("lambswool-x/cpu.weight"), "10000");
    }

    #[test]
    fn a_group_without_a_processor_limit_needs_no_freeing() {
        let (top, ours) = pretended(&["s1"]);
        let never = Group::new("s3".to_owned());
        fs::create_dir_all(top.path().join("lambswool-x/s3/self")).unwrap();
        ours.unlimit_cpu(&never).unwrap();
        ours.unlimit_cpu(&Group::new("s1".to_owned())).unwrap();
        let max = fs::read_to_string(top.path().join("lambswool-x/s1/self/cpu.max")).unwrap();
        assert_eq!(max, "max 100000");
    }
}
