//! Cgroups, version 2: a directory for each sandbox, with a zygote's slots below the zygote's own.
//!
//! ```text
//!   lambswool-…/           ours, delegated or made at the top
//!     s1/                  a zygote's: cgroup.procs belongs to its uid, so that it may move what is below
//!       self/              the zygote
//!       s2/                a slot of it ─ an instance is in s2/self likewise
//!         self/
//! ```
//! Processes live in leaves only (`self`), because a group whose controllers are on for others may hold none itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{
    Files, Group, UNCHARGED, clear_tree, is_empty, kill_listed, open_as, open_read, open_write,
    read_number, write_to,
};
use crate::protocol::Limits;

const CONTROLLERS: &str = "+memory +pids";

/// Our directory.
#[derive(Debug)]
pub struct Hierarchy {
    top: PathBuf,
}

impl Hierarchy {
    /// Makes our directory at the top of the hierarchy, as the warden sees it; none when the memory and pids controllers
    /// cannot be had there (the root of a container's cgroup namespace that holds processes itself: EBUSY).
    #[must_use]
    pub fn detect(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let mount = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (at, kind) = (fields.next()?, fields.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(at))
        })?;
        let has = |dir: &Path, file: &str| {
            let listed = fs::read_to_string(dir.join(file)).unwrap_or_default();
            ["memory", "pids"].iter().all(|c| listed.split_whitespace().any(|l| l == *c))
        };
        if !has(&mount, "cgroup.controllers") {
            return None;
        }
        if !has(&mount, "cgroup.subtree_control") {
            write_to(&mount.join("cgroup.subtree_control"), CONTROLLERS).ok()?;
        }
        let top = mount.join(name);
        if let Err(error) = fs::create_dir(&top)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return None;
        }
        write_to(&top.join("cgroup.subtree_control"), CONTROLLERS).ok()?;
        Some(Self { top })
    }

    fn dir(&self, group: &Group) -> PathBuf {
        self.top.join(&group.name)
    }

    pub(super) fn make(&self, group: &Group, owner: u32) -> io::Result<()> {
        let dir = self.dir(group);
        fs::create_dir(&dir)?;
        let owner =
            (Some(rustix::fs::Uid::from_raw(owner)), Some(rustix::fs::Gid::from_raw(owner)));
        rustix::fs::chown(dir.join("cgroup.procs"), owner.0, owner.1)?;
        write_to(&dir.join("cgroup.subtree_control"), CONTROLLERS)?;
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
        // On the leaf: what is forked from a zygote has limits of its own.
        let own = self.dir(group).join("self");
        write_to(&own.join("memory.max"), &limits.memory_bytes.to_string())?;
        // Where there is swap: a limit of memory is one of memory and swap.
        let _ = write_to(&own.join("memory.swap.max"), "0");
        write_to(&own.join("pids.max"), &limits.pids.to_string())
    }

    pub(super) fn named_in(&self, group: &Group, proc_cgroup: &str) -> bool {
        let Some(ours) = self.top.file_name().and_then(|name| name.to_str()) else {
            return false;
        };
        let end = format!("/{ours}/{}/self", group.name);
        proc_cgroup.lines().any(|line| line.starts_with("0::") && line.ends_with(&end))
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

    pub(super) fn clear(&self) {
        clear_tree(&self.top, &|dir| {
            let _ = write_to(&dir.join("cgroup.freeze"), "0");
            kill_listed(&[dir.join("cgroup.procs")]);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_must_be_in_the_groups_own_leaf() {
        let ours = Hierarchy { top: PathBuf::from("/sys/fs/cgroup/lambswool-x") };
        let group = Group::new("s1/s7".to_owned());
        assert!(ours.named_in(&group, "0::/lambswool-x/s1/s7/self\n"));
        assert!(!ours.named_in(&group, "0::/lambswool-x/s1/self\n"));
        assert!(!ours.named_in(&group, "0::/other/s1/s7/self\n"));
    }
}
