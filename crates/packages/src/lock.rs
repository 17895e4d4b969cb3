//! From requirements to an exact list: every distribution with its version and the hashes of its files.
//!
//! A lock that another tool wrote (`pylock.toml`) is kept as it is. A requirements file is resolved whatever it pins: it may
//! lack what its packages need, contradict itself, or be limited elsewhere. When all of them name exact versions the installer's
//! cache is asked first, so that a second deployment needs no network; otherwise the index is asked, and the cache only
//! when it cannot be reached.
//!
//! Hashes that come with a requirement are the only ones that count for its package. Where each requirement has one,
//! nothing is installed without: what they need beside that must be listed, too.
//!
//! What has a wheel is taken as a wheel. When there is no solution with wheels only, and building is allowed, those
//! that the installer says have none are built ([`crate::sdist`]): what a source requires is known only then. The lock
//! names the source, by its hash, and not the wheel that was built of it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use layers::base::Base;
use layers::child::Unfinished;
use layers::store::short;
use layers::{FileError, Progress, Silent, Store};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use toml::{Table, Value};

use crate::build_error::{BuildError, SandboxError};
use crate::indexes::NotAllowed;
use crate::installer::{Installer, Site};
use crate::project::{self, Project, stub};
use crate::requirements;
use crate::sources::Sources;
use crate::uv::words::{unreachable, wheelless, without_source, without_wheel};
use crate::wheel_file::Metadata;

/// An exact list of distributions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// Names it: a hash of the text, the Python's minor version and the platform.
    pub id: String,
    /// A requirements file with hashes.
    pub text: String,
    /// Normalised names and versions, sorted.
    pub distributions: Vec<(String, String)>,
    /// Normalised names of the distributions that were asked for; empty when the list came already exact, with hashes.
    pub direct: Vec<String>,
}

/// Why there is no lock.
#[derive(Debug, Error)]
pub enum LockError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The installer could not be started, or was ended.
    #[error(transparent)]
    Start(#[from] Unfinished),
    /// What the operator has not allowed.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    /// A package that has no wheel for this Python and platform.
    #[error(
        "a package has no wheel for Python {python} on this machine, and building from source is off (the setting `build_from_source`); pin a version that has one. uv says:\n{words}"
    )]
    NoWheel {
        /// The base's version.
        python: String,
        /// The installer's own words.
        words: String,
    },
    /// A package that has neither a wheel for this Python and platform nor a source to build one from.
    #[error(
        "{} has no wheel for Python {python} on this machine, and no source to build one from: choose another version or another package, or limit the requirement to other systems by a marker (`; sys_platform == 'win32'`). uv says:\n{words}", names.join(", ")
    )]
    NoSource {
        /// Their normalised names.
        names: Vec<String>,
        /// The base's version.
        python: String,
        /// The installer's own words.
        words: String,
    },
    /// A package without a wheel that could not be built.
    #[error("{name} {version} has no wheel for this Python and machine, and building it failed")]
    Build {
        /// Its normalised name.
        name: String,
        /// The version that was chosen.
        version: String,
        /// The error of the build.
        #[source]
        source: BuildError,
    },
    /// A hash that came with a requirement, of no file that the index has.
    #[error(
        "no file of {name} that the index has is one of those whose hashes the requirements name: correct the hashes, or leave them out"
    )]
    Hash {
        /// Its normalised name.
        name: String,
    },
    /// Packages without a hash, where each of those that need them has one.
    #[error(
        "each of the requirements has a hash, and what they need beside these has none: {}; list that with its hashes, too, as `uv pip compile --generate-hashes` writes all of it, or leave out all hashes", names.join(", ")
    )]
    Unhashed {
        /// Their normalised names.
        names: Vec<String>,
    },
    /// What uv cannot read, and says no more of.
    #[error(
        "one of these is no requirement as PEP 508 has it, perhaps for its marker: {}", requirements.join(", ")
    )]
    Malformed {
        /// All that were asked for.
        requirements: Vec<String>,
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
    installer: &Installer,
    base: &Base,
    wanted: &[String],
    sources: &Sources,
    progress: &dyn Progress,
) -> Result<Option<Lock>, LockError> {
    if wanted.is_empty() {
        return Ok(None);
    }
    installer.indexes().admit(wanted, sources)?;
    progress.step(&format!("resolving {} requirement(s)", wanted.len()));
    let given = Given::of(wanted, sources);
    let resolver = Resolver { store, installer, base, wanted, sources, given: &given, progress };
    let text = resolver.resolve()?;
    let text = given.kept_in(text)?;
    Ok(Some(Lock::of(&text, given.asked_for(wanted), base)))
}

