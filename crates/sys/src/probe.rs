//! What a host can do, as far as an unprivileged process can tell. Facts only: conclusions are the
//! caller's.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::unified::UnifiedHierarchy;

/// A kernel's version: 6.18 is `(6, 18)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Kernel(pub u32, pub u32);

impl Kernel {
    /// The running kernel's version; 0.0 when it cannot be read.
    #[must_use]
    pub fn running() -> Self {
        Self::parse(&rustix::system::uname().release().to_string_lossy())
    }

    fn parse(release: &str) -> Self {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        let mut next = || numbers.next().and_then(|n| n.parse().ok()).unwrap_or(0);
        let (major, minor) = (next(), next());
        Self(major, minor)
    }
}

/// The kind of system that this process runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Surroundings {
    /// No sign of a container or of Windows.
    Machine,
    /// A container, with the engine's name if it gives one.
    Container(String),
    /// Windows Subsystem for Linux, version 2.
    Wsl2,
}

/// The cgroups that a worker started from here could use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CgroupLayout {
    /// Version 1: each controller on a hierarchy of its own.
    V1,
    /// Version 1, and an empty unified hierarchy beside it.
    Hybrid,
    /// Version 2, with groups at the top of the hierarchy.
    V2Top,
    /// Version 2, with groups below this delegated one.
    V2Delegated(PathBuf),
    /// Cgroups that cannot be used: controllers are missing, or processes or a read-only mount are
    /// in the way.
    Closed,
    /// No cgroups are mounted.
    None,
}

/// Whether virtual machines can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kvm {
    /// `/dev/kvm` opens and answers.
    Open,
    /// `/dev/kvm` exists and does not open for this user.
    Closed,
    /// `/dev/kvm` opens, and does not answer as KVM does.
    Foreign,
    /// `/dev/kvm` does not exist.
    Missing,
}

/// The abilities of a host.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// The kernel's version.
    pub kernel: Kernel,
    /// Machine, container or WSL.
    pub surroundings: Surroundings,
    /// The usable cgroups.
    pub cgroups: CgroupLayout,
    /// Controllers among `memory`, `pids` and `freezer` that are unavailable (version 2 freezes
    /// without one).
    pub missing_controllers: Vec<&'static str>,
    /// Whether the controller `cpu` is available.
    pub cpu: bool,
    /// Maximum number of user namespaces per user; 0 where they are off.
    pub user_namespaces: u64,
    /// Maximum number of processes of all sandboxes together: the least of `kernel.pid_max`,
    /// `kernel.threads-max`, and the `pids.max` of the groups above them.
    pub processes: u64,
    /// Settings of the kernel, by name, that restrict user namespaces of ordinary users.
    pub user_namespace_restrictions: Vec<&'static str>,
    /// Linux security modules in force.
    pub security_modules: Vec<String>,
    /// The ABI version of Landlock; 0 where it is off.
    pub landlock: u32,
    /// Whether seccomp filters can be installed.
    pub seccomp: bool,
    /// Whether pressure stall information is available.
    pub pressure: bool,
    /// Support for virtual machines.
    pub kvm: Kvm,
}

impl Host {
    /// Examines the host. Reads a few dozen small files and changes nothing.
    #[must_use]
    pub fn probe() -> Self {
        let mounts = read("/proc/self/mounts");
        let unified = UnifiedHierarchy::find();
        let (cgroups, missing_controllers) = cgroups(&mounts, unified.as_ref());
        Self {
            processes: processes_among(&mounts, unified.as_ref()),
            cpu: limits_cpu(&mounts, unified.as_ref()),
            kernel: Kernel::running(),
            surroundings: surroundings(Path::new("/"), in_first_pid_namespace()),
            cgroups,
            missing_controllers,
            user_namespaces: number("/proc/sys/user/max_user_namespaces").unwrap_or(0),
            user_namespace_restrictions: restrictions(),
            security_modules: list(&read("/sys/kernel/security/lsm"), ','),
            landlock: landlock(),
            seccomp: Path::new("/proc/sys/kernel/seccomp/actions_avail").exists(),
            pressure: Path::new("/proc/pressure/memory").exists(),
            kvm: kvm(),
        }
    }
}

/// Memory of this machine, in bytes.
#[must_use]
pub fn total_memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn number(path: &str) -> Option<u64> {
    read(path).trim().parse().ok()
}

fn list(text: &str, separator: char) -> Vec<String> {
    text.trim().split(separator).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Whether this process is in the first pid namespace, which a process in a container is not. The
/// kernel gives that namespace a constant inode number (`PROC_PID_INIT_INO`,
/// `include/linux/proc_ns.h`).
fn in_first_pid_namespace() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name == Path::new("pid:[4026531836]"))
}

