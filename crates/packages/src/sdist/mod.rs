//! Building what has no wheel, inside a sandbox without a network.
//!
//! ```text
//!   name, version ─► where is its source? ─► fetched, hash checked ─► code/.tmp-build-<key>: the archive, unopened
//!                                                                          │
//!     ┌── a sandbox: unpack, show pyproject.toml ◄─────────────────────────┤
//!     ├─► its requirements, checked ─► locked, installed: wheels only      │
//!     ├── a sandbox with these: what else? ◄───────────────────────────────┤  (once or twice)
//!     ├── a sandbox with these: the wheel ◄────────────────────────────────┘
//!     └─► read through and checked ─► built/<key>/<file>.whl ─► from here on a wheel like any other
//! ```
//!
//! The key is of the source's hash, the Python's minor version, the processor and the indexes that
//! the tools come from: what is built is the word of its tools, and a function that names an index
//! may choose these. A second deploy of the same source waits for the first; a failed build leaves
//! nothing, and the next deploy tries again. What comes out of a sandbox is its word only: the
//! wheel may be of another name, hold `..`, or require a path of this machine.
//!
//! This room stands above [`crate::lock`] and `install`: it resolves and installs what a build
//! requires, wheels only. They reach it through the trait `Builder`, which
//! [`Installer::building_in`] gives them. How a sandbox is made is the caller's: see [`Sandboxes`].

mod sandboxes;
mod source;
mod system;

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use layers::base;
use layers::staging::Staging;
use layers::store::{layer, short};
use layers::{FileError, description};
use sandbox::Layer;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

pub use sandboxes::{FUNCTION, MODULE, Sandboxes, Task, plain};

use crate::build_error::{BuildError, SandboxError};
use crate::installer::{Builder, BuiltWheel, Installer, Site};
use crate::wheel_file::{self, Metadata};
use crate::{install, lock};
use source::Source;
use system::{System, check};

/// Changes whenever the same source would be built otherwise.
const FORMAT: u32 = 1;

/// Of wheels that were built, below `layers/`.
const KIND: &str = "built";

const INSIDE: &str = include_str!("inside.py");

/// What describes a built wheel, beside it.
const DESCRIPTION: &str = "built.json";

/// Longest line that an answer begins with. A project's `pyproject.toml` is in it, cut off.
const MAX_LINE: u64 = 2 << 20;

/// How often a backend may ask for something more.
const ROUNDS: usize = 3;

/// What describes a wheel that was built here, in the directory that keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Built {
    name: String,
    version: String,
    file: String,
    metadata: Metadata,
    source: Source,
    /// What was installed while it was built, by id.
    environment: Vec<String>,
}

/// What our code inside a sandbox answers.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Said {
    Pyproject(Option<String>),
    Requires(Vec<String>),
    Wheel(String),
    Failed(String),
}

/// Builds in sandboxes.
#[derive(Debug)]
struct SandboxBuilder(Arc<dyn Sandboxes>);

impl Installer {
    /// The same installer, which has what has no wheel built in sandboxes.
    #[must_use]
    pub fn building_in(self, sandboxes: Arc<dyn Sandboxes>) -> Self {
        self.building_with(Arc::new(SandboxBuilder(sandboxes)))
    }
}

impl Builder for SandboxBuilder {
    fn wheel(
        &self,
        site: Site<'_>,
        name: &str,
        version: &str,
        hashes: Option<&[&str]>,
    ) -> Result<BuiltWheel, BuildError> {
        let source = Source::find(&site, name, version)?;
        if hashes.is_some_and(|locked| !locked.contains(&source.hash.as_str())) {
            return Err(BuildError::NotLocked);
        }
        let kept = layer(KIND, &key(&site, &source));
        let root = site.store.layer_path(&kept);
        let description = root.join(DESCRIPTION);
        site.store.make::<BuildError>(&kept, |root| {
            let built = build(site, &*self.0, name, version, source, root)?;
            Ok(description::write(&root.join(DESCRIPTION), &built)?)
        })?;
        description::touch(&root);
        let built: Built = description::read(&description).ok_or_else(|| {
            FileError::at("understand", &description)(io::ErrorKind::InvalidData.into())
        })?;
        Ok(BuiltWheel { path: root.join(built.file), kept, metadata: built.metadata })
    }
}

fn key(site: &Site<'_>, source: &Source) -> String {
    let mut hasher = blake3::Hasher::new();
    let indexes = site.sources.for_finding().text();
    let python = site.base.minor();
    for part in [&FORMAT.to_string(), python, std::env::consts::ARCH, &source.hash, &indexes] {
        hasher.update(part.as_bytes()).update(&[0]);
    }
    short(&hasher.finalize())
}

