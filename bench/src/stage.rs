//! What every experiment stands on: binaries, the template of functions, workers on copies of it, baselines.

use std::cell::Cell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::baselines::bubblewrap::Bubblewrap;
use crate::baselines::docker::Docker;
use crate::baselines::fresh_interpreter::FreshInterpreter;
use crate::baselines::os_fork::OsFork;
use crate::baselines::rootfs::Rootfs;
use crate::baselines::runc::Runc;
use crate::functions::{self, Kind, Noops};
use crate::load::Target;
use crate::run::Run;
use crate::worker::Worker;

/// Settings under which an instance that answered is destroyed and nothing is kept.
pub(crate) const NOTHING_KEPT: (&str, &str) = ("handler_cache", "false");
/// Settings under which each instance is a fresh interpreter.
pub(crate) const NO_ZYGOTE: (&str, &str) = ("zygotes", "none");

/// The place where an experiment plays.
#[derive(Debug)]
pub(crate) struct Stage {
    wool: PathBuf,
    work: PathBuf,
    /// Copies of the template, bundles: removed at the end.
    scratch: TempDir,
    copies: Cell<usize>,
    /// Locked, so that no other run measures this one, or clears it away.
    _alone: File,
    /// The base layer of all.
    pub(crate) rootfs: Rootfs,
    /// Whether everything is to be tiny: the numbers mean nothing.
    pub(crate) quick: bool,
}

impl Stage {
    /// Finds the binaries, makes or finds the base layer; of `python`, if one is asked for.
    pub(crate) async fn set(quick: bool, python: Option<&str>) -> Result<Self> {
        let own = std::env::current_exe().context("find this program")?;
        let wool = own.with_file_name("wool");
        ensure!(wool.is_file(), "{} is not there: `make build` builds it", wool.display());
        let target = own.parent().and_then(Path::parent).context("find the target directory")?;
        let mut work = target.join("bench");
        // Short: a worker's socket is below it.
        work.extend(python);
        fs::create_dir_all(&work).with_context(|| format!("make {}", work.display()))?;
        let alone = File::open(target).context("open the target directory")?;
        alone.try_lock().context("another run is under way: they take turns")?;
        let base = functions::base(&work, &wool, python).await?;
        clear(&work)?;
        let scratch = TempDir::with_prefix_in("scratch-", &work).context("make a directory")?;
        let rootfs = Rootfs::of(&base)?;
        Ok(Self { wool, work, scratch, copies: Cell::new(0), _alone: alone, rootfs, quick })
    }

    /// Where templates, wheels, copies and quick runs lie.
    pub(crate) fn work(&self) -> &Path {
        &self.work
    }

    /// A directory of this run, removed at its end.
    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// A number for real runs, another for quick ones.
    pub(crate) fn amount<T>(&self, real: T, quick: T) -> T {
        if self.quick { quick } else { real }
    }

    /// A worker on a fresh copy of the template with 2000 functions that do nothing.
    pub(crate) async fn worker(
        &self,
        name: &str,
        settings: &[(&str, &str)],
        connections: usize,
    ) -> Result<Worker> {
        let noops = self.template(&Noops, self.amount(2000, 60)).await?;
        self.worker_on(&noops, name, settings, connections).await
    }

    /// The template with at least so many functions of a kind; made when it is not there.
    pub(crate) async fn template(&self, kind: &dyn Kind, wanted: usize) -> Result<PathBuf> {
        functions::template(&self.work, &self.wool, kind, wanted).await
    }

    /// A worker on a fresh copy of a template.
    pub(crate) async fn worker_on(
        &self,
        template: &Path,
        name: &str,
        settings: &[(&str, &str)],
        connections: usize,
    ) -> Result<Worker> {
        let number = self.copies.get();
        self.copies.set(number + 1);
        let state = self.scratch.path().join(format!("state-{number}"));
        functions::copy(template, &state).await?;
        let worker = Worker::start(name, &self.wool, &state, settings, &[]).await?;
        worker.warm(connections).await.with_context(|| format!("warm {name}"))?;
        Ok(worker)
    }

    /// All baselines that this machine can run; the others as warnings of the run.
    pub(crate) async fn baselines(&self, run: &mut Run) -> Result<Baselines> {
        let docker = match Docker::start(&self.rootfs).await {
            Ok(docker) => Some(docker),
            Err(error) => {
                run.warnings.push(format!("no Docker: {error:#}"));
                None
            }
        };
        if let Some(docker) = &docker {
            run.method.push(format!("Docker {}", docker.version));
        }
        let runc = Runc::find(&self.rootfs, &self.scratch.path().join("runc"))?;
        let bubblewrap = Bubblewrap::find(&self.rootfs);
        if runc.is_none() {
            run.warnings.push("no runc: it is not installed".to_owned());
        }
        if bubblewrap.is_none() {
            run.warnings.push("no bubblewrap: it is not installed".to_owned());
        }
        Ok(Baselines {
            docker,
            runc,
            bubblewrap,
            fresh: FreshInterpreter::new(&self.rootfs),
            fork: OsFork::start(&self.rootfs)?,
        })
    }

    /// Lets the disk finish what was deployed and copied, then measures the machine at rest.
    pub(crate) async fn rest(&self, run: &mut Run) -> Result<()> {
        let synced = tokio::process::Command::new("sync").status().await.context("start sync")?;
        ensure!(synced.success(), "sync failed: {synced}");
        tokio::time::sleep(Duration::from_secs(self.amount(3, 0))).await;
        run.idle = crate::cpu::idle(Duration::from_secs(self.amount(5, 1))).await?;
        Ok(())
    }
}

/// Removes what runs that were cut off left behind.
fn clear(work: &Path) -> Result<()> {
    for entry in fs::read_dir(work).context("look for leftovers")?.flatten() {
        if entry.file_name().to_string_lossy().starts_with("scratch-") {
            fs::remove_dir_all(entry.path()).context("remove what an earlier run left")?;
        }
    }
    Ok(())
}

/// Baselines that run here.
#[derive(Debug)]
pub(crate) struct Baselines {
    pub(crate) docker: Option<Docker>,
    pub(crate) runc: Option<Runc>,
    pub(crate) bubblewrap: Option<Bubblewrap>,
    pub(crate) fresh: FreshInterpreter,
    pub(crate) fork: OsFork,
}

impl Baselines {
    /// As arms.
    pub(crate) fn arms(&self) -> Vec<&dyn Target> {
        let mut arms: Vec<&dyn Target> = Vec::new();
        arms.extend(self.docker.as_ref().map(|arm| arm as &dyn Target));
        arms.extend(self.runc.as_ref().map(|arm| arm as &dyn Target));
        arms.extend(self.bubblewrap.as_ref().map(|arm| arm as &dyn Target));
        arms.extend([&self.fresh as &dyn Target, &self.fork]);
        arms
    }

    /// Calls each a few times: files read, caches filled.
    pub(crate) async fn warm(&self) -> Result<()> {
        for arm in self.arms() {
            for _ in 0..3 {
                arm.shoot(0).await.with_context(|| format!("{} does not work", arm.name()))?;
            }
        }
        Ok(())
    }

    /// Stops what runs.
    pub(crate) async fn stop(self) -> Result<()> {
        match self.docker {
            Some(docker) => docker.stop().await,
            None => Ok(()),
        }
    }
}
