//! The single looks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use layers::python;
use rustix::fs::{StatVfsMountFlags, statvfs};

use super::Finding;

/// Oldest kernel that is supported.
const OLDEST: (u32, u32) = (5, 15);

/// The first kernel whose mount trees can be put together without being attached.
const DETACHED: (u32, u32) = (6, 15);

pub(super) fn kernel() -> Finding {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    judge_kernel(&release)
}

fn judge_kernel(release: &str) -> Finding {
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let found = format!("Linux {release}");
    if version < OLDEST {
        Finding::missing("kernel", found, format!("boot Linux {}.{} or newer", OLDEST.0, OLDEST.1))
    } else if version < DETACHED {
        let advice = format!(
            "nothing has to be done: root file systems are staged instead of detached, which takes some µs more; Linux {}.{} does better",
            DETACHED.0, DETACHED.1
        );
        Finding::degraded("kernel", found, advice)
    } else {
        Finding::ok("kernel", found)
    }
}

pub(super) fn privilege() -> Finding {
    let what = "privilege";
    if rustix::process::geteuid().is_root() {
        return Finding::ok(what, "root");
    }
    match on_path("sudo") {
        Some(path) => {
            Finding::ok(what, format!("no root; {} can start the warden", path.display()))
        }
        None => Finding::missing(
            what,
            "neither root nor sudo",
            "run `wool up` as root: the warden makes namespaces and mounts",
        ),
    }
}

pub(super) fn user_namespaces() -> Finding {
    let what = "user namespaces";
    match fs::read_to_string("/proc/sys/user/max_user_namespaces")
        .map(|text| text.trim().parse::<u64>())
    {
        Ok(Ok(0)) => {
            Finding::missing(what, "none allowed", "sysctl -w user.max_user_namespaces=65536")
        }
        Ok(Ok(most)) if most < 4096 => Finding::degraded(
            what,
            format!("{most} allowed"),
            "more instances need more: sysctl -w user.max_user_namespaces=65536",
        ),
        Ok(Ok(most)) => Finding::ok(what, format!("{most} allowed")),
        _ => Finding::missing(what, "this kernel has none", "boot a kernel with CONFIG_USER_NS"),
    }
}

pub(super) fn cgroups() -> Finding {
    let what = "cgroups";
    let unified = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers");
    if let Ok(controllers) = unified {
        let lacking: Vec<&str> = ["cpu", "memory", "pids"]
            .into_iter()
            .filter(|name| !controllers.split_whitespace().any(|c| c == *name))
            .collect();
        return match lacking.as_slice() {
            [] => Finding::ok(what, "version 2 with cpu, memory and pids"),
            _ => Finding::degraded(
                what,
                format!("version 2 without {}", lacking.join(", ")),
                "these limits are not enforced; run the worker where the controllers are delegated, for example by its systemd unit",
            ),
        };
    }
    let lacking: Vec<&str> = ["memory", "pids", "freezer"]
        .into_iter()
        .filter(|name| !Path::new("/sys/fs/cgroup").join(name).join("tasks").exists())
        .collect();
    match lacking.as_slice() {
        [] => Finding::ok(what, "version 1 with memory, pids and freezer"),
        _ => Finding::degraded(
            what,
            format!("version 1 without {}", lacking.join(", ")),
            "limits are not enforced and instances not paused; mount the cgroup file systems",
        ),
    }
}

pub(super) fn python() -> Finding {
    let what = "Python";
    let found: Vec<String> =
        python::discover().map(|p| format!("{} ({})", p.version, p.executable.display())).collect();
    match found.as_slice() {
        [] => Finding::missing(
            what,
            "none from 3.11 up",
            "install one, for example `apt install python3`, or `uv python install 3.12`",
        ),
        _ => Finding::ok(what, found.join(", ")),
    }
}

pub(super) fn installer(state: &Path) -> Finding {
    let what = "uv";
    let own = fs::read_dir(state.join("uv/bin"))
        .ok()
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    if let Some(path) = on_path("uv").or_else(|| own.max()) {
        return Finding::ok(what, path.display().to_string());
    }
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "--version"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match pip.status() {
        Ok(status) if status.success() => {
            Finding::ok(what, "not here; fetched with pip when a function first needs packages")
        }
        _ => Finding::degraded(
            what,
            "neither uv nor pip",
            "functions without packages work; for others put uv on PATH or install pip (`apt install python3-pip`)",
        ),
    }
}

pub(super) fn state_directory(state: &Path) -> Finding {
    let what = "state directory";
    // It may not be there yet: then its file system is that of the nearest directory that is.
    let Some(there) = state.ancestors().find(|path| path.is_dir()) else {
        return Finding::missing(
            what,
            format!("{} cannot be there", state.display()),
            "choose another with --state DIR",
        );
    };
    let shown = state.display().to_string();
    match statvfs(there) {
        Ok(stat) if stat.f_flag.contains(StatVfsMountFlags::NOEXEC) => Finding::missing(
            what,
            format!("{shown} is mounted noexec"),
            "interpreters must run from there: choose another with --state DIR, or remount it with exec",
        ),
        Ok(stat) if stat.f_flag.contains(StatVfsMountFlags::RDONLY) => Finding::missing(
            what,
            format!("{shown} is read-only"),
            "choose another with --state DIR",
        ),
        Ok(stat) => {
            let free = stat.f_bavail.saturating_mul(stat.f_frsize);
            let found = format!("{shown}, {} MB free", free / 1_000_000);
            if free < 1 << 30 {
                Finding::degraded(
                    what,
                    found,
                    "a base and a few packages take about a gigabyte: make room",
                )
            } else {
                Finding::ok(what, found)
            }
        }
        Err(error) => {
            Finding::missing(what, format!("{shown}: {error}"), "choose another with --state DIR")
        }
    }
}

pub(super) fn kvm() -> Finding {
    let what = "KVM";
    match fs::OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        Ok(_) => Finding::ok(what, "/dev/kvm can be used"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Finding::degraded(
            what,
            "no /dev/kvm",
            "functions run in containers; micro-VMs need virtualisation switched on",
        ),
        Err(error) => Finding::degraded(
            what,
            format!("/dev/kvm: {error}"),
            "functions run in containers; for micro-VMs join the group kvm",
        ),
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn a_kernel_is_judged_by_its_release() {
        assert_eq!(judge_kernel("5.10.0-28-amd64").level, Level::Missing);
        assert_eq!(judge_kernel("5.15.0").level, Level::Degraded);
        assert_eq!(judge_kernel("6.1.0-18-amd64").level, Level::Degraded);
        assert_eq!(judge_kernel("6.18.44-x").level, Level::Ok);
        assert_eq!(judge_kernel("nonsense").level, Level::Missing);
    }
}
