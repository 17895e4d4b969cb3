//! `wool up`: the worker, in front or in the background.

use std::fs::OpenOptions;
use std::io::{IsTerminal as _, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use tracing_subscriber::EnvFilter;

use super::terminal::{Display, say};
use super::{client_side, write_json, write_out};
use crate::cli::{Global, Up};
use crate::client::Client;
use crate::config::{self, Config, Flags};
use crate::privilege::drop as privilege;
use crate::privilege::run_as as account;
use crate::state_directory::{Address, State};
use crate::worker::wiring as parts;
use crate::worker::{self, Worker};
use platform::deploy::progress::Progress as _;

/// How long a worker in the background may take until it answers.
const PATIENCE: Duration = Duration::from_secs(60);

/// The same where a person may have to type a password first.
const PATIENCE_WITH_PEOPLE: Duration = Duration::from_secs(360);

pub(super) fn up(global: &Global, up: &Up) -> Result<()> {
    let config = settings(global, up)?;
    if up.warden.is_none()
        && let Some(user) = account::wanted(&config)?
    {
        return Err(account::start_over(&user, &config, up));
    }
    if up.detach && !up.background {
        return client_side(async {
            let address = start_in_background(global, up, Another::Refused).await?;
            if global.json {
                return write_json(&address);
            }
            say(&format!(
                "the worker runs in the background (pid {}); stop it with `wool down{}`",
                address.pid,
                of_state(global)
            ));
            write_out(format!("{}\n", address.url).as_bytes())
        });
    }
    let filter = EnvFilter::try_from_env("WOOL_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let colours = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    log.with_target(false).with_ansi(colours).init();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().on_thread_start(privilege::renounce);
    let runtime = runtime.build().context("cannot start")?;
    let json = global.json;
    let served = runtime.block_on(async {
        let real =
            async |config: &Config, state: &State| parts::real(config, state, up.warden).await;
        let worker = Worker::bind(config, real).await?;
        worker::stop_on_signals(worker.stopper())?;
        privilege::lay_down()?;
        leave_no_core()?;
        if up.background {
            // Away from the terminal, with which it must not end; not before, because sudo may ask for a password there.
            // Fails only for a group's leader, which is away already.
            let _ = rustix::process::setsid();
        }
        if json {
            write_json(&Address { pid: std::process::id(), url: worker.url().to_owned() })?;
        } else {
            say(&format!(
                "wool listens on {}; stop it with Ctrl-C or `wool down{}`",
                worker.url(),
                of_state(global)
            ));
        }
        worker.serve().await
    });
    // Deploys still being made stop here: what they have finished stays, the rest is swept at the next start.
    runtime.shutdown_timeout(Duration::from_secs(1));
    served
}

/// What this process knows is written to no core file, and read by no debugger of the same user's: secrets pass through
/// it. Not before the worker is bound: probing the host takes a child whose `/proc` is ours to write.
fn leave_no_core() -> Result<()> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).context("cannot forbid core files")?;
    // The limit alone does not count where the kernel pipes cores to a program (core(5)).
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("cannot forbid core files")
}

fn flags(global: &Global, up: &Up) -> Flags {
    Flags {
        config: up.config.clone(),
        listen: up.listen.clone(),
        state: global.state.clone(),
        python: up.python.clone(),
        user: up.user.clone(),
        strict: up.strict,
    }
}

/// The settings of a worker that is to be started.
fn settings(global: &Global, up: &Up) -> Result<Config> {
    config::refuse_unknown(std::env::vars_os().map(|(name, _)| name))?;
    Ok(Config::read(&flags(global, up))?)
}

/// Starts a worker that a command needs: on a free port when the configured one is taken, and says so. Its socket finds it
/// all the same.
pub(super) async fn start_beside_others(global: &Global) -> Result<()> {
    let listen = Config::read(&flags(global, &Up::default()))?.listen;
    // Another error is the worker's own to tell.
    let bound = std::net::TcpListener::bind(listen);
    let free = !bound.is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse);
    let elsewhere = std::net::SocketAddr::new(listen.ip(), 0).to_string();
    let up = Up { listen: (!free).then_some(elsewhere), ..Up::default() };
    let Address { url, .. } = start_in_background(global, &up, Another::Used).await?;
    // Another command may have started one there meanwhile.
    if !free && !url.ends_with(&format!("://{listen}")) {
        say(&format!("the worker listens on {url}, because something else listens on {listen}"));
    }
    Ok(())
}

/// What a command that needs a worker does with one that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Another {
    /// It is in the way.
    Refused,
    /// It will do, also while it starts.
    Used,
}

