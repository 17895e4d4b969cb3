//! Calls to paused instances, with the proof that they were paused: the freezer's state is read before the call.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::functions;
use crate::load::{Pending, Shot, Target};
use crate::worker::Worker;

/// Longest wait for a freeze that was asked for.
const PATIENCE: Duration = Duration::from_secs(2);

/// One function of a worker, called again and again; each call finds its instance frozen.
#[derive(Debug)]
pub(super) struct Resumes<'a> {
    worker: &'a Worker,
    name: String,
    /// For each client: its function, and the file that tells whether the instance is frozen.
    clients: Vec<Client>,
    /// Waited before each call.
    idle: Duration,
    /// How often a freezer was read as not yet frozen, before it was.
    early: Cell<usize>,
}

#[derive(Debug)]
struct Client {
    function: String,
    freezer: PathBuf,
}

impl<'a> Resumes<'a> {
    /// Gives each client a function with a paused instance. `first` is the first function's number.
    pub(super) async fn prepare(
        worker: &'a Worker,
        name: &str,
        first: usize,
        clients: usize,
        idle: Duration,
    ) -> Result<Self> {
        let groups = Freezers::of(worker)?;
        let mut prepared = Vec::new();
        for number in first..first + clients {
            let before = groups.frozen();
            let function = functions::name(number);
            worker.call(&function).await?;
            let began = Instant::now();
            let freezer = loop {
                let new = groups.frozen().into_iter().find(|file| !before.contains(file));
                match new {
                    Some(file) => break file,
                    None if began.elapsed() > PATIENCE => {
                        bail!("the instance of {function} is not paused")
                    }
                    None => tokio::time::sleep(Duration::from_millis(2)).await,
                }
            };
            prepared.push(Client { function, freezer });
        }
        let (frozen, status) = (groups.frozen().len(), worker.status().await?);
        let idle_instances = &status["instances"]["idle"];
        ensure!(
            idle_instances.as_u64() == Some(u64::try_from(frozen)?),
            "{idle_instances} instances are kept and {frozen} sandboxes are frozen: they should be the same"
        );
        Ok(Self { worker, name: name.to_owned(), clients: prepared, idle, early: Cell::new(0) })
    }

    /// What the freezers showed, for the run's page.
    pub(super) fn proof(&self) -> String {
        format!(
            "`{}`: all kept instances read frozen before the first call; {} calls came so early that theirs did not yet, and waited until it did",
            self.name,
            self.early.get()
        )
    }

    /// Waits until the client's instance is frozen, as its own cgroup says.
    pub(super) async fn until_frozen(&self, client: usize) -> Result<()> {
        let freezer = &self.clients[client].freezer;
        if is_frozen(freezer) {
            return Ok(());
        }
        self.early.set(self.early.get() + 1);
        let began = Instant::now();
        while !is_frozen(freezer) {
            ensure!(began.elapsed() < PATIENCE, "the instance was not paused in time");
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

/// The call itself: the wait for the freeze, which is the experimenter's, lies before it.
pub(super) struct Frozen<'a>(pub(super) &'a Resumes<'a>);

impl Target for Frozen<'_> {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn shoot(&self, client: usize) -> Pending<'_, Shot> {
        Box::pin(async move {
            let shot = self.0.worker.call(&self.0.clients[client].function).await?;
            ensure!(shot.start == "resume", "the call was no resume but a {}", shot.start);
            Ok(shot)
        })
    }

    fn before(&self, client: usize) -> Pending<'_, ()> {
        Box::pin(async move {
            if !self.0.idle.is_zero() {
                tokio::time::sleep(self.0.idle).await;
            }
            self.0.until_frozen(client).await
        })
    }

    fn group(&self) -> Option<&crate::cpu::CpuGroup> {
        self.0.worker.group()
    }
}

/// The files that tell which of a worker's sandboxes are frozen.
#[derive(Debug)]
struct Freezers {
    top: PathBuf,
    file: &'static str,
}

impl Freezers {
    fn of(worker: &Worker) -> Result<Self> {
        let name = worker.cgroup_name()?;
        let mounts = fs::read_to_string("/proc/self/mounts").context("read mounts")?;
        let places = mounts.lines().filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            Some((fields.next()?, fields.next()?))
        });
        for (at, kind) in places {
            let top = Path::new(at).join(&name);
            let file = match kind {
                "cgroup" if at.ends_with("freezer") || top.join("freezer.state").exists() => {
                    "freezer.state"
                }
                "cgroup2" => "cgroup.events",
                _ => continue,
            };
            if top.is_dir() {
                return Ok(Self { top, file });
            }
        }
        bail!("no cgroup {name}: nothing shows whether instances are paused")
    }

    fn frozen(&self) -> Vec<PathBuf> {
        let (mut dirs, mut at, mut frozen) = (vec![self.top.clone()], 0, Vec::new());
        while at < dirs.len() {
            let below = fs::read_dir(&dirs[at]).into_iter().flatten().flatten();
            let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            let below: Vec<_> = below.map(|entry| entry.path()).collect();
            frozen
                .extend(below.iter().map(|dir| dir.join(self.file)).filter(|file| is_frozen(file)));
            dirs.extend(below);
            at += 1;
        }
        frozen
    }
}

fn is_frozen(file: &Path) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.trim() == "FROZEN" || text.lines().any(|line| line == "frozen 1")
}