/// The kind of system, by the files below `root`. `first`: the process is in the first pid
/// namespace, so this is a machine, even if it was made from a container's image and has its marks.
fn surroundings(root: &Path, first: bool) -> Surroundings {
    let read = |path: &str| fs::read(root.join(path)).unwrap_or_default();
    let text = |path: &str| String::from_utf8_lossy(&read(path)).into_owned();
    // WSL has a pid namespace of its own too, and systemd there calls it a container.
    if text("proc/sys/kernel/osrelease").to_lowercase().contains("wsl2") {
        return Surroundings::Wsl2;
    }
    if first {
        return Surroundings::Machine;
    }
    for (mark, name) in [(".dockerenv", "docker"), ("run/.containerenv", "podman")] {
        if root.join(mark).exists() {
            return Surroundings::Container(name.to_owned());
        }
    }
    // systemd records what it finds in pid 1's environment, which only root may read.
    let named = list(&text("run/systemd/container"), '\n').into_iter().next().or_else(|| {
        let environment = read("proc/1/environ");
        let entry = environment.split(|b| *b == 0).find_map(|e| e.strip_prefix(b"container="))?;
        Some(String::from_utf8_lossy(entry).into_owned())
    });
    named.map_or(Surroundings::Machine, Surroundings::Container)
}

fn cgroups(mounts: &str, unified: Option<&UnifiedHierarchy>) -> (CgroupLayout, Vec<&'static str>) {
    const ON_V1: [&str; 3] = ["memory", "pids", "freezer"];
    const ON_V2: [&str; 2] = ["memory", "pids"];
    let v1 = |wanted: &dyn Fn(&str) -> bool| on_v1(mounts, wanted);
    let missing: Vec<_> = ON_V1.into_iter().filter(|name| !v1(&|option| option == *name)).collect();
    if missing.is_empty() {
        let layout = if unified.is_some() { CgroupLayout::Hybrid } else { CgroupLayout::V1 };
        return (layout, missing);
    }
    let Some(unified) = unified else {
        let any = missing.len() < ON_V1.len();
        return (if any { CgroupLayout::Closed } else { CgroupLayout::None }, missing);
    };
    let parent_groups = unified.parent_groups();
    match parent_groups.iter().find(|parent| parent.usable(&ON_V2)) {
        Some(parent) if parent.delegated => {
            (CgroupLayout::V2Delegated(parent.path.clone()), Vec::new())
        }
        Some(_) => (CgroupLayout::V2Top, Vec::new()),
        // Memory or pids may be on version 1 without the other controllers: those are then missing
        // there.
        None if v1(&|option| ON_V2.contains(&option)) => (CgroupLayout::Closed, missing),
        None => {
            let lacking =
                parent_groups.first().map_or(ON_V2.to_vec(), |parent| parent.lacking(&ON_V2));
            (CgroupLayout::Closed, lacking)
        }
    }
}

/// Whether a writable hierarchy of version 1 has a controller.
fn on_v1(mounts: &str, wanted: &dyn Fn(&str) -> bool) -> bool {
    mounts.lines().any(|line| {
        let mut fields = line.split(' ').skip(2);
        let (kind, options) = (fields.next(), fields.next().unwrap_or(""));
        // Some containers mount the hierarchies read-only: their controllers are unavailable.
        kind == Some("cgroup") && !options.starts_with("ro") && options.split(',').any(wanted)
    })
}

fn limits_cpu(mounts: &str, unified: Option<&UnifiedHierarchy>) -> bool {
    // The warden limits processors in the same hierarchy as memory and processes.
    const ALL: [&str; 3] = ["memory", "pids", "cpu"];
    on_v1(mounts, &|option| option == "cpu")
        || unified.is_some_and(|unified| {
            unified
                .parent_groups()
                .iter()
                .find(|parent| parent.usable(&ALL[..2]))
                .is_some_and(|g| g.usable(&ALL))
        })
}

/// As [`Host::processes`].
#[must_use]
pub fn processes() -> u64 {
    processes_among(&read("/proc/self/mounts"), UnifiedHierarchy::find().as_ref())
}

fn processes_among(mounts: &str, unified: Option<&UnifiedHierarchy>) -> u64 {
    let on_v1 = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (at, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup" && options.split(',').any(|option| option == "pids")).then(|| at.into())
    });
    let on_v2 = || {
        let parent_groups = unified?.parent_groups();
        parent_groups.into_iter().find(|parent| parent.usable(&["pids"])).map(|parent| parent.dir)
    };
    let group: Option<PathBuf> = on_v1.or_else(on_v2);
    let above = group.iter().flat_map(|dir| dir.ancestors()).map(|dir| dir.join("pids.max"));
    let kernel = ["pid_max", "threads-max"].map(|name| Path::new("/proc/sys/kernel").join(name));
    // A group without a limit holds the word "max".
    above.chain(kernel).filter_map(|file| number(&file.to_string_lossy())).min().unwrap_or(u64::MAX)
}