/// Starts a worker that outlives this command, and waits until it answers.
///
/// ```text
///   the right to start ──► no process holds the directory ──► spawn ──► it answers ──► right dropped
///        │ another has it        │ a worker runs, or starts
///        └── waits               └── refused; or waits until it answers, or lets go
/// ```
async fn start_in_background(global: &Global, up: &Up, another: Another) -> Result<Address> {
    // Read here first: what is wrong with the settings is then said here, and not in a log.
    let config = settings(global, up)?;
    if up.warden.is_none() && account::wanted(&config)?.is_some() {
        say_start(global, &config.state);
        return start_for_account(&config, up).await;
    }
    let state = State::open(&config.state)?;
    // No moving bar where sudo may ask for a password.
    let asks = !rustix::process::geteuid().is_root() && up.warden.is_none();
    let patience = if asks { PATIENCE_WITH_PEOPLE } else { PATIENCE };
    let client = Client::of(state.root());
    let (waits, began) = (Waits::default(), Instant::now());
    let starting = loop {
        match state.begin_start()? {
            // Who starts one tells it when it answers, and then it is there for this one, too.
            None if began.elapsed() <= patience => {}
            None => bail!(
                "another command has been starting a worker on {} for {} s: see {}",
                state.root().display(),
                patience.as_secs(),
                state.worker_log().display()
            ),
            Some(starting) if !state.is_held()? => break starting,
            Some(_) => {
                if let (Another::Used, Some(address)) = (another, state.address())
                    && client.healthy().await
                {
                    return Ok(address);
                }
                if another == Another::Refused || began.elapsed() > patience {
                    // Says who it is; or it has just gone.
                    drop(state.hold()?);
                }
            }
        }
        waits.say();
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    if another == Another::Used {
        say_start(global, state.root());
    }
    let address = spawn_and_wait(&state, up, asks, patience).await;
    drop(starting);
    address
}

fn say_start(global: &Global, state: &Path) {
    say(&format!(
        "no worker answers: starting one on {} (stop it with `wool down{}`)",
        state.display(),
        of_state(global)
    ));
}

/// Has a root process of its own become the account, which makes the state directory and the worker.
async fn start_for_account(config: &Config, up: &Up) -> Result<Address> {
    let mut command = worker(&config.state, up)?;
    command.args(["--detach", "--json"]).stdin(Stdio::null()).stderr(Stdio::inherit());
    let started = tokio::process::Command::from(command).output().await;
    let started = started.context("cannot start the worker")?;
    if !started.status.success() {
        bail!("the worker did not start ({}); the reason is above", started.status);
    }
    serde_json::from_slice(&started.stdout).context("the worker's address cannot be read")
}

/// ` --state DIR`, for a command that is to be about the same worker, where that takes it.
pub(super) fn of_state(global: &Global) -> String {
    let quoted = |state: &std::path::PathBuf| {
        let text = state.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
        match text.chars().all(plain) {
            true => format!(" --state {text}"),
            false => format!(" --state '{}'", text.replace('\'', r"'\''")),
        }
    };
    global.state.as_ref().map(quoted).unwrap_or_default()
}

/// Says once that another command is waited for.
#[derive(Debug, Default)]
struct Waits(std::cell::Cell<bool>);

impl Waits {
    fn say(&self) {
        if !self.0.replace(true) {
            say("a worker is being started here: waiting for it");
        }
    }
}

async fn spawn_and_wait(state: &State, up: &Up, asks: bool, patience: Duration) -> Result<Address> {
    let log = state.worker_log();
    // What stands in it was said by earlier starts.
    let before = std::fs::metadata(&log).map_or(0, |log| log.len());
    let mut child = spawn(state, up, &log)?;
    let display = (!asks).then(Display::new);
    match &display {
        Some(display) => display.step("starting the worker"),
        None => say("starting the worker; its warden needs root: sudo may ask for your password"),
    }
    let (client, began) = (Client::of(state.root()), Instant::now());
    loop {
        if let Some(address) = state.address()
            && client.healthy().await
        {
            return Ok(address);
        }
        if let Some(status) = child.try_wait().context("cannot watch the worker")? {
            drop(display);
            bail!(
                "the worker did not start ({status}); the end of {}:\n{}",
                log.display(),
                tail(&log, before)
            );
        }
        if began.elapsed() > patience {
            drop(display);
            // Whatever holds it up: it was started for this command alone.
            drop(child.kill());
            bail!(
                "the worker did not answer within {} s; the end of {}:\n{}",
                patience.as_secs(),
                log.display(),
                tail(&log, before)
            );
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn spawn(state: &State, up: &Up, log: &Path) -> Result<Child> {
    let unwritable = || format!("cannot write {}", log.display());
    let output = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(log)
        .with_context(unwritable)?;
    let errors = output.try_clone().with_context(unwritable)?;
    let mut command = worker(state.root(), up)?;
    command.arg("--background").stdin(Stdio::null()).stdout(output).stderr(errors);
    command.spawn().map_err(|error| anyhow!("cannot start the worker: {error}"))
}

/// `wool up` with these options.
fn worker(state: &Path, up: &Up) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.arg("up").arg("--state").arg(state);
    if let Some(listen) = &up.listen {
        command.arg("--listen").arg(listen);
    }
    if let Some(config) = &up.config {
        command.arg("--config").arg(config);
    }
    if let Some(python) = &up.python {
        command.arg("--python").arg(python);
    }
    if up.strict {
        command.arg("--strict");
    }
    if let Some(user) = &up.user {
        command.arg("--user").arg(user);
    }
    if let Some(warden) = &up.warden {
        command.arg("--warden").arg(warden.to_string());
    }
    Ok(command)
}

/// The last lines of a file that stand behind so many bytes, as far as they help; and why there may be too few, if nothing can be
/// written to it: on a full disk the reason has no place.
fn tail(path: &Path, before: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = std::fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(4096).max(before)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let mut told = lines[lines.len().saturating_sub(15)..].join("\n");
    let append = || OpenOptions::new().append(true).open(path)?.write_all(b"\n");
    if let Err(error) = append() {
        told.push_str(&format!("\nno more can be written to it: {error}"));
    }
    told
}
