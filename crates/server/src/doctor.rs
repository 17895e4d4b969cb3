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

use crate::config::{Config, Flags};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// All there.
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
    /// How bad it is.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// What to do about it; empty when nothing is needed.
    pub advice: String,
}

impl Finding {
    /// All is well.
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
    findings.extend([checks::python(), checks::installer(state), checks::state_directory(state)]);
    findings
}

/// Prints the findings.
///
/// # Errors
/// When something is missing that the worker needs.
pub fn doctor(state: &Path, microvm: bool, json: bool) -> Result<()> {
    let config = Config::read(&Flags::default());
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
    fn advice_stands_below_its_finding() {
        let text = render(&[Finding::ok("a", "1"), Finding::missing("long", "none", "install it")]);
        assert_eq!(text, "ok        a     1\nmissing   long  none\n                → install it\n");
    }
}
