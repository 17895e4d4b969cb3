//! `wool unikernel run`: a static program on a machine of its own. No worker is asked: the monitor runs as this user, behind
//! a filter.

use std::fs::File;
use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};
use sys::process::die_with_starter;
use tokio::process::Command;

use crate::cli::RunUnikernel;
use crate::worker::wiring::monitor_program;

/// Runs it to its end; the status is the program's own.
pub(super) async fn run(run: &RunUnikernel) -> Result<ExitCode> {
    let program = monitor_program()?;
    let file =
        File::open(&run.file).with_context(|| format!("cannot open {}", run.file.display()))?;
    let mut command = Command::new(&program);
    command.arg("unikernel").arg(&run.argument).args(&run.requests);
    // A killed process drops nothing: its program would go on without end.
    die_with_starter(command.as_std_mut());
    let mut child =
        command.stdin(Stdio::from(file)).kill_on_drop(true).spawn().with_context(|| {
            format!("{} cannot be started; it belongs beside `wool`", program.display())
        })?;
    match tokio::time::timeout(run.timeout.0, child.wait()).await {
        Ok(status) => {
            let status = status.context("cannot wait for the monitor")?;
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            Ok(ExitCode::from(code.unwrap_or(1)))
        }
        // It goes with the child.
        Err(_) => bail!("it did not end within {}: --timeout allows more", run.timeout),
    }
}