fn restrictions() -> Vec<&'static str> {
    [
        ("kernel.unprivileged_userns_clone", "/proc/sys/kernel/unprivileged_userns_clone", 0),
        (
            "kernel.apparmor_restrict_unprivileged_userns",
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            1,
        ),
    ]
    .into_iter()
    .filter(|(_, path, restricts)| number(path) == Some(*restricts))
    .map(|(name, _, _)| name)
    .collect()
}

/// Landlock's version (landlock(7)): 4 has rules for TCP's ports (Linux 6.7), 6 scopes (6.12); 0
/// where it is off.
#[must_use]
pub fn landlock() -> u32 {
    // SAFETY: with this flag the call takes no attributes and returns the version.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, 1) };
    u32::try_from(version).unwrap_or(0)
}

fn speaks_kvm(file: &fs::File) -> bool {
    const KVM_GET_API_VERSION: libc::c_ulong = 0xae00;
    const VERSION: libc::c_int = 12;
    // SAFETY: takes no argument; a device that is not KVM refuses it.
    unsafe { libc::ioctl(file.as_raw_fd(), KVM_GET_API_VERSION, 0) == VERSION }
}

fn kvm() -> Kvm {
    match fs::OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        Ok(file) if speaks_kvm(&file) => Kvm::Open,
        Ok(_) => Kvm::Foreign,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Kvm::Missing,
        Err(_) => Kvm::Closed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_compared_by_number_and_not_by_letter() {
        assert!(Kernel::parse("6.9.0-rc1") < Kernel::parse("6.15.3-amd64"));
        assert_eq!(Kernel::parse("5.15"), Kernel(5, 15));
        assert!(Kernel::running() > Kernel(3, 0));
    }

    #[test]
    fn containers_are_recognised_by_their_marks_and_machines_are_not() {
        let among = |files: &[(&str, &str)], first| {
            let root = tempfile::tempdir().unwrap();
            for (path, content) in files {
                let path = root.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
            surroundings(root.path(), first)
        };
        let container = |name: &str| Surroundings::Container(name.to_owned());
        let kernel = ("proc/sys/kernel/osrelease", "6.12.0-amd64\n");
        let docker = [kernel, (".dockerenv", "")];
        assert_eq!(among(&docker, false), container("docker"));
        assert_eq!(among(&docker, true), Surroundings::Machine);
        assert_eq!(among(&[kernel, ("run/.containerenv", "")], false), container("podman"));
        assert_eq!(among(&[kernel, ("run/systemd/container", "lxc\n")], false), container("lxc"));
        let of_pid_1 = ("proc/1/environ", "HOME=/\0container=systemd-nspawn\0TERM=linux\0");
        assert_eq!(among(&[kernel, of_pid_1], false), container("systemd-nspawn"));
        assert_eq!(among(&[kernel], false), Surroundings::Machine);
        // WSL 2: a pid namespace of its own, and systemd's mark.
        let windows = ("proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n");
        assert_eq!(
            among(&[windows, ("run/systemd/container", "wsl\n")], false),
            Surroundings::Wsl2
        );
    }

    #[test]
    fn kinds_of_cgroups_and_missing_controllers_are_told_apart() {
        let mounted = |options: &str, names: &[&str]| -> String {
            let line = |name: &&str| format!("cgroup /c/{name} cgroup {options},{name} 0 0\n");
            names.iter().map(line).collect()
        };
        let all = mounted("rw", &["memory", "pids", "freezer"]);
        let mounts = "31 22 0:26 / /nowhere rw - cgroup2 cgroup2 rw\n";
        let unified = UnifiedHierarchy::parse(mounts, "0::/\n");
        assert!(unified.is_some());
        assert_eq!(cgroups(&all, None), (CgroupLayout::V1, vec![]));
        assert_eq!(cgroups(&all, unified.as_ref()), (CgroupLayout::Hybrid, vec![]));
        let two = mounted("rw", &["memory", "pids"]);
        assert_eq!(cgroups(&two, None), (CgroupLayout::Closed, vec!["freezer"]));
        assert_eq!(cgroups(&two, unified.as_ref()), (CgroupLayout::Closed, vec!["freezer"]));
        let closed = mounted("ro", &["memory", "pids", "freezer"]);
        assert_eq!(cgroups(&closed, None).1, ["memory", "pids", "freezer"]);
        assert!(limits_cpu(&mounted("rw", &["cpu"]), None));
        assert!(!limits_cpu(&mounted("ro", &["cpu"]), None) && !limits_cpu(&all, unified.as_ref()));
        // No controller is available.
        let missing = vec!["memory", "pids"];
        assert_eq!(cgroups("", unified.as_ref()), (CgroupLayout::Closed, missing));
        assert_eq!(cgroups("", None).0, CgroupLayout::None);
    }
}
