//! A real Docker engine of our own: created, started, called and removed through its API on a Unix socket.
//!
//! ```text
//!   create ─► attach (a stream) ─► start ─► first byte ─► the stream ends ─► remove
//!   └──────────────── latency ────────────────────┘                            │
//!   └──────────────────────────────── total ───────────────────────────────────┘
//! ```
//!
//! The engine gets its own directories and socket, no bridge, no packet filter; containers get no network and no log.
//! All of this makes it faster than the usual installation.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use http_body_util::BodyExt as _;
use hyper::Method;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::NO_OP;
use super::rootfs::Rootfs;
use crate::http::{Client, Peer};
use crate::load::{Pending, Shot, Target};

const IMAGE: &str = "bench-base";
const PATIENCE: Duration = Duration::from_secs(60);

/// A running engine with the base layer as an image.
#[derive(Debug)]
pub(crate) struct Docker {
    daemon: Child,
    client: Client,
    interpreter: String,
    /// Where its data, socket and log are. Removed with it.
    dir: tempfile::TempDir,
    /// What the engine says of itself.
    pub(crate) version: String,
}

impl Docker {
    /// Starts an engine; says why it cannot run here.
    pub(crate) async fn start(rootfs: &Rootfs) -> Result<Self> {
        ensure!(super::version("dockerd").is_some(), "dockerd is not installed");
        ensure!(rustix::process::geteuid().is_root(), "dockerd needs root");
        // A short path: a socket's may have 107 bytes.
        let dir = tempfile::Builder::new().prefix("bench-docker-").tempdir()?;
        let socket = dir.path().join("sock");
        let log = File::create(dir.path().join("log")).context("make the engine's log")?;
        let mut command = Command::new("dockerd");
        command.arg("--data-root").arg(dir.path().join("data"));
        command.arg("--exec-root").arg(dir.path().join("exec"));
        command.arg("--pidfile").arg(dir.path().join("pid"));
        command.arg("--host").arg(format!("unix://{}", socket.display()));
        command.args(["--iptables=false", "--ip6tables=false", "--bridge=none"]);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let daemon = command.spawn().context("start dockerd")?;
        let client = Client::new(Peer::Unix(socket));
        let mut docker = Self {
            daemon,
            client,
            interpreter: rootfs.interpreter.clone(),
            dir,
            version: String::new(),
        };
        match docker.prepare(rootfs).await {
            Ok(version) => {
                docker.version = version;
                Ok(docker)
            }
            Err(error) => {
                let words = docker.last_words();
                drop(docker.stop().await);
                Err(error.context(format!("dockerd does not work here: {words}")))
            }
        }
    }

    async fn prepare(&mut self, rootfs: &Rootfs) -> Result<String> {
        let began = Instant::now();
        let version = loop {
            let asked = self.client.send(Method::GET, "/version", "", "").await;
            if let Ok(answer) = asked.and_then(crate::http::Answer::good) {
                let version: Value = serde_json::from_slice(&answer.body)?;
                let info = self.client.send(Method::GET, "/info", "", "").await?.good()?;
                let info: Value = serde_json::from_slice(&info.body)?;
                break format!(
                    "{} ({}, cgroup {})",
                    version["Version"].as_str().unwrap_or("?"),
                    info["Driver"].as_str().unwrap_or("?"),
                    info["CgroupDriver"].as_str().unwrap_or("?")
                );
            }
            if let Some(status) = self.daemon.try_wait()? {
                bail!("it ended at once ({status})");
            }
            ensure!(began.elapsed() < PATIENCE, "it does not answer");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let tar = Command::new("tar").arg("-C").arg(&rootfs.root).args(["-c", "."]).output();
        let tar = tar.await.context("pack the base layer")?;
        ensure!(tar.status.success(), "tar: {}", String::from_utf8_lossy(&tar.stderr).trim());
        let path = format!("/images/create?fromSrc=-&repo={IMAGE}&tag=latest");
        self.client
            .send(Method::POST, &path, "application/x-tar", tar.stdout)
            .await?
            .good()
            .context("import the base layer as an image")?;
        Ok(version)
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        let wrong = |line: &&str| line.contains("level=error") || line.contains("failed");
        let line = log.lines().rev().find(wrong).or_else(|| log.lines().last());
        line.unwrap_or("it said nothing").to_owned()
    }

    async fn once(&self) -> Result<Shot> {
        let command: Vec<_> = std::iter::once(self.interpreter.as_str()).chain(NO_OP).collect();
        let wish = json!({
            "Image": IMAGE,
            "Cmd": command,
            "AttachStdout": true,
            "NetworkDisabled": true,
            "HostConfig": {
                "NetworkMode": "none",
                "LogConfig": { "Type": "none" },
                "Memory": 536_870_912,
                "PidsLimit": 64
            }
        });
        let wish = serde_json::to_vec(&wish).context("describe the container")?;
        let made = self.client.send(Method::POST, "/containers/create", "application/json", wish);
        let made: Value = serde_json::from_slice(&made.await?.good().context("create")?.body)?;
        let id = made["Id"].as_str().context("the container has no id")?.to_owned();
        let outcome = self.run(&id).await;
        let container = format!("/containers/{id}?force=1");
        let gone = self.client.send(Method::DELETE, &container, "", "").await;
        gone?.good().context("remove")?;
        Ok(Shot::plain(outcome?))
    }

    async fn run(&self, id: &str) -> Result<Instant> {
        let attach = format!("/containers/{id}/attach?stream=1&stdout=1");
        let (connection, response) = self.client.stream(Method::POST, &attach).await?;
        ensure!(response.status().is_success(), "attach: {}", response.status());
        let start = format!("/containers/{id}/start");
        self.client.send(Method::POST, &start, "", "").await?.good().context("start")?;
        let mut body = response.into_body();
        let mut first = None;
        let mut said = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.context("the container's output broke off")?;
            first.get_or_insert_with(Instant::now);
            said.extend_from_slice(frame.data_ref().map_or(&[][..], |data| &data[..]));
        }
        drop(connection);
        // A frame of the engine's own: eight bytes of head, then what was said.
        ensure!(said.last() == Some(&b'x'), "the container said nothing");
        first.context("the container said nothing")
    }

    /// Stops the engine and removes what it made.
    pub(crate) async fn stop(mut self) -> Result<()> {
        let pid = self.daemon.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            // Already gone is as good.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let ended = tokio::time::timeout(PATIENCE, self.daemon.wait()).await;
        ended.context("dockerd does not stop")??;
        unmount_below(self.dir.path()).await;
        self.dir.close().context("remove the engine's directory")?;
        for hierarchy in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            // Left behind by the engine, empty: others' are not, and stay.
            let _ = fs::remove_dir(hierarchy.path().join("docker"));
        }
        Ok(())
    }
}

/// The engine leaves its namespaces' directory mounted when it made one.
async fn unmount_below(dir: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let ours = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
    let mut ours: Vec<_> = ours.filter(|at| at.starts_with(dir)).collect();
    ours.sort();
    for at in ours.iter().rev() {
        drop(Command::new("umount").arg(at).status().await);
    }
}

impl Target for Docker {
    fn name(&self) -> &'static str {
        "Docker"
    }

    fn shoot(&self, _client: usize) -> Pending<'_, Shot> {
        Box::pin(self.once())
    }
}
