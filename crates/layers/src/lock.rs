//! From requirements to an exact list: every distribution with its version and the hashes of its files.
//!
//! Requirements that are already such a list are kept as they are. When all of them name exact versions the installer's
//! cache is asked first, so that a second deployment needs no network; otherwise the index is asked, and the cache only
//! when it cannot be reached.

use std::process::Command;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::base::Base;
use crate::installer::{self, InstallerError};
use crate::project::{self, Project};
use crate::sources::Sources;
use crate::store::short;
use crate::uv::Uv;
use crate::{FileError, Progress, Store, requirements};

/// An exact list of distributions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// Names it: a hash of the text, the Python's minor version and the platform.
    pub id: String,
    /// A requirements file with hashes.
    pub text: String,
    /// Normalised names and versions, sorted.
    pub distributions: Vec<(String, String)>,
    /// Normalised names of the distributions that were asked for; empty when the list came already exact.
    pub direct: Vec<String>,
}

/// Why there is no lock.
#[derive(Debug, Error)]
pub enum LockError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The installer could not be started.
    #[error(transparent)]
    Start(#[from] InstallerError),
    /// A package that has no wheel for this Python and platform.
    #[error(
        "a package has no wheel for Python {python} on this machine, and building from source is not supported yet; pin a version that has one. uv says:\n{words}"
    )]
    NoWheel {
        /// The base's version.
        python: String,
        /// The installer's own words.
        words: String,
    },
    /// Unknown package, unsatisfiable versions.
    #[error("the requirements cannot be resolved for Python {python}; uv says:\n{words}")]
    Unsatisfiable {
        /// The base's version.
        python: String,
        /// The installer's own words.
        words: String,
    },
    /// The index cannot be reached, and the cache does not suffice.
    #[error(
        "the package index cannot be reached, and not all packages are in the cache; uv says:\n{words}"
    )]
    Unreachable {
        /// The installer's own words.
        words: String,
    },
}

/// Locks requirements for a base. None when there are none.
///
/// # Errors
/// When they cannot be resolved, with the installer's own words.
pub fn resolve(
    store: &Store,
    uv: &Uv,
    base: &Base,
    wanted: &[String],
    sources: &Sources,
    progress: &dyn Progress,
) -> Result<Option<Lock>, LockError> {
    if wanted.is_empty() {
        return Ok(None);
    }
    if wanted.iter().all(|requirement| requirements::pinned(requirement)) {
        let text = wanted.iter().map(|line| format!("{line}\n")).collect();
        return Ok(Some(Lock::of(text, Vec::new(), base)));
    }
    progress.step(&format!("resolving {} requirement(s)", wanted.len()));
    let text = compile(store, uv, base, wanted, sources, progress)?;
    let direct = wanted.iter().filter_map(|requirement| requirements::name(requirement)).collect();
    Ok(Some(Lock::of(text, direct, base)))
}

fn compile(
    store: &Store,
    uv: &Uv,
    base: &Base,
    wanted: &[String],
    sources: &Sources,
    progress: &dyn Progress,
) -> Result<String, LockError> {
    let project = Project::write(store, wanted, &sources.for_resolving())?;
    let command = |offline: bool| -> Result<Command, FileError> {
        let mut command = uv.command(store, base, &["pip", "compile"])?;
        command.args([
            "--generate-hashes",
            "--no-header",
            "--no-annotate",
            "--only-binary",
            ":all:",
        ]);
        if offline {
            command.arg("--offline");
        }
        command.arg(project::FILE).current_dir(project.path());
        Ok(command)
    };
    let exact = wanted.iter().all(|requirement| requirements::exact(requirement));
    if exact {
        let cached = installer::run(&mut command(true)?, false, &crate::Silent)?;
        if cached.status.success() {
            return Ok(cached.output);
        }
    }
    let finished = installer::run(&mut command(false)?, false, progress)?;
    if finished.status.success() {
        return Ok(finished.output);
    }
    let words = finished.words;
    if installer::unreachable(&words) {
        let cached = installer::run(&mut command(true)?, false, &crate::Silent)?;
        if cached.status.success() {
            progress.line("the package index cannot be reached; resolved from the cache");
            return Ok(cached.output);
        }
        return Err(LockError::Unreachable { words });
    }
    let python = base.version.clone();
    if installer::without_wheel(&words) {
        return Err(LockError::NoWheel { python, words });
    }
    Err(LockError::Unsatisfiable { python, words })
}

impl Lock {
    fn of(text: String, direct: Vec<String>, base: &Base) -> Self {
        let text = listed(&text);
        let mut distributions: Vec<(String, String)> =
            text.lines().filter_map(distribution).collect();
        distributions.sort();
        distributions.dedup();
        let mut hasher = blake3::Hasher::new();
        for part in [text.as_str(), base.minor(), std::env::consts::ARCH] {
            hasher.update(part.as_bytes()).update(&[0]);
        }
        Self { id: short(&hasher.finalize()), text, distributions, direct }
    }

    /// Its requirements, one a line, each with its hashes.
    #[must_use]
    pub fn requirements(&self) -> Vec<String> {
        requirements::logical_lines(&self.text)
    }
}

/// Requirements and their hashes only: an operator's `uv.toml` may have uv write its indexes into what it prints, and
/// an index's address may hold credentials.
fn listed(text: &str) -> String {
    let ours = |line: &&str| !line.starts_with(['-', '#']) && !line.trim().is_empty();
    text.lines().filter(ours).flat_map(|line| [line, "\n"]).collect()
}

/// Name and version of a line `name==version …` or `name @ url …`; none for continuation lines.
fn distribution(line: &str) -> Option<(String, String)> {
    let name = requirements::name(line)?;
    let version = match (line.split_once("=="), line.split_once(" @ ")) {
        (Some((_, rest)), _) => rest.trim_start(),
        (None, Some((_, url))) => url.trim_start(),
        (None, None) => return None,
    };
    Some((name, version.split_whitespace().next()?.trim_end_matches(';').to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_uv_prints_stays_out_of_the_lock() {
        let text = "--index-url https://me:hunter2@example.org/simple\n\nsix==1 \\\n    --hash=x\n";
        assert_eq!(listed(text), "six==1 \\\n    --hash=x\n");
    }

    #[test]
    fn distributions_are_read_from_a_lock() {
        assert_eq!(
            distribution("Python_dateutil==2.9.0 \\").unwrap(),
            ("python-dateutil".into(), "2.9.0".into())
        );
        assert_eq!(distribution("a==1 ; python_version > '3' --hash=x").unwrap().1, "1");
        assert_eq!(distribution("    --hash=sha256:00 \\"), None);
        assert_eq!(
            distribution("a @ https://example.org/a.whl \\").unwrap().1,
            "https://example.org/a.whl"
        );
    }
}