/// The normalised names of the distributions that requirements ask for. None where each is exact and
/// has hashes: a whole list does not say what it was made for.
#[must_use]
pub fn asked_for(wanted: &[String]) -> Vec<String> {
    Given::of(wanted, &Sources::default()).asked_for(wanted)
}

/// Takes what another tool has locked as it is: each line names one version and the hashes of its files. None when
/// there are none.
///
/// # Errors
/// When one of them, or where they come from, is not allowed.
pub fn keep(
    installer: &Installer,
    base: &Base,
    locked: &[String],
    sources: &Sources,
) -> Result<Option<Lock>, LockError> {
    if locked.is_empty() {
        return Ok(None);
    }
    installer.indexes().admit(locked, sources)?;
    let text: String = locked.iter().map(|line| format!("{line}\n")).collect();
    Ok(Some(Lock::of(&text, Vec::new(), base)))
}

/// The hashes that came with requirements or with constraints.
struct Given<'a> {
    /// By the normalised name of what they are of; each `--hash=KIND:HEX`.
    hashes: BTreeMap<String, BTreeSet<&'a str>>,
    /// Whether each requirement has some.
    for_all: bool,
}

impl<'a> Given<'a> {
    fn of(wanted: &'a [String], sources: &'a Sources) -> Self {
        let mut hashes = BTreeMap::<String, BTreeSet<&str>>::new();
        let lines = wanted.iter().map(String::as_str).chain(sources.requirements());
        for line in lines.filter(|line| line.contains("--hash=")) {
            let name = requirements::name(line).unwrap_or_default();
            hashes.entry(name).or_default().extend(line.split(' ').filter(is_hash));
        }
        let has =
            |line: &String| requirements::name(line).is_some_and(|name| hashes.contains_key(&name));
        let for_all = wanted.iter().all(has);
        Self { hashes, for_all }
    }

    fn asked_for(&self, wanted: &[String]) -> Vec<String> {
        match self.for_all && wanted.iter().all(|line| requirements::exact(line)) {
            true => Vec::new(),
            false => wanted.iter().filter_map(|line| requirements::name(line)).collect(),
        }
    }

    /// Those of one distribution, as `KIND:HEX`; none when it came without.
    fn of_one(&self, name: &str) -> Option<Vec<&'a str>> {
        let hashes = self.hashes.get(name)?.iter();
        Some(hashes.filter_map(|word| word.strip_prefix("--hash=")).collect())
    }

    /// A lock in which what came with hashes keeps no others.
    fn kept_in(&self, text: String) -> Result<String, LockError> {
        if self.hashes.is_empty() {
            return Ok(text);
        }
        let lines = requirements::logical_lines(&listed(&text));
        let unhashed = lines.iter().filter_map(|line| requirements::name(line));
        let unhashed: Vec<_> = unhashed.filter(|name| !self.hashes.contains_key(name)).collect();
        if self.for_all && !unhashed.is_empty() {
            return Err(LockError::Unhashed { names: unhashed });
        }
        with_hashes_of(&self.hashes, &lines)
    }
}

fn is_hash(word: &&str) -> bool {
    word.starts_with("--hash=")
}

/// The kind of a hash, as in `--hash=sha256:…`.
fn kind(hash: &str) -> &str {
    hash.split(':').next().unwrap_or_default()
}

fn with_hashes_of(
    given: &BTreeMap<String, BTreeSet<&str>>,
    lines: &[String],
) -> Result<String, LockError> {
    let mut kept = String::new();
    for line in lines {
        let name = requirements::name(line).unwrap_or_default();
        let (mut hashes, words): (Vec<&str>, Vec<&str>) = line.split(' ').partition(is_hash);
        if let Some(given) = given.get(&name) {
            // Those of a kind that the index does not tell are compared with the file.
            let told = |hash: &&&str| hashes.iter().any(|other| kind(other) == kind(hash));
            let others: Vec<&str> = given.iter().filter(|hash| !told(hash)).copied().collect();
            hashes.retain(|hash| given.contains(hash));
            hashes.extend(others);
            if hashes.is_empty() {
                return Err(LockError::Hash { name });
            }
        }
        kept.push_str(&words.join(" "));
        hashes.into_iter().for_each(|hash| kept.extend([" \\\n    ", hash]));
        kept.push('\n');
    }
    Ok(kept)
}

