//! A worker of our own: the real binary, started for one arm, spoken to over HTTP.
//!
//! *Cold* means a function never called since its worker started. So each phase starts workers anew, on copies of one
//! template state that holds all functions: deploying two thousand takes longer than measuring them.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use hyper::Method;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::cpu::CpuGroup;
use crate::functions;
use crate::http::{Client, Peer};
use crate::load::{Pending, Shot, Target};

/// A worker that answers, as an arm: each call goes to the next function that was not called yet.
#[derive(Debug)]
pub(crate) struct Worker {
    name: String,
    child: Child,
    state: PathBuf,
    client: Client,
    control: Client,
    group: Option<CpuGroup>,
    functions: usize,
    next: Cell<usize>,
}

/// Longest start of a worker, and longest wait for what calls left behind.
const PATIENCE: Duration = Duration::from_secs(60);

/// A worker that hardly computes for as long as this is at rest.
const QUIET: Duration = Duration::from_millis(10);

impl Worker {
    /// Starts `wool up` on a state directory, with settings as `WOOL_*` variables, and other variables as they are.
    pub(crate) async fn start(
        name: &str,
        wool: &Path,
        state: &Path,
        settings: &[(&str, &str)],
        environment: &[(String, String)],
    ) -> Result<Self> {
        let group = CpuGroup::make(name);
        // A shell joins the group and becomes the worker: nothing of the worker is ever outside.
        let join = match &group {
            Some(_) => "echo $$ > \"$1\" && shift && exec \"$@\"",
            None => "shift && exec \"$@\"",
        };
        let procs = group.as_ref().map(CpuGroup::procs).unwrap_or_default();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", join, "sh"]).arg(procs).arg(wool);
        command.args(["--json", "--state"]).arg(state).args(["up", "--listen", "127.0.0.1:0"]);
        command.env("WOOL_LOG", "warn");
        // What a worker prepares for is nothing that is measured.
        command.env("WOOL_PREPARED", "0");
        for (key, _) in std::env::vars_os().filter(|(key, _)| is_setting(key)) {
            command.env_remove(key);
        }
        for (key, value) in settings {
            command.env(format!("WOOL_{}", key.to_uppercase()), value);
        }
        command.envs(environment.iter().map(|(key, value)| (key, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("start {}", wool.display()))?;
        let said = child.stdout.take().context("the worker has no output")?;
        let url = tokio::time::timeout(PATIENCE, address(said))
            .await
            .context("the worker did not say where it listens")??;
        let address = url.strip_prefix("http://").context("the worker's address is no URL")?;
        Ok(Self {
            name: name.to_owned(),
            child,
            state: state.to_owned(),
            client: Client::new(Peer::Tcp(address.to_owned())),
            control: Client::new(Peer::Unix(state.join("run/wool.sock"))),
            group,
            functions: functions::count(state)?,
            next: Cell::new(0),
        })
    }

    /// Connects, and makes the zygote where there is one: by calling a function that no measurement calls.
    pub(crate) async fn warm(&self, connections: usize) -> Result<()> {
        self.client.warm(connections).await?;
        for _ in 0..3 {
            self.call(functions::WARMER).await?;
        }
        self.settle().await
    }

    /// Opens connections ahead.
    pub(crate) async fn connect(&self, connections: usize) -> Result<()> {
        self.client.warm(connections).await
    }

    /// Its state directory.
    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    /// Calls one function.
    pub(crate) async fn call(&self, function: &str) -> Result<Shot> {
        Ok(self.ask(function, "{}").await?.0)
    }

    /// Calls one function with an event, and returns what it replied, too.
    pub(crate) async fn ask(&self, function: &str, event: &'static str) -> Result<(Shot, Bytes)> {
        self.post(&format!("/run/{function}"), event).await
    }

    /// Calls what is at this path.
    pub(crate) async fn post(&self, path: &str, event: &'static str) -> Result<(Shot, Bytes)> {
        let sent = self.client.send(Method::POST, path, "application/json", event).await?;
        let answer = sent.good()?;
        let shot = Shot {
            first: answer.first,
            done: Instant::now(),
            own: Duration::ZERO,
            imported: 0,
            start: answer.header("lambswool-start"),
            stages: answer.header("server-timing"),
        };
        Ok((shot, answer.body))
    }

    /// Whether more calls were made than there are functions, so that some function was called twice.
    pub(crate) fn came_round(&self) -> bool {
        self.next.get() > self.functions
    }

    /// What `/v1/status` says of the engine.
    pub(crate) async fn status(&self) -> Result<Value> {
        let answer = self.control.send(Method::GET, "/v1/status", "", "").await?.good()?;
        let status: Value = serde_json::from_slice(&answer.body).context("status is no JSON")?;
        Ok(status["engine"].clone())
    }

    async fn nothing_is_going(&self) -> Result<bool> {
        let status = self.status().await?;
        let left = |value: &Value| value.as_u64().unwrap_or(0);
        Ok(left(&status["reaping"]) + left(&status["instances"]["busy"]) == 0)
    }

    /// AWS Lambda's name of the Python that its functions run on: `python3.12`.
    pub(crate) async fn runtime(&self) -> Result<String> {
        let path = format!("/2015-03-31/functions/{}/configuration", functions::name(0));
        let answer = self.control.send(Method::GET, &path, "", "").await?.good()?;
        let function: Value = serde_json::from_slice(&answer.body).context("it is no JSON")?;
        Ok(function["Runtime"].as_str().context("it names no runtime")?.to_owned())
    }

    /// A client of the worker's Unix socket, for what is no call.
    pub(crate) fn control(&self) -> &Client {
        &self.control
    }

    /// The name of the directory that holds its sandboxes' cgroups: as the warden derives it from the state directory.
    pub(crate) fn cgroup_name(&self) -> Result<String> {
        let metadata = fs::metadata(&self.state).context("look at the state directory")?;
        Ok(format!("lambswool-{:x}-{:x}", metadata.dev(), metadata.ino()))
    }

    /// Stops it as `wool down` does.
    pub(crate) async fn stop(mut self) -> Result<()> {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok());
        let pid = pid.and_then(rustix::process::Pid::from_raw).context("the worker is gone")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).context("stop it")?;
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        let status = ended.context("the worker does not stop")??;
        ensure!(status.success(), "the worker ended badly: {status}");
        Ok(())
    }
}

