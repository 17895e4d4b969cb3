//! The unified cgroup hierarchy (version 2) as this process sees it, and the groups below which it
//! may make its own.
//!
//! Two kinds of group may hold groups of another program. The first is a **delegated** group:
//! systemd marks the group of a unit that has `Delegate=` with an extended attribute, and the top
//! of what a container sees is its own. The second is the **top** of the machine's hierarchy, for
//! root.
//!
//! A delegated group that this process lives in has to be cleared first: the kernel switches
//! controllers on only for the children of a group without processes ("no internal processes",
//! cgroup-v2.rst). Its processes are moved into a child of the name [`SUPERVISOR`].

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;

/// The child group to which the processes of a delegated group move. Our systemd unit has the same
/// name in `DelegateSubgroup=`.
pub const SUPERVISOR: &str = "supervisor";

/// systemd's marks of delegation: the first is readable by all users, since release 251; the second
/// by root.
const MARKS: [&str; 2] = ["user.delegate", "trusted.delegate"];

/// The mount point of the hierarchy, and this process's group in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnifiedHierarchy {
    mount: PathBuf,
    /// The part of the hierarchy that is mounted there.
    root: PathBuf,
    own: PathBuf,
}

/// A group below which others may be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentGroup {
    /// The group's directory, absolute.
    pub dir: PathBuf,
    /// The group's name, as in `/proc/<pid>/cgroup`.
    pub path: PathBuf,
    /// The group was delegated to this process; otherwise it is the top of the machine's hierarchy.
    pub delegated: bool,
    /// Whether this process is in the group.
    pub inhabited_by_us: bool,
}

impl UnifiedHierarchy {
    /// Reads the mount table; none when the hierarchy is not mounted.
    #[must_use]
    pub fn find() -> Option<Self> {
        let read = |name| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        Self::parse(&read("mountinfo"), &read("cgroup"))
    }

    pub(crate) fn parse(mounts: &str, groups: &str) -> Option<Self> {
        let (root, mount) = mounts.lines().find_map(|line| {
            let (place, kind) = line.split_once(" - ")?;
            let mut fields = place.split(' ').skip(3);
            let found = (fields.next()?, fields.next()?);
            kind.starts_with("cgroup2 ").then_some(found)
        })?;
        let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
        Some(Self { mount: mount.into(), root: root.into(), own: own.into() })
    }

    /// The mount point.
    #[must_use]
    pub fn mount(&self) -> &Path {
        &self.mount
    }

    /// The groups that may hold ours, the most specific first.
    #[must_use]
    pub fn parent_groups(&self) -> Vec<ParentGroup> {
        self.grounds_by(&is_marked)
    }

    fn grounds_by(&self, is_marked: &dyn Fn(&Path) -> bool) -> Vec<ParentGroup> {
        let unit = match self.own.file_name() {
            // This process was moved there by an earlier start, or by systemd. The parent of any
            // other group is not ours though it may be delegated: a user's systemd lives in such a
            // group and manages it alone.
            Some(name) if name == SUPERVISOR => self.own.parent(),
            _ => Some(self.own.as_path()),
        };
        let unit = unit.filter(|path| **path != self.root);
        let unit = unit.and_then(|path| self.parent(path)).filter(|parent| is_marked(&parent.dir));
        let unit = unit.map(|parent| ParentGroup { delegated: true, ..parent });
        unit.into_iter().chain(self.parent(&self.root)).collect()
    }

    fn parent(&self, path: &Path) -> Option<ParentGroup> {
        let below = path.strip_prefix(&self.root).ok()?;
        let dir = self.mount.join(below);
        Some(ParentGroup {
            path: path.to_owned(),
            // The only group without this file is the top of the machine's hierarchy.
            delegated: dir.join("cgroup.type").exists(),
            inhabited_by_us: self.own == path,
            dir,
        })
    }
}

impl ParentGroup {
    /// The controllers among these that the group cannot enable for its children.
    #[must_use]
    pub fn lacking<'a>(&self, controllers: &[&'a str]) -> Vec<&'a str> {
        unlisted(&self.dir.join("cgroup.controllers"), controllers)
    }

    /// The controllers among these that are not yet enabled for the group's children.
    #[must_use]
    pub fn off<'a>(&self, controllers: &[&'a str]) -> Vec<&'a str> {
        unlisted(&self.dir.join("cgroup.subtree_control"), controllers)
    }

    /// Whether root can have these controllers for groups below it, as far as can be seen without
    /// trying.
    #[must_use]
    pub fn usable(&self, controllers: &[&str]) -> bool {
        let writable = rustix::fs::statvfs(&self.dir)
            .is_ok_and(|stat| !stat.f_flag.contains(StatVfsMountFlags::RDONLY));
        let holds_processes = || {
            let listed = fs::read(self.dir.join("cgroup.procs"));
            listed.map_or(true, |listed| !listed.is_empty())
        };
        writable
            && self.lacking(controllers).is_empty()
            // The machine's top may hold processes, and this process's own can be moved.
            && (self.off(controllers).is_empty()
                || !self.delegated
                || self.inhabited_by_us
                || !holds_processes())
    }

    /// Enables these controllers for groups below this one, after moving its processes into
    /// [`SUPERVISOR`] where the kernel requires that. Needs root.
    ///
    /// # Errors
    /// EBUSY when it holds processes that cannot be moved, ENOENT when a controller is not there;
    /// as `write(2)`.
    pub fn enable(&self, controllers: &[&str]) -> io::Result<()> {
        let off = self.off(controllers);
        if off.is_empty() {
            return Ok(());
        }
        if self.delegated && self.inhabited_by_us {
            self.make_room()?;
        }
        let words: Vec<String> = off.iter().map(|name| format!("+{name}")).collect();
        fs::write(self.dir.join("cgroup.subtree_control"), words.join(" "))
    }

    /// Moves all processes out of the group, which was delegated as a whole.
    fn make_room(&self) -> io::Result<()> {
        let leaf = self.dir.join(SUPERVISOR);
        match fs::create_dir(&leaf) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // Repeated because processes fork meanwhile. A process of a namespace that this one does
        // not see is listed as 0 and stays.
        for _ in 0..100 {
            let listed = fs::read_to_string(self.dir.join("cgroup.procs"))?;
            if listed.lines().all(|pid| pid == "0") {
                break;
            }
            for pid in listed.lines() {
                // A process may have ended meanwhile. One that cannot be moved causes EBUSY later.
                let _ = fs::write(leaf.join("cgroup.procs"), pid);
            }
        }
        Ok(())
    }
}

