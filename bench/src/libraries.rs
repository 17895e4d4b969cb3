//! Twenty popular libraries, each with a function that does a little work and checks the answer: `bench/libraries/`.
//!
//! A function there imports its library and has a `work` that fails when the library's answer is wrong. Each copy of it
//! that is deployed differs in a number.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

use crate::baselines::rootfs::Rootfs;
use crate::functions::{Function, Kind};
use crate::index::Index;
use crate::observed::observed;

/// A library and its function.
#[derive(Clone, Debug)]
pub(crate) struct Library {
    /// `django`
    pub(crate) name: String,
    /// `django==5.2.19`
    pub(crate) requirement: String,
    /// Where its function lies.
    pub(crate) file: PathBuf,
    source: String,
}

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("libraries")
}

/// All of them, by name.
pub(crate) fn all() -> Result<Vec<Library>> {
    let entries = fs::read_dir(dir()).context("read bench/libraries")?;
    let files = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<_> = files.filter(|p| p.extension().is_some_and(|e| e == "py")).collect();
    files.sort();
    files.into_iter().map(Library::read).collect()
}

/// Those that a quick run does with.
pub(crate) fn some() -> Result<Vec<Library>> {
    let mut some = all()?;
    some.retain(|library| ["django", "pandas", "requests"].contains(&&*library.name));
    Ok(some)
}

impl Library {
    /// The one of this name.
    pub(crate) fn named(name: &str) -> Result<Self> {
        Self::read(dir().join(format!("{name}.py")))
    }

    fn read(file: PathBuf) -> Result<Self> {
        let source =
            fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let dependencies = source.lines().find_map(|line| line.strip_prefix("# dependencies = "));
        let requirement = dependencies.context("a library without dependencies")?;
        let requirement = requirement.trim_matches(['[', ']', '"']).to_owned();
        Ok(Self { name, requirement, file, source })
    }

    /// The name of a copy of its function.
    pub(crate) fn function(&self, copy: usize) -> String {
        format!("{}-{copy:03}", self.name)
    }

    /// The names of some copies.
    pub(crate) fn functions(&self, copies: impl IntoIterator<Item = usize>) -> Vec<String> {
        copies.into_iter().map(|copy| self.function(copy)).collect()
    }

    /// The source of a copy of its function.
    pub(crate) fn source(&self, copy: usize) -> String {
        observed(&format!("N = {copy}\n{}", self.source))
    }

    /// The source of a function that imports one more module, of a further requirement.
    pub(crate) fn source_with(&self, module: &str, requirement: &str) -> String {
        let own = format!("\"{}\"", self.requirement);
        let source = self.source.replacen(&own, &format!("{own}, \"{requirement}\""), 1);
        observed(&format!("import {module}\n{source}"))
    }
}

/// Copies of the functions of some libraries: number `n` is copy `n / libraries` of library `n % libraries`.
#[derive(Debug)]
pub(crate) struct Copies {
    libraries: Vec<Library>,
    index: Index,
}

impl Copies {
    /// Copies of these libraries' functions, installed from a loopback index.
    pub(crate) async fn of(libraries: &[Library], wheels: &Path) -> Result<Self> {
        Ok(Self { libraries: libraries.to_vec(), index: Index::serve(&[wheels]).await? })
    }

    /// The index that they are installed from, which serves until this is dropped.
    pub(crate) fn index(&self) -> String {
        self.index.url()
    }
}

impl Kind for Copies {
    fn name(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.libraries.iter().for_each(|library| library.source(0).hash(&mut hasher));
        format!("libraries-{:x}", hasher.finish())
    }

    fn function(&self, number: usize) -> Result<Function> {
        let library = &self.libraries[number % self.libraries.len()];
        let copy = number / self.libraries.len();
        let source = library.source(copy);
        Ok(Function { name: library.function(copy), source })
    }

    fn environment(&self) -> Vec<(String, String)> {
        vec![("UV_DEFAULT_INDEX".to_owned(), self.index.url())]
    }
}

/// The wheels that the libraries need: fetched once, from the index that pip is set up for.
pub(crate) async fn wheels(work: &Path, rootfs: &Rootfs) -> Result<PathBuf> {
    let (wheels, list) = (work.join("wheels"), dir().join("requirements.txt"));
    let text = fs::read_to_string(&list).with_context(|| format!("read {}", list.display()))?;
    let fetched = wheels.join("fetched.txt");
    if fs::read_to_string(&fetched).is_ok_and(|there| there == text) {
        return Ok(wheels);
    }
    eprintln!("fetching the wheels of {} (once)", list.display());
    // Of another list.
    let _ = fs::remove_dir_all(&wheels);
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]);
    command.args(["--python-version", &rootfs.minor(), "--requirement"]).arg(list);
    command.arg("--dest").arg(&wheels);
    let status = command.status().await.context("start pip")?;
    ensure!(status.success(), "pip cannot fetch the libraries' wheels");
    fs::write(&fetched, text).context("note what was fetched")?;
    Ok(wheels)
}

/// A directory with what some of the distributions contain that the libraries need, or all of them where none is named,
/// byte-compiled, for interpreters that are no sandboxes: made once.
pub(crate) async fn site(wheels: &Path, rootfs: &Rootfs, only: &[&str]) -> Result<PathBuf> {
    let site = wheels.join(["site"].iter().chain(only).copied().collect::<Vec<_>>().join("-"));
    if site.is_dir() {
        return Ok(site);
    }
    let list = fs::read_to_string(dir().join("requirements.txt")).context("read what they need")?;
    let pinned = list.lines().filter(|line| line.contains("=="));
    let wanted = |line: &&str| {
        let name = line.split_once("==").map(|(name, _)| name);
        only.is_empty() || name.is_some_and(|name| only.contains(&name))
    };
    let requirements: Vec<&str> = pinned.filter(wanted).collect();
    ensure!(requirements.len() >= only.len().max(1), "the libraries do not need all of {only:?}");
    eprintln!("installing {} distributions (once)", requirements.len());
    let unfinished = site.with_extension("unfinished");
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--upgrade"]);
    command.args(["--only-binary", ":all:", "--python-version", &rootfs.minor()]);
    command.arg("--find-links").arg(wheels).arg("--target").arg(&unfinished).args(requirements);
    let status = command.status().await.context("start pip")?;
    ensure!(status.success(), "pip cannot install the libraries");
    fs::rename(&unfinished, &site).context("name the directory")?;
    Ok(site)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_twenty_libraries_and_the_index_serves_the_version_of_each() {
        let list = fs::read_to_string(dir().join("requirements.txt")).unwrap();
        let all = all().unwrap();
        assert_eq!(all.len(), 20);
        for library in all {
            assert!(list.lines().any(|line| line == library.requirement), "{library:?}");
        }
    }
}
