//! What is on this machine: privilege, Python, the installer, the state directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use layers::python;
use rustix::fs::{StatVfsMountFlags, statvfs};

use super::Finding;
use crate::worker::pressure::stalled_us;

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

pub(super) fn pressure() -> Finding {
    let what = "memory pressure";
    if stalled_us(Path::new("/proc")).is_some() {
        return Finding::ok(what, "told by the kernel");
    }
    Finding::degraded(
        what,
        "no /proc/pressure/memory",
        "caches shrink only when less than 5 % of the memory is available: boot with psi=1, on a kernel with CONFIG_PSI",
    )
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

/// What packages may expect of a system (manylinux).
pub(super) fn libraries() -> Finding {
    let what = "libraries";
    let lacking = layers::base::lacking();
    if lacking.is_empty() {
        return Finding::ok(what, "all that packages may expect");
    }
    Finding::degraded(
        what,
        format!("packages may expect {}, which this machine does not have", lacking.join(", ")),
        "install them where a package needs them, for example `apt install libgl1 libglib2.0-0`, then `wool base build`",
    )
}

/// None: no base was made yet, or this user may not look.
pub(super) fn bases(state: &Path) -> Vec<Finding> {
    let what = "bases";
    let damaged = layers::base::damaged(state).into_iter();
    let findings = damaged.map(|(base, gone)| {
        let root = state.join("layers").join(base.layer.as_path());
        let first = if gone.starts_with(&root) && root.exists() {
            format!("`rm -r {}`, then ", root.display())
        } else {
            String::new()
        };
        let found = format!("{} of Python {} is gone", gone.display(), base.version);
        let advice = format!(
            "make the base again: {first}`wool base build {}`; if that is another since, deploy the functions again",
            base.source.display()
        );
        Finding::missing(what, found, advice)
    });
    let mut findings: Vec<Finding> = findings.collect();
    let names = |kind: &str| fs::read_dir(state.join("layers").join(kind)).into_iter().flatten();
    if names("base").next().is_none() && names("code").next().is_some() {
        findings.push(Finding::missing(
            what,
            "none, and functions were deployed that run on one",
            "make it again with `wool base build`; if that is another since, deploy the functions again",
        ));
    }
    findings
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

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}
