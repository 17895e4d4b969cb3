//! What a host can do, as far as an unprivileged look can tell. Facts only: what follows from them is the caller's.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::unified::Unified;

/// A kernel's version: 6.18 is `(6, 18)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Kernel(pub u32, pub u32);

impl Kernel {
    /// The running one; 0.0 when it does not say.
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

/// Where this system runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Surroundings {
    /// Nothing says that it is anything but a machine.
    Machine,
    /// In a container; by the name that it gives itself.
    Container(String),
    /// In Windows' Linux, version 2.
    Wsl2,
}

/// Which cgroups a worker that is started from here would have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CgroupLayout {
    /// Controllers on hierarchies of their own.
    V1,
    /// Those, and an empty unified hierarchy beside them.
    Hybrid,
    /// Controllers on the unified hierarchy, groups at its top.
    V2Top,
    /// The same, groups below this one, which was delegated.
    V2Delegated(PathBuf),
    /// There are cgroups, and none that can be used: controllers are missing, or processes or a read-only mount are in
    /// the way.
    Closed,
    /// None.
    None,
}

/// Whether virtual machines can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kvm {
    /// `/dev/kvm` opens and answers.
    Open,
    /// It is there and does not open for this user.
    Closed,
    /// It opens, and does not answer as KVM does.
    Foreign,
    /// It is not there.
    Missing,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// The kernel.
    pub kernel: Kernel,
    /// Where it runs.
    pub surroundings: Surroundings,
    /// Which cgroups there are for us.
    pub cgroups: CgroupLayout,
    /// Controllers among `memory`, `pids` and `freezer` that cannot be had (version 2 freezes without one).
    pub missing_controllers: Vec<&'static str>,
    /// Whether the controller `cpu` can be had.
    pub cpu: bool,
    /// Most user namespaces per user; 0 where they are off.
    pub user_namespaces: u64,
    /// Most processes of all sandboxes together: `kernel.pid_max`, `kernel.threads-max`, and the `pids.max` of the groups
    /// above theirs.
    pub processes: u64,
    /// What restricts the user namespaces of ordinary users, by the name of its setting.
    pub user_namespace_restrictions: Vec<&'static str>,
    /// Linux security modules in force.
    pub security_modules: Vec<String>,
    /// Landlock's version; 0 where it is off.
    pub landlock: u32,
    /// Whether seccomp filters can be installed.
    pub seccomp: bool,
    /// Pressure stall information is there.
    pub pressure: bool,
    /// Virtual machines.
    pub kvm: Kvm,
}

impl Host {
    /// Looks. A few dozen small files; changes nothing.
    #[must_use]
    pub fn probe() -> Self {
        let mounts = read("/proc/self/mounts");
        let unified = Unified::find();
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

/// Bytes of memory of this machine.
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

/// Whether this process is in the first pid namespace: in one that a container has, it is not. The kernel gives the first
/// a number that never changes (`PROC_PID_INIT_INO`, `include/linux/proc_ns.h`).
fn in_first_pid_namespace() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name == Path::new("pid:[4026531836]"))
}

/// What the files below `root` say. A machine may have been made from a container's image, and have its marks; `first`:
/// it is one, because nothing contains this process.
fn surroundings(root: &Path, first: bool) -> Surroundings {
    let read = |path: &str| fs::read(root.join(path)).unwrap_or_default();
    let text = |path: &str| String::from_utf8_lossy(&read(path)).into_owned();
    // Windows' Linux has a pid namespace of its own too, and systemd there calls it a container.
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
    // systemd writes down what it finds in pid 1's environment, which only root may read.
    let named = list(&text("run/systemd/container"), '\n').into_iter().next().or_else(|| {
        let environment = read("proc/1/environ");
        let entry = environment.split(|b| *b == 0).find_map(|e| e.strip_prefix(b"container="))?;
        Some(String::from_utf8_lossy(entry).into_owned())
    });
    named.map_or(Surroundings::Machine, Surroundings::Container)
}

