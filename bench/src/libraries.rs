//! Twenty popular libraries, each with a function that does a little work and checks the answer: `bench/libraries/`.
//!
//! A function there imports its library and has a `work` that fails when the library's answer is wrong. What is added
//! here makes each copy different, measures the work, and counts what had to be imported from packages although a
//! zygote was there: 0 is the proof that the zygote was exact.

use std::cell::Cell;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use tokio::process::Command;

use crate::baselines::rootfs::Rootfs;
use crate::functions::{Bundle, Function, Kind};
use crate::index::Index;
use crate::load::{Pending, Shot, Target};
use crate::worker::Worker;

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

/// What each copy of a function begins with.
const HEAD: &str = "import sys as _sys\nimport time as _time\n\n_before = set(_sys.modules)\n";

/// What each copy of a function ends with. The packages are the second entry of the path: see the guest.
const TAIL: &str = "
_packages = _sys.path[1] + '/'


def handler(event, context):
    began = _time.perf_counter_ns()
    if event.get('work'):
        work()
    files = [getattr(_sys.modules[name], '__file__', None) for name in set(_sys.modules) - _before]
    imported = sum(1 for file in files if file and file.startswith(_packages))
    return {'work_ns': _time.perf_counter_ns() - began, 'imported': imported}
";

/// What a copy of a function replies.
#[derive(Debug, Deserialize)]
struct Reply {
    work_ns: u64,
    imported: usize,
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

    /// The source of a copy of its function.
    pub(crate) fn source(&self, copy: usize) -> String {
        format!("{HEAD}N = {copy}\n{}{TAIL}", self.source)
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
        let bundle = Bundle::Source(library.source(copy));
        Ok(Function { name: library.function(copy), bundle })
    }

    fn environment(&self) -> Vec<(String, String)> {
        vec![("UV_DEFAULT_INDEX".to_owned(), self.index.url())]
    }
}

/// The wheels that the libraries need: fetched once, from the index that pip is set up for.
pub(crate) async fn wheels(work: &Path, rootfs: &Rootfs) -> Result<PathBuf> {
    let list = dir().join("requirements.txt");
    fetch(work, "wheels", &list, rootfs).await
}

/// Fetches what a pinned list names into a directory of `work`, unless that is there already.
pub(crate) async fn fetch(
    work: &Path,
    name: &str,
    list: &Path,
    rootfs: &Rootfs,
) -> Result<PathBuf> {
    let dir = work.join(name);
    let text = fs::read_to_string(list).with_context(|| format!("read {}", list.display()))?;
    let fetched = dir.join("fetched.txt");
    if fs::read_to_string(&fetched).is_ok_and(|there| there == text) {
        return Ok(dir);
    }
    eprintln!("fetching the wheels of {} (once)", list.display());
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]);
    command.args(["--python-version", &rootfs.minor(), "--requirement"]).arg(list);
    command.arg("--dest").arg(&dir);
    let status = command.status().await.context("start pip")?;
    ensure!(status.success(), "pip cannot fetch {}", list.display());
    fs::write(&fetched, text).context("note what was fetched")?;
    Ok(dir)
}

/// A directory with all that the libraries need, byte-compiled, for interpreters that are no sandboxes: made once.
pub(crate) async fn site(wheels: &Path, rootfs: &Rootfs) -> Result<PathBuf> {
    let site = wheels.join("site");
    if site.is_dir() {
        return Ok(site);
    }
    eprintln!("installing all libraries (once)");
    let unfinished = wheels.join("site-unfinished");
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--upgrade"]);
    command.args(["--only-binary", ":all:", "--python-version", &rootfs.minor()]);
    command.arg("--find-links").arg(wheels).arg("--target").arg(&unfinished);
    command.arg("--requirement").arg(dir().join("requirements.txt"));
    let status = command.status().await.context("start pip")?;
    ensure!(status.success(), "pip cannot install the libraries");
    fs::rename(&unfinished, &site).context("name the directory")?;
    Ok(site)
}

/// A library's functions on one worker, as an arm: each call goes to the next copy of an order.
#[derive(Debug)]
pub(crate) struct Calls<'a> {
    worker: &'a Worker,
    library: &'a Library,
    name: String,
    event: &'static str,
    order: Vec<usize>,
    next: Cell<usize>,
}

/// The event on which a function works.
pub(crate) const WORK: &str = "{\"work\": true}";

/// The event on which a function does nothing.
pub(crate) const REST: &str = "{}";

impl<'a> Calls<'a> {
    /// Calls these copies, and begins anew after the last.
    pub(crate) fn new(
        worker: &'a Worker,
        library: &'a Library,
        name: String,
        event: &'static str,
        order: impl IntoIterator<Item = usize>,
    ) -> Self {
        let order = order.into_iter().collect();
        Self { worker, library, name, event, order, next: Cell::new(0) }
    }
}

/// Calls copies that no measurement calls, until a call that follows all of them imports nothing. Says how many modules
/// the last call still imported.
pub(crate) async fn warm(
    worker: &Worker,
    library: &Library,
    copies: Range<usize>,
) -> Result<usize> {
    let mut left = usize::MAX;
    for attempt in 0..3 * copies.len() {
        let copy = copies.start + attempt % copies.len();
        left = ask(worker, &library.function(copy), WORK).await?.1;
        worker.settle().await?;
        // Each copy is observed, and what was made for the first may be made anew for all.
        if left == 0 && attempt >= copies.len() {
            break;
        }
    }
    Ok(left)
}

/// Calls a copy of a library's function; says how many modules of packages it had to import.
pub(crate) async fn ask(
    worker: &Worker,
    function: &str,
    event: &'static str,
) -> Result<(Shot, usize)> {
    let (mut shot, body) = worker.ask(function, event).await?;
    let reply: Reply =
        serde_json::from_slice(&body).context("the function's reply is another's")?;
    shot.own = Duration::from_nanos(reply.work_ns);
    Ok((shot, reply.imported))
}

impl Target for Calls<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn shoot(&self, _client: usize) -> Pending<'_, Shot> {
        let number = self.next.get();
        self.next.set(number + 1);
        Box::pin(async move {
            let function = self.library.function(self.order[number % self.order.len()]);
            let (mut shot, imported) = ask(self.worker, &function, self.event).await?;
            if imported > 0 {
                shot.start = format!("{}, {imported} modules imported", shot.start);
            }
            Ok(shot)
        })
    }

    fn settle(&self) -> Pending<'_, ()> {
        self.worker.settle()
    }

    fn group(&self) -> Option<&crate::cpu::CpuGroup> {
        self.worker.group()
    }
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
