//! A worker that root starts and that does not stay root: only its warden does.
//!
//! ```text
//!   root   wool up --user NAME ─► wool-warden --await: waits for the worker's socket ─────┐
//!             │ exec, as NAME: the same process                                           │ connects
//!             └────────────────► wool up --warden PID: makes the socket ◄─────────────────┘
//! ```
//! Before anything of the state directory is opened: what belongs to the account is not root's to trust.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, anyhow, bail};
use container::WardenOptions;
use nix::unistd::User;

use crate::cli::Up;
use crate::config::{Config, Flags};
use crate::parts;

/// Variables that lead to places of root's.
const ROOTS: [&str; 6] = [
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    "MAIL",
];

/// Whom the worker is to become; none when it stays who it is.
///
/// # Errors
/// When there is no such account, or this process may not become it.
pub(crate) fn wanted(config: &Config) -> Result<Option<User>> {
    let Some(name) = &config.user else { return Ok(None) };
    let user = User::from_name(name).context("cannot look the account up")?;
    let user = user.ok_or_else(|| {
        anyhow!("there is no account {name:?}: make one with `useradd --system {name}`, or name another with --user")
    })?;
    let ours = rustix::process::geteuid();
    if ours.as_raw() == user.uid.as_raw() {
        return Ok(None);
    }
    if !ours.is_root() {
        bail!("only root can start a worker for {name}: leave --user out, or run this as root");
    }
    Ok(Some(user))
}

/// Starts a warden that waits, and becomes the worker. Returns only with an error.
///
/// # Errors
/// When the state directory is not the account's, or a program cannot be started.
pub(crate) fn start_over(user: &User, config: &Config, up: &Up) -> anyhow::Error {
    match prepare(user, config, up) {
        Ok(mut worker) => {
            let error = worker.exec();
            anyhow::Error::new(error).context(format!("cannot go on as {}", user.name))
        }
        Err(error) => error,
    }
}

fn prepare(user: &User, config: &Config, up: &Up) -> Result<Command> {
    let state = std::path::absolute(&config.state).context("cannot find the state directory")?;
    hand_over(user, &state)?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let options = WardenOptions {
        program: parts::warden_program()?,
        state: state.clone(),
        isolation: config.isolation,
        waiting: None,
    };
    let warden = container::start_waiting(&options, up.detach)?;
    let mut worker = Command::new(program);
    // What was said last counts.
    let said = std::env::args_os().skip(1);
    worker.args(said).args([OsStr::new("--state"), state.as_os_str()]);
    let flags = Flags { config: up.config.clone(), ..Flags::default() };
    if let Some(file) = Config::file(&flags) {
        worker.args([OsString::from("--config"), file.into()]);
    }
    worker.arg("--warden").arg(warden.to_string());
    for name in ROOTS {
        worker.env_remove(name);
    }
    worker.env("HOME", &user.dir).env("USER", &user.name).env("LOGNAME", &user.name);
    // From root this drops the supplementary groups, too.
    worker.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    Ok(worker)
}

/// Makes the state directory the account's where it is new or empty.
fn hand_over(user: &User, state: &Path) -> Result<()> {
    let unusable = || format!("cannot use {}", state.display());
    if let Some(parent) = state.parent() {
        fs::create_dir_all(parent).with_context(unusable)?;
    }
    match DirBuilder::new().mode(0o755).create(state) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(unusable);
        }
        _ => {}
    }
    let owner = fs::symlink_metadata(state).with_context(unusable)?;
    if owner.uid() == user.uid.as_raw() {
        return Ok(());
    }
    let empty = owner.is_dir() && fs::read_dir(state).with_context(unusable)?.next().is_none();
    if owner.uid() != 0 || !empty {
        bail!(
            "{state} belongs to user {}, and the worker is to run as {name}: `chown -R {name}: {state}`, or choose another place with --state DIR",
            owner.uid(),
            name = user.name,
            state = state.display()
        );
    }
    chown(state, Some(user.uid.as_raw()), Some(user.gid.as_raw())).with_context(unusable)
}
