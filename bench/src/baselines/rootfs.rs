//! The base layer, as the worker built it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// A base layer on disk.
#[derive(Clone, Debug)]
pub(crate) struct Rootfs {
    /// Its root directory, absolute.
    pub(crate) root: PathBuf,
    /// Its interpreter's path inside it.
    pub(crate) interpreter: String,
    /// Its Python's version.
    pub(crate) version: String,
    loader: Option<PathBuf>,
    libraries: PathBuf,
}

#[derive(Deserialize)]
struct Described {
    version: String,
    layer: PathBuf,
    interpreter: String,
    libraries: PathBuf,
    loader: Option<PathBuf>,
}

impl Rootfs {
    /// The base of a state directory.
    pub(crate) fn of(state: &Path) -> Result<Self> {
        let layers = state.join("layers");
        let entries = fs::read_dir(layers.join("base")).context("the state has no base layer")?;
        let described = entries
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|extension| extension == "json"))
            .context("the state has no base layer")?;
        let text = fs::read(&described).context("read the base's description")?;
        let base: Described =
            serde_json::from_slice(&text).context("understand the base's description")?;
        Ok(Self {
            root: std::path::absolute(layers.join(base.layer)).context("resolve the base")?,
            interpreter: base.interpreter,
            version: base.version,
            loader: base.loader,
            libraries: base.libraries,
        })
    }

    /// Its Python's version without the last number: `3.11`.
    pub(crate) fn minor(&self) -> String {
        self.version.split('.').take(2).collect::<Vec<_>>().join(".")
    }

    /// A path inside it, seen from outside.
    pub(crate) fn inside(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Runs its interpreter from outside: by its own loader, on its own libraries, with no environment to speak of.
    pub(crate) fn python(&self) -> tokio::process::Command {
        let program = self.inside(Path::new(&self.interpreter));
        let mut command = match &self.loader {
            Some(loader) => {
                let mut command = tokio::process::Command::new(self.inside(loader));
                command.arg("--library-path").arg(self.inside(&self.libraries)).arg(program);
                command
            }
            None => tokio::process::Command::new(program),
        };
        command.env_clear().envs([("PATH", "/usr/bin"), ("LANG", "C.UTF-8")]);
        command
    }
}
