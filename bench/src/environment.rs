//! Where a run was made: `env.json`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::backed::{self, FirstTouch};
use crate::baselines;
use crate::meminfo::meminfo;
use crate::sample::median;

/// Everything about the machine that may decide about a number.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Environment {
    /// When, UTC.
    pub(crate) when: String,
    /// The machine's own name.
    pub(crate) host: String,
    /// Processors.
    pub(crate) cores: usize,
    /// Their model.
    pub(crate) processor: String,
    /// Bytes of memory.
    pub(crate) memory_bytes: u64,
    /// Release and version of the kernel.
    pub(crate) kernel: String,
    /// `v1`, `hybrid`, `v2` or `none`.
    pub(crate) cgroups: String,
    /// Which hierarchies are mounted, with their options.
    pub(crate) cgroup_mounts: Vec<String>,
    /// `favordynmods` makes rare attaches fast and sticks until reboot.
    pub(crate) favordynmods: FavorDynMods,
    /// Whether, and as far as the machine tells, in what it is virtual.
    pub(crate) virtualisation: String,
    /// The base layer's Python.
    pub(crate) python: String,
    /// The commit that was measured; `-dirty` when the checkout had changes.
    pub(crate) commit: String,
    /// Which baselines, in their own words.
    pub(crate) baselines: BTreeMap<String, String>,
    /// What free memory cost at its first touch, before the run; `None` in a quick run, which leaves it as it is.
    pub(crate) first_touch: Option<FirstTouch>,
    /// Load averages when the run began.
    pub(crate) load_average: String,
    /// Processors busy when nothing of ours ran, measured.
    pub(crate) idle_busy: f64,
}

/// What is known about `favordynmods`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FavorDynMods {
    /// Whether a hierarchy has it now.
    pub(crate) now: bool,
    /// Milliseconds that moving a process into a cgroup took, each after 300 ms without any.
    pub(crate) rare_attach_ms: Vec<f64>,
    /// What follows for the time before.
    pub(crate) before: &'static str,
}

impl Environment {
    /// Looks around, and touches the free memory unless the run is a quick one. Takes some seconds, in which nothing else of
    /// ours runs.
    pub(crate) async fn look(python: &str, quick: bool) -> Self {
        let idle_busy = crate::cpu::idle(Duration::from_secs(3)).await.unwrap_or(f64::NAN);
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let uname = rustix::system::uname();
        let mounts = cgroup_mounts(&read("/proc/mounts"));
        let programs = [("Docker", "dockerd"), ("runc", "runc"), ("bubblewrap", "bwrap")];
        let versions = programs
            .iter()
            .filter_map(|(name, program)| Some(((*name).to_owned(), baselines::version(program)?)));
        Self {
            when: humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string(),
            host: uname.nodename().to_string_lossy().into_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: field(&read("/proc/cpuinfo"), "model name"),
            memory_bytes: meminfo("MemTotal").unwrap_or(0),
            kernel: format!(
                "{} {}",
                uname.release().to_string_lossy(),
                uname.version().to_string_lossy()
            ),
            cgroups: layout(&mounts).to_owned(),
            favordynmods: FavorDynMods::probe(&mounts),
            cgroup_mounts: mounts,
            virtualisation: virtualisation(&read("/proc/cpuinfo")),
            python: python.to_owned(),
            commit: commit(),
            baselines: versions.collect(),
            load_average: read("/proc/loadavg").trim().to_owned(),
            idle_busy,
            first_touch: (!quick).then(backed::touch),
        }
    }

    /// What about this machine a reader has to know before the numbers.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.idle_busy > 0.05 {
            warnings.push(format!(
                "the machine was not quiet: {:.0} % of a processor was busy before the run; run it again when nothing else runs",
                self.idle_busy * 100.0
            ));
        }
        if self.favordynmods.now || self.favordynmods.before.starts_with("likely") {
            warnings.push("favordynmods is or was in effect: rare cgroup attaches are faster than on a fresh machine; reboot and run again".to_owned());
        }
        if self.commit.ends_with("-dirty") {
            warnings.push("the checkout had changes that are in no commit".to_owned());
        }
        warnings
    }
}