/// Most distributions of one lock that are built.
const MOST_BUILT: usize = 64;

struct Resolver<'a> {
    store: &'a Store,
    installer: &'a Installer,
    base: &'a Base,
    wanted: &'a [String],
    sources: &'a Sources,
    given: &'a Given<'a>,
    progress: &'a dyn Progress,
}

/// What is taken from source: by name, and once a version was chosen and built, with what that requires.
type FromSource = BTreeMap<String, Option<(String, Metadata)>>;

impl Resolver<'_> {
    fn resolve(&self) -> Result<String, LockError> {
        let mut from_source = FromSource::new();
        let mut lacking = String::new();
        loop {
            match self.compile(&from_source) {
                Ok(text) => {
                    let chosen: BTreeMap<String, String> =
                        text.lines().filter_map(distribution).collect();
                    // Each is chosen as if it required nothing, and stays at that version once its needs are known.
                    let next = from_source
                        .iter_mut()
                        .find(|(name, known)| known.is_none() && chosen.contains_key(*name));
                    let Some((name, known)) = next else { return Ok(text) };
                    let version = chosen[name].clone();
                    *known = Some((version.clone(), self.build(name, &version)?));
                }
                Err(LockError::NoWheel { python, words }) => {
                    let more: BTreeSet<String> = wheelless(&words)
                        .into_iter()
                        .filter(|name| !from_source.contains_key(name))
                        .collect();
                    let most = from_source.len() + more.len() > MOST_BUILT;
                    if self.installer.builder().is_none() || more.is_empty() || most {
                        return Err(LockError::NoWheel { python, words });
                    }
                    from_source.extend(more.into_iter().map(|name| (name, None)));
                    lacking = words;
                }
                Err(LockError::Unsatisfiable { python, words }) if without_source(&words) => {
                    // Before it was asked for their sources, uv told for which system they have wheels.
                    let sourceless =
                        from_source.keys().filter(|name| words.contains(&***name)).cloned();
                    let names: Vec<String> = sourceless.collect();
                    if names.is_empty() {
                        return Err(LockError::Unsatisfiable { python, words });
                    }
                    return Err(LockError::NoSource { names, python, words: lacking });
                }
                Err(other) => return Err(other),
            }
        }
    }

    fn build(&self, name: &str, version: &str) -> Result<Metadata, LockError> {
        let Self { store, installer, base, sources, progress, .. } = *self;
        let site = Site { store, installer, base, sources, progress };
        let failed = |source| LockError::Build {
            name: name.to_owned(),
            version: version.to_owned(),
            source,
        };
        let builder =
            installer.builder().ok_or(SandboxError::Stopping).map_err(|e| failed(e.into()))?;
        let hashes = self.given.of_one(name);
        let built = builder.wheel(site, name, version, hashes.as_deref()).map_err(failed)?;
        Ok(built.metadata)
    }

    fn compile(&self, from_source: &FromSource) -> Result<String, LockError> {
        let Self { store, installer, base, wanted, progress, .. } = *self;
        let settings = with_metadata(self.sources.for_resolving(), from_source);
        let project = Project::write(store, wanted, &settings)?;
        let command = |offline: bool| -> Result<Command, FileError> {
            let mut command = installer.command(store, base, &["pip", "compile"])?;
            command.args(["--generate-hashes", "--no-header", "--no-annotate"]);
            // Of what is named after that uv has metadata from us, and so has nothing to run.
            command.args(["--only-binary", ":all:"]);
            command.args(from_source.keys().flat_map(|name| ["--no-binary", name]));
            command.args(offline.then_some("--offline"));
            command.arg(project::FILE).current_dir(project.path());
            Ok(command)
        };
        let exact = wanted.iter().all(|requirement| requirements::exact(requirement));
        if exact {
            let cached = installer.run(&mut command(true)?, &Silent)?;
            if cached.status.success() {
                return Ok(cached.output);
            }
        }
        // What it says of missing wheels is no news where they are built.
        let first = installer.builder().is_some() && from_source.is_empty();
        let told = if first { &Silent } else { progress };
        let finished = installer.run(&mut command(false)?, told)?;
        if finished.status.success() {
            return Ok(finished.output);
        }
        let (mut words, python) = (finished.words, base.version.clone());
        if unreachable(&words) {
            let cached = installer.run(&mut command(true)?, &Silent)?;
            if cached.status.success() {
                progress.line("the package index cannot be reached; resolved from the cache");
                return Ok(cached.output);
            }
            if !without_wheel(&cached.words) {
                return Err(LockError::Unreachable { words });
            }
            words = cached.words;
        }
        if without_wheel(&words) {
            return Err(LockError::NoWheel { python, words });
        }
        // The project that says what is wanted would itself be built to learn that.
        if words.trim_end().ends_with("Building source distributions is disabled") {
            return Err(LockError::Malformed { requirements: wanted.to_vec() });
        }
        Err(LockError::Unsatisfiable { python, words })
    }
}

