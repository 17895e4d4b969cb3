//! Functions deployed over HTTP into template states that are kept from run to run.
//!
//! Deploying inspects and compiles with a Python process, a tenth of a second each on two cores. A template is keyed by
//! the binaries, so that no run measures another build's guest; workers get copies of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Instant, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use hyper::Method;
use tokio::process::Command;

use crate::load::Target as _;
use crate::worker::Worker;

/// A function that no measurement calls.
pub(crate) const WARMER: &str = "warmer";

/// At a time: one for each processor would leave them waiting for the disk.
const DEPLOYS: usize = 4;

/// Functions without packages among those deployed last: for them a worker has fresh interpreters when it starts.
const PREPARED: usize = 8;

/// A function to be deployed.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    /// Under which name.
    pub(crate) name: String,
    /// Its source, in Python.
    pub(crate) source: String,
}

/// Functions of one kind, which a template is made of: as many as an experiment wants.
pub(crate) trait Kind {
    /// Names the template: other functions, another name.
    fn name(&self) -> String;

    /// The function of this number.
    fn function(&self, number: usize) -> Result<Function>;

    /// Variables of the worker that they are deployed with: which package index it asks.
    fn environment(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

/// No-op functions, each different.
#[derive(Debug)]
pub(crate) struct Noops;

impl Kind for Noops {
    fn name(&self) -> String {
        "noops".to_owned()
    }

    fn function(&self, number: usize) -> Result<Function> {
        Ok(noop(name(number), number))
    }
}

/// The no-op function of this number.
pub(crate) fn name(number: usize) -> String {
    format!("noop-{number:05}")
}

/// How many numbered functions a state directory holds.
pub(crate) fn count(state: &Path) -> Result<usize> {
    match fs::read_to_string(count_file(state)) {
        Ok(text) => text.trim().parse().context("the template's count is no number"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error).context("read the template's count"),
    }
}

fn count_file(state: &Path) -> PathBuf {
    state.join("logs/bench-functions")
}

/// The template with the base layer, the warmer and nothing else; made when it is not there, of `python` if one is asked
/// for.
pub(crate) async fn base(work: &Path, wool: &Path, python: Option<&str>) -> Result<PathBuf> {
    let state = template_of(work, wool, "base")?;
    if count_file(&state).exists() {
        return Ok(state);
    }
    remove_others(work, wool)?;
    fs::create_dir_all(&state).context("make the template")?;
    build_base(wool, &state, python).await?;
    let worker = Worker::start("template", wool, &state, &[("zygotes", "none")], &[]).await?;
    deploy(&worker, &noop(WARMER.to_owned(), 0)).await?;
    worker.stop().await?;
    fs::write(count_file(&state), "0\n").context("write the template's count")?;
    Ok(state)
}

/// The template with at least `wanted` functions of a kind; makes what is missing.
pub(crate) async fn template(
    work: &Path,
    wool: &Path,
    kind: &dyn Kind,
    wanted: usize,
) -> Result<PathBuf> {
    let state = template_of(work, wool, &kind.name())?;
    if !state.exists() {
        copy(&template_of(work, wool, "base")?, &state).await?;
    }
    let there = count(&state)?;
    if there >= wanted {
        return Ok(state);
    }
    let environment = kind.environment();
    let settings = [("zygotes", "none")];
    let worker = Worker::start("template", wool, &state, &settings, &environment).await?;
    deploy_all(&worker, kind, there..wanted).await?;
    // The fresh interpreter that a start makes is of no function that is measured.
    for number in 0..PREPARED {
        deploy(&worker, &noop(format!("last-{number}"), wanted)).await?;
    }
    worker.settle().await?;
    worker.stop().await?;
    fs::write(count_file(&state), format!("{wanted}\n")).context("write the template's count")?;
    Ok(state)
}

async fn deploy_all(
    worker: &Worker,
    kind: &dyn Kind,
    numbers: std::ops::Range<usize>,
) -> Result<()> {
    let (began, wanted) = (Instant::now(), numbers.len());
    let deploys = stream::iter(numbers)
        .map(|number| async move { deploy(worker, &kind.function(number)?).await });
    let mut done = 0usize;
    let mut deploys = std::pin::pin!(deploys.buffer_unordered(DEPLOYS));
    while deploys.try_next().await?.is_some() {
        done += 1;
        if done.is_multiple_of(100) || done == wanted {
            let seconds = began.elapsed().as_secs_f64();
            eprintln!(
                "deployed {done} of {wanted} functions ({seconds:.0} s; kept for further runs)"
            );
        }
    }
    Ok(())
}

fn noop(name: String, number: usize) -> Function {
    let source = format!("N = {number}\n\n\ndef handler(event, context):\n    return {{}}\n");
    Function { name, source }
}

/// Deploys one.
pub(crate) async fn deploy(worker: &Worker, function: &Function) -> Result<()> {
    let path = format!("/v1/functions/{}?module=function", function.name);
    let body = Bytes::from(function.source.clone());
    let sent = worker.control().send(Method::PUT, &path, "text/x-python", body).await?;
    sent.good().with_context(|| format!("deploy {}", function.name)).map(drop)
}

/// Makes the base layer that every arm and every baseline runs on.
async fn build_base(wool: &Path, state: &Path, python: Option<&str>) -> Result<()> {
    let mut command = Command::new(wool);
    command.args(["base", "build", "--state"]).arg(state);
    command.args(python);
    let status = command.output().await;
    let output = status.with_context(|| format!("start {}", wool.display()))?;
    ensure!(
        output.status.success(),
        "`wool base build` failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// A copy of the template for one worker.
pub(crate) async fn copy(template: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("cp");
    command.args(["-a", "--reflink=auto", "--"]).arg(template).arg(to);
    let status = command.status().await.context("start cp")?;
    ensure!(status.success(), "cannot copy {} to {}", template.display(), to.display());
    Ok(())
}

fn template_of(work: &Path, wool: &Path, kind: &str) -> Result<PathBuf> {
    Ok(work.join(format!("template-{}-{kind}", key(wool)?)))
}

fn key(wool: &Path) -> Result<String> {
    let metadata =
        fs::metadata(wool).with_context(|| format!("{} is not built", wool.display()))?;
    let when = metadata.modified().context("the binary has no time")?.duration_since(UNIX_EPOCH)?;
    Ok(format!("{:x}-{:x}", metadata.len(), when.as_nanos()))
}

/// Removes the templates of other builds.
fn remove_others(work: &Path, wool: &Path) -> Result<()> {
    let ours = format!("template-{}-", key(wool)?);
    for entry in fs::read_dir(work).context("look for templates")? {
        let entry = entry.context("look for templates")?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("template-") && !name.starts_with(&ours) {
            fs::remove_dir_all(entry.path()).context("remove another build's template")?;
        }
    }
    Ok(())
}