impl Target for Worker {
    fn name(&self) -> &str {
        &self.name
    }

    fn shoot(&self, _client: usize) -> Pending<'_, Shot> {
        let number = self.next.get();
        self.next.set(number + 1);
        Box::pin(async move { self.call(&functions::name(number % self.functions)).await })
    }

    /// Until the worker, its warden and all sandboxes do nothing any more: what was dropped is gone, what is kept
    /// ahead is made anew. The worker's own count of what is going is seconds old.
    fn settle(&self) -> Pending<'_, ()> {
        Box::pin(async {
            let began = Instant::now();
            loop {
                let before = self.group.as_ref().map(CpuGroup::seconds).transpose()?;
                tokio::time::sleep(QUIET).await;
                let after = self.group.as_ref().map(CpuGroup::seconds).transpose()?;
                let quiet = match before.zip(after) {
                    Some((before, after)) => after - before < QUIET.as_secs_f64() / 20.0,
                    None => self.nothing_is_going().await?,
                };
                if quiet {
                    return Ok(());
                }
                ensure!(began.elapsed() < PATIENCE, "{} does not come to rest", self.name);
            }
        })
    }

    fn group(&self) -> Option<&CpuGroup> {
        self.group.as_ref()
    }
}

fn is_setting(key: &OsString) -> bool {
    key.to_string_lossy().starts_with("WOOL_")
}

/// Reads the worker's first words, `{"pid", "url"}`, and keeps reading so that it never waits for us.
async fn address(said: tokio::process::ChildStdout) -> Result<String> {
    let (mut lines, mut text) = (BufReader::new(said), String::new());
    loop {
        if lines.read_line(&mut text).await.context("listen to the worker")? == 0 {
            bail!("the worker ended before it listened; its own words are above");
        }
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            tokio::spawn(async move { drop(lines.read_to_end(&mut Vec::new()).await) });
            return Ok(value["url"].as_str().unwrap_or_default().to_owned());
        }
    }
}
