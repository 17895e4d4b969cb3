//! Cgroups, version 1 and hybrid: a directory for each sandbox in each of three hierarchies.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{
    Files, Group, UNCHARGED, is_empty, open_as, open_read, open_write, read_number, write_to,
};
use crate::protocol::Limits;

/// The freezer last, and so first when everything is cleared from the end: what it holds does not die.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "freezer"];

/// Our directories in the hierarchies.
#[derive(Debug)]
pub struct Hierarchies {
    /// Where each controller is mounted, and which controllers share that mount.
    memory: PathBuf,
    pids: PathBuf,
    freezer: PathBuf,
    name: String,
}

impl Hierarchies {
    /// Finds the three controllers' mounts and makes our directory in each; none when one is missing or closed.
    #[must_use]
    pub fn detect(name: &str) -> Option<Self> {
        let [memory, pids, freezer] = tops(name);
        let found = Self { memory: memory?, pids: pids?, freezer: freezer?, name: name.to_owned() };
        for dir in found.tops() {
            if let Err(error) = fs::create_dir(dir)
                && error.kind() != io::ErrorKind::AlreadyExists
            {
                return None;
            }
        }
        Some(found)
    }

    pub(super) fn tops(&self) -> [&PathBuf; 3] {
        [&self.memory, &self.pids, &self.freezer]
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
        // A limit of memory here is none of swap: what reaches it is not swapped out but killed.
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

    pub(super) fn reusable(&self, group: &Group) -> bool {
        let state = fs::read_to_string(self.freezer.join(&group.name).join("freezer.state"));
        let usage = self.memory.join(&group.name).join("memory.usage_in_bytes");
        state.is_ok_and(|state| state.trim() == "THAWED")
            && self.procs(group).iter().all(|procs| is_empty(procs))
            && read_number(&usage).is_some_and(|bytes| bytes <= UNCHARGED)
            && self.oom_kills(group) == 0
    }

    pub(super) fn remove(&self, group: &Group) -> bool {
        let mut gone = true;
        for top in self.tops() {
            let dir = top.join(&group.name);
            gone &= fs::remove_dir(&dir).is_ok() || !dir.exists();
        }
        gone
    }
}

/// Where our directory is, or would be, in the hierarchy of each controller.
pub(super) fn tops(name: &str) -> [Option<PathBuf>; 3] {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    CONTROLLERS.map(|controller| {
        mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (at, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
            let ours = kind == "cgroup" && options.split(',').any(|o| o == controller);
            ours.then(|| Path::new(at).join(name))
        })
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