fn is_marked(dir: &Path) -> bool {
    MARKS.iter().any(|mark| {
        let mut value = [0u8; 8];
        rustix::fs::getxattr(dir, *mark, &mut value[..])
            .is_ok_and(|length| &value[..length] == b"1")
    })
}

fn unlisted<'a>(file: &Path, controllers: &[&'a str]) -> Vec<&'a str> {
    let listed = fs::read_to_string(file).unwrap_or_default();
    let on = |name: &&str| listed.split_whitespace().any(|word| word == *name);
    controllers.iter().copied().filter(|name| !on(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
        31 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

    fn seen(own: &str, mounts: &str) -> UnifiedHierarchy {
        UnifiedHierarchy::parse(mounts, &format!("1:name=systemd:/x\n0::{own}\n")).unwrap()
    }

    fn paths(unified: &UnifiedHierarchy, marked: &[&str]) -> Vec<String> {
        let is_marked = |dir: &Path| marked.iter().any(|path| dir == Path::new(path));
        let parent_groups = unified.grounds_by(&is_marked);
        parent_groups.iter().map(|parent| parent.path.display().to_string()).collect()
    }

    #[test]
    fn a_unit_that_was_delegated_comes_before_the_top() {
        let unit = "/sys/fs/cgroup/system.slice/wool.service";
        let there = seen("/system.slice/wool.service", MACHINE);
        assert_eq!(paths(&there, &[unit]), ["/system.slice/wool.service", "/"]);
        assert_eq!(paths(&there, &[]), ["/"]);
        let parent_groups = there.grounds_by(&|_| true);
        assert!(
            parent_groups[0].delegated
                && parent_groups[0].inhabited_by_us
                && !parent_groups[1].inhabited_by_us
        );
    }

    #[test]
    fn a_process_in_the_units_leaf_still_finds_the_unit() {
        let unit = "/sys/fs/cgroup/system.slice/wool.service";
        let there = seen("/system.slice/wool.service/supervisor", MACHINE);
        assert_eq!(paths(&there, &[unit]), ["/system.slice/wool.service", "/"]);
        assert!(!there.grounds_by(&|_| true)[0].inhabited_by_us);
    }

    #[test]
    fn a_group_delegated_to_an_ancestor_is_not_taken() {
        let manager = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service";
        let own = "/user.slice/user-1000.slice/user@1000.service/wool.scope";
        assert_eq!(paths(&seen(own, MACHINE), &[manager]), ["/"]);
    }

    #[test]
    fn groups_are_found_in_the_mounted_part_of_the_hierarchy() {
        let bound = MACHINE.replace("0:26 / /sys", "0:26 /docker/abc /sys");
        let there = seen("/docker/abc/job", &bound);
        let parent_groups = there.grounds_by(&|_| true);
        assert_eq!(parent_groups[0].dir, Path::new("/sys/fs/cgroup/job"));
        assert_eq!(parent_groups[1].dir, Path::new("/sys/fs/cgroup"));
        assert_eq!(parent_groups[1].path, Path::new("/docker/abc"));
        // A group outside of the mounted part does not hold ours.
        assert_eq!(paths(&seen("/docker/other", &bound), &[]), ["/docker/abc"]);
    }

    /// A directory with the files of a group.
    fn group(controllers: &str, on: &str, processes: &str) -> (tempfile::TempDir, ParentGroup) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("cgroup.controllers", controllers),
            ("cgroup.subtree_control", on),
            ("cgroup.procs", processes),
        ] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let parent = ParentGroup {
            dir: dir.path().to_owned(),
            path: "/g".into(),
            delegated: true,
            inhabited_by_us: false,
        };
        (dir, parent)
    }

    #[test]
    fn a_group_with_strangers_is_usable_only_if_its_controllers_are_on() {
        let usable = |parent: &ParentGroup| parent.usable(&["memory", "pids"]);
        let (_dir, strangers) = group("cpu memory pids\n", "", "7\n");
        assert!(!usable(&strangers));
        assert!(usable(&ParentGroup { inhabited_by_us: true, ..strangers.clone() }));
        assert!(usable(&ParentGroup { delegated: false, ..strangers }));
        let (_dir, prepared) = group("cpu memory pids\n", "memory pids\n", "7\n");
        assert!(usable(&prepared));
    }

    #[test]
    fn a_controller_that_was_not_delegated_is_named() {
        let (_dir, parent) = group("cpu pids\n", "", "");
        assert_eq!(parent.lacking(&["memory", "pids"]), ["memory"]);
        assert!(!parent.usable(&["memory", "pids"]) && parent.usable(&["pids"]));
    }

    #[test]
    fn only_controllers_that_are_off_are_switched_on() {
        let (dir, parent) = group("memory pids\n", "pids\n", "");
        parent.enable(&["memory", "pids"]).unwrap();
        let written = fs::read_to_string(dir.path().join("cgroup.subtree_control")).unwrap();
        assert_eq!(written, "+memory");
    }
}