fn cgroups(mounts: &str, unified: Option<&Unified>) -> (CgroupLayout, Vec<&'static str>) {
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
    let grounds = unified.grounds();
    match grounds.iter().find(|ground| ground.usable(&ON_V2)) {
        Some(ground) if ground.delegated => {
            (CgroupLayout::V2Delegated(ground.path.clone()), Vec::new())
        }
        Some(_) => (CgroupLayout::V2Top, Vec::new()),
        // Its memory or pids may be on version 1, without the others: what is missing is then missing there.
        None if v1(&|option| ON_V2.contains(&option)) => (CgroupLayout::Closed, missing),
        None => {
            let lacking = grounds.first().map_or(ON_V2.to_vec(), |ground| ground.lacking(&ON_V2));
            (CgroupLayout::Closed, lacking)
        }
    }
}

/// Whether a hierarchy of version 1 that can be written to has a controller.
fn on_v1(mounts: &str, wanted: &dyn Fn(&str) -> bool) -> bool {
    mounts.lines().any(|line| {
        let mut fields = line.split(' ').skip(2);
        let (kind, options) = (fields.next(), fields.next().unwrap_or(""));
        // As in a container that may only look: nothing of it can be had.
        kind == Some("cgroup") && !options.starts_with("ro") && options.split(',').any(wanted)
    })
}

fn limits_cpu(mounts: &str, unified: Option<&Unified>) -> bool {
    // Where the warden's groups are is where it limits processors, too.
    const ALL: [&str; 3] = ["memory", "pids", "cpu"];
    on_v1(mounts, &|option| option == "cpu")
        || unified.is_some_and(|unified| {
            unified
                .grounds()
                .iter()
                .find(|ground| ground.usable(&ALL[..2]))
                .is_some_and(|g| g.usable(&ALL))
        })
}

/// As [`Host::processes`].
#[must_use]
pub fn processes() -> u64 {
    processes_among(&read("/proc/self/mounts"), Unified::find().as_ref())
}

fn processes_among(mounts: &str, unified: Option<&Unified>) -> u64 {
    let on_v1 = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (at, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup" && options.split(',').any(|option| option == "pids")).then(|| at.into())
    });
    let on_v2 = || {
        let grounds = unified?.grounds();
        grounds.into_iter().find(|ground| ground.usable(&["pids"])).map(|ground| ground.dir)
    };
    let group: Option<PathBuf> = on_v1.or_else(on_v2);
    let above = group.iter().flat_map(|dir| dir.ancestors()).map(|dir| dir.join("pids.max"));
    let kernel = ["pid_max", "threads-max"].map(|name| Path::new("/proc/sys/kernel").join(name));
    // A group without a limit says "max".
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

/// Landlock's version (landlock(7)): 4 has rules for TCP's ports (Linux 6.7), 6 scopes (6.12); 0 where it is off.
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
    fn a_container_is_told_by_the_marks_that_it_leaves_and_a_machine_made_of_an_image_is_none() {
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
        // As WSL 2 has it: a namespace of its own, and systemd's word for it.
        let windows = ("proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n");
        assert_eq!(
            among(&[windows, ("run/systemd/container", "wsl\n")], false),
            Surroundings::Wsl2
        );
    }

    #[test]
    fn which_cgroups_there_are_is_told_apart_with_what_is_missing() {
        let mounted = |options: &str, names: &[&str]| -> String {
            let line = |name: &&str| format!("cgroup /c/{name} cgroup {options},{name} 0 0\n");
            names.iter().map(line).collect()
        };
        let all = mounted("rw", &["memory", "pids", "freezer"]);
        let mounts = "31 22 0:26 / /nowhere rw - cgroup2 cgroup2 rw\n";
        let unified = Unified::parse(mounts, "0::/\n");
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
        // Nothing is there to be had.
        let missing = vec!["memory", "pids"];
        assert_eq!(cgroups("", unified.as_ref()), (CgroupLayout::Closed, missing));
        assert_eq!(cgroups("", None).0, CgroupLayout::None);
    }
}