/// Settings that say of each what it requires, for every version, so that uv never looks into a source; and which
/// version that is true of.
fn with_metadata(mut settings: Table, from_source: &FromSource) -> Table {
    let mut metadata = Vec::new();
    let mut constraints = Vec::new();
    for (name, known) in from_source {
        let mut entry = stub(name);
        if let (Value::Table(entry), Some((version, known))) = (&mut entry, known) {
            let texts =
                |all: &[String]| Value::Array(all.iter().cloned().map(Value::String).collect());
            entry.insert("requires-dist".to_owned(), texts(&known.requires));
            entry.insert("provides-extra".to_owned(), texts(&known.extras));
            if let Some(python) = &known.python {
                entry.insert("requires-python".to_owned(), Value::String(python.clone()));
            }
            constraints.push(Value::String(format!("{name}=={version}")));
        }
        metadata.push(entry);
    }
    for (key, more) in [("dependency-metadata", metadata), ("constraint-dependencies", constraints)]
    {
        let list = settings.entry(key).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(list) = list {
            list.extend(more);
        }
    }
    settings
}

impl Lock {
    /// A lock of an earlier deploy, for the same minor version of Python: its text, and the
    /// distributions that were asked for.
    #[must_use]
    pub fn of(text: &str, direct: Vec<String>, base: &Base) -> Self {
        let text = listed(text);
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
pub(crate) fn listed(text: &str) -> String {
    let ours = |line: &&str| !line.starts_with(['-', '#']) && !line.trim().is_empty();
    text.lines().filter(ours).flat_map(|line| [line, "\n"]).collect()
}

/// Name and version of a line `name==version …` or `name @ url …`; none for continuation lines.
pub(crate) fn distribution(line: &str) -> Option<(String, String)> {
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
    fn hashes_that_were_given_are_the_only_ones() {
        let text = "idna==3 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\nsix==1 \\\n    --hash=sha256:cc\n";
        let kept = |wanted: &[&str], constraints: &[&str]| {
            let owned = |all: &[&str]| all.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();
            let mut sources = Sources::default();
            sources.constrain(owned(constraints));
            let kept = Given::of(&owned(wanted), &sources).kept_in(text.to_owned());
            kept.map(|text| requirements::logical_lines(&text)).map_err(|error| error.to_string())
        };
        let both = ["Idna --hash=sha256:bb --hash=sha256:dd", "six"];
        let as_given = ["idna==3 --hash=sha256:bb", "six==1 --hash=sha256:cc"];
        assert_eq!(kept(&both, &[]).unwrap(), as_given);
        assert_eq!(kept(&["idna", "six"], &["idna<4 --hash=sha256:bb"]).unwrap(), as_given);
        let refused = kept(&["idna --hash=sha256:dd", "six"], &[]).unwrap_err();
        assert!(refused.contains("idna"), "{refused}");
        // The file itself will tell.
        let other = kept(&["idna --hash=sha512:ee", "six"], &[]).unwrap();
        assert_eq!(other[0], "idna==3 --hash=sha512:ee");
        // Where each has one, nothing comes without.
        let alone = "idna --hash=sha256:bb";
        let refused = kept(&[alone], &[]).unwrap_err();
        assert!(refused.contains(": six;"), "{refused}");
        assert_eq!(kept(&[alone], &["six --hash=sha256:cc"]).unwrap(), as_given);
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