impl FavorDynMods {
    fn probe(mounts: &[String]) -> Self {
        let now = mounts.iter().any(|mount| mount.contains("favordynmods"));
        let rare_attach_ms = rare_attaches(mounts);
        let before = match median(&rare_attach_ms) {
            ms if ms.is_nan() => "not known: no cgroup can be made",
            ms if ms > 1.0 => "not in effect: a rare attach still waits for the kernel",
            _ if mounts.iter().any(|mount| mount.contains("freezer")) => {
                "likely in effect: a rare attach does not wait"
            }
            _ => "not known: a rare attach does not wait, which may be this kernel",
        };
        Self { now, rare_attach_ms, before }
    }
}

/// Moves a sleeping process into a cgroup and back, rarely.
fn rare_attaches(mounts: &[String]) -> Vec<f64> {
    let at = mounts
        .iter()
        .find(|m| m.contains("freezer"))
        .or_else(|| mounts.iter().find(|m| m.starts_with("cgroup2")));
    let Some(top) = at.and_then(|mount| mount.split(' ').nth(1)) else {
        return Vec::new();
    };
    let dir = Path::new(top).join(format!("bench-probe-{}", std::process::id()));
    let (Ok(()), Ok(mut sleeper)) = (fs::create_dir(&dir), Command::new("sleep").arg("60").spawn())
    else {
        return Vec::new();
    };
    let home = Path::new(top).join("cgroup.procs");
    let mut times = Vec::new();
    for number in 0..6 {
        std::thread::sleep(Duration::from_millis(300));
        let to = if number % 2 == 0 { dir.join("cgroup.procs") } else { home.clone() };
        let began = Instant::now();
        if fs::write(to, sleeper.id().to_string()).is_ok() {
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    let _ = sleeper.kill();
    let _ = sleeper.wait();
    let _ = fs::remove_dir(&dir);
    times
}

fn cgroup_mounts(mounts: &str) -> Vec<String> {
    let parts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let cgroups = parts.filter(|f| f.len() > 3 && f[2].starts_with("cgroup"));
    cgroups.map(|f| format!("{} {} {}", f[2], f[1], f[3])).collect()
}

fn layout(mounts: &[String]) -> &'static str {
    let v1 = mounts.iter().any(|mount| mount.starts_with("cgroup "));
    let v2 = mounts.iter().any(|mount| mount.starts_with("cgroup2 "));
    match (v1, v2) {
        (true, true) => "hybrid",
        (true, false) => "v1",
        (false, true) => "v2",
        (false, false) => "none",
    }
}

fn virtualisation(cpuinfo: &str) -> String {
    let said = Command::new("systemd-detect-virt").arg("--vm").output().ok();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let flagged =
        cpuinfo.lines().any(|line| line.starts_with("flags") && line.contains(" hypervisor"));
    match (said.filter(|word| !word.is_empty() && word != "none"), flagged) {
        (Some(word), _) => format!("a virtual machine ({word})"),
        (None, true) => "a virtual machine (the processor says so)".to_owned(),
        (None, false) => "none that the processor tells of".to_owned(),
    }
}

fn field(text: &str, name: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_once(':'))
        .map_or_else(String::new, |(_, v)| v.trim().to_owned())
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "HEAD"]) else {
        return "unknown".to_owned();
    };
    // Runs are evidence, not what is measured.
    let changed = git(&["status", "--porcelain", "--", ":!bench/runs"]);
    if changed.is_some_and(|text| text.is_empty()) { commit } else { format!("{commit}-dirty") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hybrid_layout_is_told_from_its_mounts() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/freezer cgroup rw,freezer 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw,favordynmods 0 0\n";
        let found = cgroup_mounts(mounts);
        assert_eq!(found.len(), 2);
        assert_eq!(layout(&found), "hybrid");
        assert_eq!(layout(&found[1..]), "v2");
        assert_eq!(layout(&[]), "none");
    }
}
