//! No-op functions, each different, deployed over HTTP into a template state that is kept from run to run.
//!
//! Deploying inspects and compiles with a Python process, a tenth of a second each on two cores. The template is keyed by
//! the binaries, so that no run measures another build's guest; workers get copies of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Instant, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use hyper::Method;
use tokio::process::Command;

use crate::load::Target as _;
use crate::worker::Worker;

/// A function that no measurement calls.
pub(crate) const WARMER: &str = "warmer";

/// At a time: one for each processor would leave them waiting for the disk.
const DEPLOYS: usize = 4;

/// The function of this number.
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

/// The template with at least `wanted` functions; makes what is missing.
pub(crate) async fn template(work: &Path, wool: &Path, wanted: usize) -> Result<PathBuf> {
    let state = work.join(format!("template-{}", key(wool)?));
    let there = count(&state)?;
    if there >= wanted {
        return Ok(state);
    }
    // Of other builds.
    if there == 0 {
        remove_templates(work)?;
    }
    fs::create_dir_all(&state).context("make the template")?;
    build_base(wool, &state).await?;
    let worker = Worker::start("template", wool, &state, &[("zygotes", "none")]).await?;
    deploy(&worker, WARMER, 0).await?;
    deploy_all(&worker, there..wanted).await?;
    worker.settle().await?;
    worker.stop().await?;
    fs::write(count_file(&state), format!("{wanted}\n")).context("write the template's count")?;
    Ok(state)
}

async fn deploy_all(worker: &Worker, numbers: std::ops::Range<usize>) -> Result<()> {
    let (began, wanted) = (Instant::now(), numbers.len());
    let deploys = stream::iter(numbers)
        .map(|number| async move { deploy(worker, &name(number), number).await });
    let mut done = 0usize;
    let mut deploys = std::pin::pin!(deploys.buffer_unordered(DEPLOYS));
    while deploys.try_next().await?.is_some() {
        done += 1;
        if done.is_multiple_of(100) {
            let seconds = began.elapsed().as_secs_f64();
            eprintln!(
                "deployed {done} of {wanted} functions ({seconds:.0} s; kept for further runs)"
            );
        }
    }
    Ok(())
}

async fn deploy(worker: &Worker, name: &str, number: usize) -> Result<()> {
    let source = format!("N = {number}\n\n\ndef handler(event, context):\n    return {{}}\n");
    let path = format!("/v1/functions/{name}?module=noop");
    let sent = worker.client().send(Method::PUT, &path, "text/x-python", source).await?;
    sent.good().with_context(|| format!("deploy {name}")).map(drop)
}

/// Makes the base layer that every arm and every baseline runs on.
pub(crate) async fn build_base(wool: &Path, state: &Path) -> Result<()> {
    let status = Command::new(wool).args(["base", "build", "--state"]).arg(state).output().await;
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

fn key(wool: &Path) -> Result<String> {
    let metadata =
        fs::metadata(wool).with_context(|| format!("{} is not built", wool.display()))?;
    let when = metadata.modified().context("the binary has no time")?.duration_since(UNIX_EPOCH)?;
    Ok(format!("{:x}-{:x}", metadata.len(), when.as_nanos()))
}

fn remove_templates(work: &Path) -> Result<()> {
    for entry in fs::read_dir(work).context("look for templates")? {
        let entry = entry.context("look for templates")?;
        if entry.file_name().to_string_lossy().starts_with("template-") {
            fs::remove_dir_all(entry.path()).context("remove another build's template")?;
        }
    }
    Ok(())
}