/// Leaves the wheel in `root`.
fn build(
    site: Site<'_>,
    sandboxes: &dyn Sandboxes,
    name: &str,
    version: &str,
    source: Source,
    root: &Path,
) -> Result<Built, BuildError> {
    let Site { store, base, progress, .. } = site;
    progress.step(&format!("building {name} {version} from {}", source.file()));
    let place = format!("build-{}", key(&site, &source));
    let code = Staging::begin(&store.kind("code"), &place)?;
    let (archive, inside) = ("source", format!("{MODULE}.py"));
    source.fetch(&site, &code.path().join(archive))?;
    let path = code.path().join(inside);
    fs::write(&path, INSIDE).map_err(FileError::at("write", &path))?;
    code.settle()?;
    let directory = code.path().file_name().unwrap_or_default().to_string_lossy();
    let code = layer("code", &directory);
    let (bench, lack) = base::with_toolchain(store, base, progress)
        .map_err(|error| BuildError::Toolchain(Box::new(error)))?;
    let ask = |packages: Option<Layer>, body: Value| {
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let patience = site.installer.patience();
        let task = Task { base: &bench, packages, code: code.clone(), body, patience };
        // It has a limit of its own.
        let answer = patience.aside(|| sandboxes.call(task, progress))?;
        let (said, wheel) = understand(answer)?;
        match said {
            Said::Failed(words) => {
                Err(BuildError::Failed { words: plain(&words), lack: lack.clone() })
            }
            said => Ok((said, wheel)),
        }
    };
    let archive = Table::from_iter([("archive".to_owned(), Value::String(archive.to_owned()))]);
    let mut system = match ask(None, Value::Table(archive.clone()))? {
        (Said::Pyproject(text), _) => System::read(text.as_deref())?,
        _ => return Err(strange()),
    };
    for _ in 0..ROUNDS {
        let installed = requirements(site, &system.requires)?;
        let mut task = archive.clone();
        task.extend(Table::try_from(&system).unwrap_or_default());
        let layer = installed.as_ref().map(|packages| packages.layer.clone());
        match ask(layer, Value::Table(task))? {
            (Said::Requires(more), _) => {
                check(&more)?;
                system.requires.extend(more);
            }
            (Said::Wheel(file), answer) => {
                let metadata = take_in(name, version, &file, answer, root)?;
                let environment =
                    installed.into_iter().flat_map(|p| p.wheels).map(|wheel| wheel.id).collect();
                let (name, version) = (name.to_owned(), version.to_owned());
                return Ok(Built { name, version, file, metadata, source, environment });
            }
            _ => return Err(strange()),
        }
    }
    Err(BuildError::Project(format!(
        "its backend asks for more {ROUNDS} times: {:?}",
        system.requires
    )))
}

/// Installs what a build requires. Wheels only: what is needed to build is not built itself.
fn requirements(
    site: Site<'_>,
    wanted: &[String],
) -> Result<Option<install::Packages>, BuildError> {
    let Site { store, base, progress, .. } = site;
    let (installer, sources) = (site.installer.without_building(), site.sources.for_finding());
    let failed = |error: Box<dyn Error + Send + Sync>| BuildError::Requirements(error);
    let lock = lock::resolve(store, &installer, base, wanted, &sources, progress)
        .map_err(|error| failed(Box::new(error)))?;
    let Some(lock) = lock else { return Ok(None) };
    let installed = install::install(store, &installer, base, &lock, &sources, progress);
    installed.map(Some).map_err(|error| failed(Box::new(error)))
}

/// A line of JSON; and the file, at what follows it.
fn understand(mut answer: File) -> Result<(Said, File), BuildError> {
    let mut line = Vec::new();
    let begins = BufReader::new((&answer).take(MAX_LINE)).read_until(b'\n', &mut line);
    begins.map_err(SandboxError::NotKept)?;
    let said = line.strip_suffix(b"\n").and_then(|line| serde_json::from_slice(line).ok());
    let said = said.ok_or_else(strange)?;
    answer.seek(SeekFrom::Start(line.len() as u64)).map_err(SandboxError::NotKept)?;
    Ok((said, answer))
}

/// Puts a wheel in its place. Its name is its own word, and is given to it once it is checked.
fn take_in(
    name: &str,
    version: &str,
    file: &str,
    mut answer: File,
    root: &Path,
) -> Result<Metadata, BuildError> {
    let unchecked = root.join("unchecked");
    let written = File::create_new(&unchecked).and_then(|mut wheel| {
        io::copy(&mut answer, &mut wheel)?;
        File::open(&unchecked)
    });
    let wheel = written.map_err(FileError::at("write", &unchecked))?;
    let metadata = wheel_file::check(name, version, file, BufReader::new(wheel))?;
    let path = root.join(file);
    fs::rename(&unchecked, &path).map_err(FileError::at("write", &path))?;
    Ok(metadata)
}

fn strange() -> BuildError {
    SandboxError::Answer("it is not what our own code says".to_owned()).into()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn an_answer_is_a_line_and_bytes() {
        let understand = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            file.rewind().unwrap();
            understand(file)
        };
        let (said, mut rest) = understand(b"{\"wheel\":\"a.whl\"}\nPK\nx").unwrap();
        assert!(matches!(said, Said::Wheel(name) if name == "a.whl"));
        let mut wheel = Vec::new();
        rest.read_to_end(&mut wheel).unwrap();
        assert_eq!(wheel, b"PK\nx");
        let endless = [&b"{\"pyproject\":\""[..], &vec![b'x'; 3 << 20], b"\"}\n"].concat();
        for bad in [&b""[..], b"no line", b"{\"wheels\":1}\n", b"{}\n", &endless] {
            assert!(understand(bad).is_err(), "{:?}", &bad[..bad.len().min(20)]);
        }
    }
}
