//! `wool doctor`: what this machine can do, what is missing, and what to do about it.
//!
//! It only looks. Each finding is plain data; how bad the worst one is decides the exit status.

mod checks;
mod host;
mod machines;
mod settings;

use std::io::Write as _;
use std::path::Path;

use anyhow::{Result, bail};
use serde::Serialize;
use sys::probe::Host;

use crate::config::{self, Config, Flags};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// The machine has it all.
    Ok,
    /// It works, with less: slower, or a limit is not enforced.
    Degraded,
    /// It does not work without.
    Missing,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub what: String,
    /// How much is missing.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// What to do about it; empty when nothing is needed.
    pub advice: String,
}

impl Finding {
    /// A check that found all it needs.
    pub fn ok(what: &str, found: impl Into<String>) -> Self {
        Self { what: what.to_owned(), level: Level::Ok, found: found.into(), advice: String::new() }
    }

    /// It works, with less.
    pub fn degraded(what: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            what: what.to_owned(),
            level: Level::Degraded,
            found: found.into(),
            advice: advice.into(),
        }
    }

    /// It does not work without.
    pub fn missing(what: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            what: what.to_owned(),
            level: Level::Missing,
            found: found.into(),
            advice: advice.into(),
        }
    }
}

/// Looks at this machine and at a state directory, for a worker with these settings; none: they cannot be read.
#[must_use]
pub fn examine(state: &Path, config: Option<&Config>) -> Vec<Finding> {
    let host = Host::probe();
    let mut findings = vec![host::kernel(&host), host::surroundings(&host), checks::privilege()];
    findings.extend([
        host::user_namespaces(&host),
        host::cgroups(&host),
        checks::pressure(),
        host::confinement(&host),
        host::kvm(host.kvm, vmm::HAS_MACHINES),
    ]);
    findings.extend(config.into_iter().flat_map(|config| settings::all(&host, config)));
    findings.extend([checks::python(), checks::libraries()]);
    findings.extend(checks::bases(state));
    findings.extend([checks::installer(state), checks::state_directory(state)]);
    findings
}

/// Prints the findings.
///
/// # Errors
/// When something is missing that the worker needs.
pub fn doctor(state: &Path, microvm: bool, json: bool) -> Result<()> {
    let known = config::refuse_unknown(std::env::vars_os().map(|(name, _)| name));
    let config = known.and_then(|()| Config::read(&Flags::default()));
    let mut findings = examine(state, config.as_ref().ok());
    if microvm {
        findings.extend(machines::all(state));
    }
    if let Err(error) = config {
        findings.push(Finding::missing("settings", error.to_string(), "put this right"));
    }
    let text =
        if json { serde_json::to_string_pretty(&findings)? + "\n" } else { render(&findings) };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    let missing = findings.iter().filter(|finding| finding.level == Level::Missing).count();
    if missing > 0 {
        bail!("{missing} of these have to be put right before functions can run");
    }
    Ok(())
}

fn render(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.what.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for Finding { what, level, found, advice } in findings {
        let mark = match level {
            Level::Ok => "ok      ",
            Level::Degraded => "degraded",
            Level::Missing => "missing ",
        };
        out.push_str(&format!("{mark}  {what:width$}  {found}\n"));
        if !advice.is_empty() {
            out.push_str(&format!("{:10}{:width$}  → {advice}\n", "", ""));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_well_comes_with_advice() {
        let dir = tempfile::tempdir().unwrap();
        for finding in examine(dir.path(), Some(&Config::default())) {
            assert_eq!(finding.level == Level::Ok, finding.advice.is_empty(), "{finding:?}");
            assert!(!finding.found.is_empty(), "{finding:?}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "looking changes nothing");
    }

    #[test]
    fn a_base_of_which_something_is_gone_is_told_with_what_makes_it_again() {
        let dir = tempfile::tempdir().unwrap();
        let bases = dir.path().join("layers/base");
        let lay = |path: &str| {
            let path = bases.join("abc").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        };
        lay("usr/bin/python3");
        lay("usr/lib/libc.so.6");
        let description = serde_json::json!({
            "id": "abc", "version": "3.12.1", "layer": "base/abc", "interpreter": "/usr/bin/python3",
            "source": "/opt/python3.12", "bytes": 1, "created": 1, "missing": [], "format": 4,
            "libraries": "usr/lib", "loader": null,
        });
        std::fs::write(bases.join("abc.json"), description.to_string()).unwrap();
        let found = || checks::bases(dir.path());
        assert_eq!(found(), []);
        std::fs::remove_file(bases.join("abc/usr/bin/python3")).unwrap();
        let [finding] = &found()[..] else { panic!("{:?}", found()) };
        assert_eq!(finding.level, Level::Missing);
        assert!(finding.found.contains("abc/usr/bin/python3"), "{finding:?}");
        let way = format!("`rm -r {}`, then `wool base build /opt/", bases.join("abc").display());
        assert!(finding.advice.contains(&way), "{finding:?}");
        std::fs::remove_dir_all(bases.join("abc")).unwrap();
        let [finding] = &found()[..] else { panic!("{:?}", found()) };
        assert!(!finding.advice.contains("rm -r"), "{finding:?}");
        assert!(finding.advice.contains("`wool base build /opt/python3.12`"), "{finding:?}");
        // Nothing says any more that it was there, but for what runs on it.
        std::fs::remove_file(bases.join("abc.json")).unwrap();
        assert_eq!(found(), []);
        std::fs::create_dir_all(dir.path().join("layers/code/def")).unwrap();
        let [finding] = &found()[..] else { panic!("{:?}", found()) };
        assert!(finding.advice.contains("`wool base build`"), "{finding:?}");
    }

    #[test]
    fn advice_stands_below_its_finding() {
        let text = render(&[Finding::ok("a", "1"), Finding::missing("long", "none", "install it")]);
        assert_eq!(text, "ok        a     1\nmissing   long  none\n                → install it\n");
    }
}
