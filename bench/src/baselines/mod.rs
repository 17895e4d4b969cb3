//! What others do: each on the same base layer, the same interpreter and the same bytecode as the worker's sandboxes,
//! each doing the same as a no-op function: start a Python that says one byte.

pub(crate) mod bubblewrap;
pub(crate) mod docker;
pub(crate) mod fresh_interpreter;
pub(crate) mod installers;
pub(crate) mod os_fork;
pub(crate) mod rootfs;
pub(crate) mod runc;

use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::load::Shot;

/// What every baseline runs.
pub(crate) const NO_OP: [&str; 4] = ["-I", "-S", "-c", "import os; os.write(1, b'x')"];

/// Starts a command, waits for its first byte, then for its end.
pub(crate) async fn first_byte(mut command: Command) -> Result<Shot> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().context("start it")?;
    let mut stdout = child.stdout.take().context("it has no output")?;
    let mut byte = [0];
    let read = stdout.read(&mut byte).await.context("read its first byte")?;
    let first = Instant::now();
    let status = child.wait().await.context("wait for it")?;
    ensure!(read == 1 && byte == *b"x", "it said nothing ({status})");
    ensure!(status.success(), "it ended badly: {status}");
    Ok(Shot::plain(first))
}

/// A program's version in its own words; none when it is not installed.
pub(crate) fn version(program: &str) -> Option<String> {
    let output = std::process::Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(str::to_owned)
}
