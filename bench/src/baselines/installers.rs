//! What a worker without an install cache does for each call: an installer fetches a library from the package index
//! and installs it, byte-compiled, into an empty directory. Outside any container, in its favour.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

use super::rootfs::Rootfs;
use crate::load::{Pending, Shot, Target};

/// A step of an installer, as an arm.
#[derive(Debug)]
pub(crate) struct Installer<'a> {
    name: String,
    step: Step,
    requirement: String,
    around: &'a Around,
}

/// Which installer does what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// `pip download`, nothing cached.
    PipDownload,
    /// `pip install` of what the last [`Step::PipDownload`] fetched.
    PipInstall,
    /// `uv pip install`, nothing cached: fetches and installs at once.
    Uv,
    /// The same from its own cache, which the last [`Step::Uv`] filled.
    UvCached,
}

impl Step {
    /// All of them, in the order in which they can be done.
    pub(crate) const ALL: [Self; 4] =
        [Self::PipDownload, Self::PipInstall, Self::Uv, Self::UvCached];

    /// As in tables.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::PipDownload => "pip download",
            Self::PipInstall => "pip install",
            Self::Uv => "uv, nothing cached",
            Self::UvCached => "uv, from its cache",
        }
    }
}

/// What installers work with.
#[derive(Debug)]
pub(crate) struct Around {
    /// The package index.
    pub(crate) index: String,
    /// The worker's own uv.
    pub(crate) uv: PathBuf,
    /// A script that starts the base's interpreter, which uv asks and compiles with.
    pub(crate) python: PathBuf,
    /// The base's Python without its last number.
    pub(crate) minor: String,
    /// Where everything is put.
    pub(crate) work: PathBuf,
}

impl Around {
    /// What a template's worker used to deploy: its uv, and the interpreter that this asks.
    pub(crate) fn of(template: &Path, index: String, rootfs: &Rootfs, work: &Path) -> Result<Self> {
        let first = |dir: PathBuf| -> Result<PathBuf> {
            let mut entries = fs::read_dir(&dir)
                .with_context(|| format!("look into {}", dir.display()))?
                .flatten();
            Ok(entries.next().with_context(|| format!("{} is empty", dir.display()))?.path())
        };
        Ok(Self {
            index,
            // The worker takes the host's where there is a recent one.
            uv: first(template.join("uv/bin")).unwrap_or_else(|_| PathBuf::from("uv")),
            python: first(template.join("uv/python"))?.join("python3"),
            minor: rootfs.minor(),
            work: work.to_owned(),
        })
    }

    /// `pip 26.1, uv 0.13.9`
    pub(crate) async fn versions(&self) -> Result<String> {
        let mut pip = Command::new("python3");
        pip.args(["-I", "-m", "pip", "--version"]);
        let mut uv = Command::new(&self.uv);
        uv.arg("--version");
        let mut said = Vec::new();
        for mut command in [pip, uv] {
            let output = command.output().await.context("ask an installer for its version")?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            said.push(text.split_whitespace().take(2).collect::<Vec<_>>().join(" "));
        }
        Ok(said.join(", "))
    }
}

impl<'a> Installer<'a> {
    /// One step for one library.
    pub(crate) fn new(name: String, step: Step, requirement: &str, around: &'a Around) -> Self {
        let requirement = requirement.to_owned();
        Self { name, step, requirement, around }
    }

    fn dir(&self, what: &str) -> PathBuf {
        self.around.work.join(format!("{}-{what}", self.requirement))
    }

    fn command(&self) -> Command {
        let Around { index, uv, python, minor, .. } = self.around;
        let (wheels, cache) = (self.dir("wheels"), self.dir("uv-cache"));
        let target = self.dir(self.step.label());
        let pip = |words: &[&str]| {
            let mut command = Command::new("python3");
            command.args(["-I", "-m", "pip"]).args(words);
            command.args(["--quiet", "--progress-bar", "off", "--no-cache-dir"]);
            command.args(["--only-binary", ":all:", "--python-version", minor]);
            command.env("PIP_CONFIG_FILE", "/dev/null").env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
            command.env("PIP_ROOT_USER_ACTION", "ignore").env_remove("PIP_FIND_LINKS");
            command
        };
        let mut command = match self.step {
            Step::PipDownload => {
                let mut command = pip(&["download", "--index-url", index]);
                command.arg("--dest").arg(wheels);
                command
            }
            Step::PipInstall => {
                let mut command = pip(&["install", "--no-index", "--compile"]);
                command.arg("--find-links").arg(wheels).arg("--target").arg(target);
                command
            }
            Step::Uv | Step::UvCached => {
                let mut command = Command::new(uv);
                command.args(["pip", "install", "--quiet", "--no-config", "--compile-bytecode"]);
                command.args(["--only-binary", ":all:", "--default-index", index]);
                command.arg("--python").arg(python).arg("--cache-dir").arg(cache);
                command.arg("--target").arg(target);
                if self.step == Step::UvCached {
                    command.arg("--offline");
                }
                command
            }
        };
        command.arg(&self.requirement).kill_on_drop(true);
        command
    }
}

fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("empty {}", dir.display()))
        }
        _ => Ok(()),
    }
}

impl Target for Installer<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn shoot(&self, _client: usize) -> Pending<'_, Shot> {
        Box::pin(async {
            let status = self.command().status().await.context("start the installer")?;
            let done = Instant::now();
            ensure!(status.success(), "{} of {} failed", self.step.label(), self.requirement);
            Ok(Shot::plain(done))
        })
    }

    fn before(&self, _client: usize) -> Pending<'_, ()> {
        Box::pin(async {
            remove(&self.dir(self.step.label()))?;
            match self.step {
                Step::PipDownload => remove(&self.dir("wheels")),
                Step::Uv => remove(&self.dir("uv-cache")),
                Step::PipInstall | Step::UvCached => Ok(()),
            }
        })
    }
}
