//! `wool down` and `wool clean`.

use std::fs;
use std::io::{self, BufRead as _, IsTerminal as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use hyper::Method;

use super::terminal::{Display, say};
use super::{state_root, write_json};
use crate::cli::{Clean, Down, Global};
use crate::client::{Client, ClientError};
use crate::privilege::as_owner::{self as owner, AsOwner};
use crate::state_directory::{self as state, Hold, State, StateError};
use crate::worker::wiring as parts;
use platform::deploy::progress::Progress as _;

pub(super) async fn down(global: &Global, down: &Down) -> Result<()> {
    let root = state_root(global)?;
    let _owner = AsOwner::of(&root)?;
    let stopped = match State::existing(&root)? {
        Some(state) => stop(&state, down.timeout.0).await?.0,
        None => false,
    };
    if global.json {
        return write_json(&serde_json::json!({ "stopped": stopped }));
    }
    let text = if stopped {
        "the worker has stopped".to_owned()
    } else {
        format!("no worker runs on {}", root.display())
    };
    say(&text);
    Ok(())
}

/// Has the worker of a state directory stop and waits until it has let go; false when none runs. No other comes before the
/// hold is dropped.
async fn stop(state: &State, timeout: Duration) -> Result<(bool, Hold)> {
    let client = Client::of(state.root());
    match client.ask(Method::POST, "/v1/stop", &[], Bytes::new()).await {
        Ok(_) => {}
        // No socket, or no listener behind it: the holder of the directory tells whether a worker runs.
        Err(ClientError::NoWorker { source, .. }) => {
            return match state.hold() {
                Ok(hold) => Ok((false, hold)),
                Err(held @ StateError::Busy { .. }) => Err(held).with_context(|| {
                    format!(
                        "a worker runs but its socket does not answer ({source}): end its process"
                    )
                }),
                Err(other) => Err(other.into()),
            };
        }
        Err(other) => return Err(other.into()),
    }
    let display = Display::new();
    display.step("waiting for running calls to end");
    let began = Instant::now();
    loop {
        match state.hold() {
            Ok(hold) => return Ok((true, hold)),
            Err(StateError::Busy { pid, .. }) if began.elapsed() > timeout => {
                bail!(
                    "the worker (pid {pid}) is still there after {} s: look into its log, or end its process",
                    timeout.as_secs()
                )
            }
            Err(StateError::Busy { .. }) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(other) => return Err(other.into()),
        }
    }
}

pub(super) async fn clean(global: &Global, clean: &Clean) -> Result<()> {
    let named = state_root(global)?;
    let root = resolved(&named)?;
    let owner = AsOwner::of(&root)?;
    let Some(state) = State::existing(&root)? else {
        if global.json {
            return write_json(&serde_json::json!({ "removed": false }));
        }
        say(&format!("nothing of ours in {}", root.display()));
        return Ok(());
    };
    if !clean.yes && !confirmed(&root)? {
        bail!("nothing was removed");
    }
    let (_, hold) = stop(&state, Duration::from_secs(60)).await?;
    drop(owner);
    let display = Display::new();
    display.step(&format!("removing {}", root.display()));
    remove(state.root(), hold).await?;
    if root != named {
        // Where it led is gone. Only a link goes, and only one that leads nowhere.
        let led = fs::symlink_metadata(&named).is_ok_and(|it| it.is_symlink()) && !named.exists();
        if led {
            fs::remove_file(&named)
                .with_context(|| format!("cannot remove the link {}", named.display()))?;
        }
    }
    display.finish();
    if global.json {
        return write_json(&serde_json::json!({ "removed": true }));
    }
    say(&format!("removed {}", root.display()));
    Ok(())
}

/// The directory itself, where a link to it was named: what is emptied is then what is removed, and not the link.
fn resolved(named: &Path) -> Result<PathBuf> {
    let found = match fs::symlink_metadata(named) {
        Ok(found) if found.is_symlink() => found,
        // Whether it is there is looked at next.
        _ => return Ok(named.to_owned()),
    };
    if rustix::process::geteuid().is_root() && found.uid() != 0 {
        bail!(
            "{} is a link of user {}, which root does not follow: name the directory that it leads to",
            named.display(),
            found.uid()
        );
    }
    named.canonicalize().with_context(|| format!("cannot see where {} leads", named.display()))
}

/// Removes a state directory that no worker can take meanwhile.
async fn remove(root: &Path, hold: Hold) -> Result<()> {
    // Before the directory goes: what a killed warden left is found by it.
    let cleared = match parts::warden_program() {
        Ok(program) => container::clear_leftovers(&program, root).await.map_err(Into::into),
        Err(error) => Err(error),
    };
    let cannot = || format!("cannot remove {}: is all of it its owner's?", root.display());
    let owner = AsOwner::of(root)?;
    let emptied = cleared.and_then(|()| owner::empty(root, &state::LAST).with_context(cannot));
    // What it tidies at its end is the owner's as well.
    drop(hold);
    drop(owner);
    emptied?;
    // Follows no link, and takes nothing that is not empty: a worker may have been started in this moment.
    match fs::remove_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            bail!("{} was taken into use again while it was removed", root.display())
        }
        other => other.with_context(cannot),
    }
}

fn confirmed(root: &Path) -> Result<bool> {
    if !io::stdin().is_terminal() {
        bail!("this removes {} with all functions, packages and logs: say --yes", root.display());
    }
    say(&format!(
        "This removes {} with all functions, packages and logs. Go on? [y/N]",
        root.display()
    ));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).context("cannot read the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
