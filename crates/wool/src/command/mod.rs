//! The commands of `wool`: each a client of a worker, except those that start or remove one.

mod audit;
mod base;
mod call;
mod deploy;
mod env;
mod event;
mod list;
mod logs;
mod pack;
mod packages;
mod release;
mod remove;
mod run;
mod secret;
mod stop;
mod terminal;
mod tls;
mod token;
mod unikernel;
mod up;
mod zygotes;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use hyper::StatusCode;

use crate::cli::{Cli, Command, Global, Unikernel};
use crate::client::{Client, ClientError};
use crate::config::{Config, ConfigError, Flags};
use crate::doctor;
use crate::state_directory as state;
use doors::native as api;

/// Runs a command and says how it ended.
#[must_use]
pub fn main(cli: Cli) -> ExitCode {
    match dispatch(cli) {
        Ok(code) => code,
        // The reader of our output has gone, for example `head`: nothing is wrong.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::complain(&error);
            ExitCode::from(status_of(&error))
        }
    }
}

fn dispatch(cli: Cli) -> Result<ExitCode> {
    let Cli { global, command } = cli;
    let done = match command {
        // Its exit status is the program's.
        Command::Unikernel(Unikernel::Run(run)) => return client_side(unikernel::run(&run)),
        Command::Up(up) => up::up(&global, &up),
        Command::Down(down) => client_side(stop::down(&global, &down)),
        Command::Clean(clean) => client_side(stop::clean(&global, &clean)),
        Command::Run(run) => client_side(run::run(&global, &run)),
        Command::Deploy(deploy) => client_side(deploy::deploy(&global, &deploy)),
        Command::Invoke(invoke) => client_side(call::invoke(&global, &invoke)),
        Command::Ls(ls) => client_side(list::list(&global, &ls)),
        Command::Rm(rm) => client_side(remove::remove(&global, &rm)),
        Command::Versions(of) => client_side(release::versions(&global, &of)),
        Command::Publish(publish) => client_side(release::publish(&global, &publish)),
        Command::Unpublish(unpublish) => client_side(release::unpublish(&global, &unpublish)),
        Command::Alias(alias) => client_side(release::alias(&global, &alias)),
        Command::Rollback(to) => client_side(release::roll_back(&global, &to)),
        Command::Logs(logs) => client_side(logs::logs(&global, &logs)),
        Command::Packages(packages) => client_side(packages::packages(&global, &packages)),
        Command::Env => client_side(env::env(&global)),
        Command::Zygotes => client_side(zygotes::zygotes(&global)),
        Command::Token(token) => client_side(token::token(&global, &token)),
        Command::Secret(secret) => client_side(secret::secret(&global, &secret)),
        Command::Audit(audit) => client_side(audit::audit(&global, &audit)),
        Command::Tls(tls) => tls::tls(&global, &tls),
        Command::Base(base) => base::base(&global, &base),
        Command::Doctor(doctor) => {
            // What is wrong with the settings is one of the things that it tells.
            let root = state_root(&global).unwrap_or_else(|_| state::default_root());
            doctor::doctor(&root, doctor.microvm, global.json)
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "wool", &mut script);
            write_out(&script)
        }
        Command::Openapi => write_out(
            format!("{}\n", api::openapi().to_pretty_json().context("cannot describe the API")?)
                .as_bytes(),
        ),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Runs a client: one thread is enough.
fn client_side<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start")?.block_on(work)
}

fn client(global: &Global) -> Result<Client> {
    let client = match &global.url {
        Some(url) => Client::at(url)?,
        None => Client::of(&state_root(global)?),
    };
    let client = client.with_token(token::shown(global)?).trusting(global.ca.clone());
    Ok(client.for_tenant(global.tenant.clone()))
}

/// The state directory that was said, or the one that a worker of this user would take.
///
/// # Errors
/// When the settings that say so are not valid: another directory may be another worker's.
fn state_root(global: &Global) -> Result<PathBuf> {
    if let Some(state) = &global.state {
        return Ok(state.clone());
    }
    match Config::read(&Flags::default()) {
        Ok(config) => Ok(config.state),
        // Settings of root's worker, which this user may not read.
        Err(ConfigError::Unreadable { source, .. })
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            Ok(state::default_root())
        }
        Err(error) => Err(error.into()),
    }
}

fn status_of(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<ClientError>() {
        Some(
            ClientError::NoWorker { .. } | ClientError::Hung { .. } | ClientError::Gone { .. },
        ) => 3,
        Some(ClientError::Refused { status: StatusCode::BAD_GATEWAY, .. }) => 4,
        Some(ClientError::Refused { status: StatusCode::GATEWAY_TIMEOUT, .. }) => 5,
        _ => 1,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().map(io::Error::kind)
    };
    // Only ours: a broken connection to the worker has its own error around it.
    error.downcast_ref::<ClientError>().is_none()
        && error.chain().any(|cause| kind(cause) == Some(io::ErrorKind::BrokenPipe))
}

/// Writes to stdout.
fn write_out(bytes: &[u8]) -> Result<()> {
    let mut stdout = io::stdout().lock();
    Ok(stdout.write_all(bytes).and_then(|()| stdout.flush())?)
}

/// Writes a value as JSON to stdout.
fn write_json(value: &impl serde::Serialize) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    write_out(&text)
}
