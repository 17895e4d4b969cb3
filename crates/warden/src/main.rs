//! `wool-warden`: started by `wool up`, never by hand.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, getppid, setsid};
use sys::probe::Kernel;
use warden::isolation::{Isolation, RootMount};
use warden::process::beside;
use warden::process::detach::StarterPipe;
use warden::process::guardian::Guardian;
use warden::process::shared_namespaces::SharedNamespaces;
use warden::protocol::Layout;
use warden::recover;
use warden::rootfs::Roots;
use warden::state::Warden;
use warden::state_directory::{StateDirectory, StateError};
use warden::uids::{Share, Uids};

struct Arguments {
    state: PathBuf,
    task: Task,
    isolation: Isolation,
    detach: bool,
    awaits: bool,
}

/// Enough for the maximum number of sandboxes.
const DESCRIPTORS: u64 = 1 << 17;

enum Task {
    /// Serve the worker that listens at this socket.
    Serve(PathBuf),
    /// Remove what a killed warden has left, and end: `wool clean`.
    Clear,
}

fn main() -> Result<()> {
    let arguments = arguments()?;
    if !rustix::process::geteuid().is_root() {
        bail!("wool-warden must run as root: `wool up` starts it through sudo");
    }
    // First of all: the process that connects is the one that stays.
    let detached = if arguments.detach { Some(StarterPipe::from_starter()?) } else { None };
    // A session of its own, and with it an automatic group of the scheduler (sched(7)). Refused
    // where the process leads a session already.
    let _ = setsid();
    sys::process::set_undumpable().context("become undumpable")?;
    beside::note_own_path().context("find this program")?;
    // Before anything of the state directory is opened: mounts are made on directories that were
    // opened in this namespace.
    own_mount_namespace().context("make a private mount namespace")?;
    let state = StateDirectory::open(&arguments.state)?;
    if let Some(uid) = asked_by()? {
        state.must_be_of(uid)?;
    }
    let starter = if arguments.awaits { Some(Starter::note()) } else { None };
    let turn = until(starter.as_ref(), || recover::await_turn(&state))
        .context("wait for another warden of this state directory")?;
    // Where the starter has ended, it has said why: that is to be the last line.
    let Some(turn) = turn else { return Ok(()) };
    let worker = match &arguments.task {
        Task::Serve(socket) => {
            let worker = until(starter.as_ref(), || state.connect(socket))
                .with_context(|| format!("reach the worker at {}", socket.display()))?;
            let Some(worker) = worker else { return Ok(()) };
            worker
        }
        Task::Clear => {
            recover::clear(state.cgroup_name());
            return Ok(());
        }
    };
    let isolation = arguments.isolation;
    let served = socket_peercred(&worker)?.uid;
    if !isolation.without.is_empty() && !served.is_root() {
        bail!("only a worker that root runs may switch a defence off: leave `unsafe-without` out");
    }
    // A worker chooses layers and sees their content: they must belong to its own user.
    state.must_be_of(served.as_raw())?;
    let descriptors = sys::descriptors::raise(DESCRIPTORS);

    let layers = state.directory("layers")?;
    let (empty, stages) = (state.directory("run/empty")?, state.directory("run/stages")?);

    let cgroups = recover::fresh_cgroups(state.cgroup_name(), isolation);
    let roots = Roots::new(layers, stages.as_fd(), isolation)?;
    // From 6.15 on a pidfd tells how its process ended. Recipes with staged roots work as on older
    // kernels.
    let reap = isolation.root == RootMount::Staged || Kernel::running() < Kernel(6, 15);
    let namespaces = SharedNamespaces::new(empty, reap, isolation)?;
    let uids = Uids::of(Share::take().context("take kernel uids")?);
    let frozen_stay = cgroups.layout() == Layout::V1;
    let mut warden = Warden::new(namespaces, roots, cgroups, uids, isolation, descriptors);
    let guardian = match frozen_stay {
        true => {
            let started = Guardian::start(state.cgroup_name(), turn.as_fd());
            Some(started.context("start the guardian")?)
        }
        false => None,
    };
    if let Some(detached) = detached {
        detached.release_starter();
    }
    let served = warden.serve(worker.as_fd()).context("serve the worker");
    drop(warden);
    // Last: until everything is removed the warden may still be killed.
    drop(guardian);
    Share::clear();
    served
}

fn arguments() -> Result<Arguments> {
    let (mut state, mut task, mut isolation) = (None, None, Isolation::default());
    let (mut detach, mut awaits) = (false, false);
    let mut given = std::env::args_os().skip(1);
    while let Some(name) = given.next() {
        match name.to_str() {
            Some("--state") => state = given.next(),
            Some("--socket") => task = given.next().map(|path| Task::Serve(path.into())),
            Some("--clear") => task = Some(Task::Clear),
            // When sudo starts it.
            Some("--detach") => detach = true,
            // When root has started the warden for a worker of another account.
            Some("--await") => awaits = true,
            Some("--isolation") => {
                let text = given.next().unwrap_or_default();
                isolation = text.to_string_lossy().parse().context("--isolation")?;
            }
            _ => bail!(
                "usage: wool-warden --state DIR (--socket PATH [--detach | --await] [--isolation WHICH] | --clear); started by `wool up`"
            ),
        }
    }
    let state = state.map(PathBuf::from).context("--state is missing")?;
    Ok(Arguments { state, task: task.context("--socket is missing")?, isolation, detach, awaits })
}

/// The user who has started this through sudo, which always sets it. A `wool` that root runs clears
/// what an earlier sudo has set.
fn asked_by() -> Result<Option<u32>> {
    let Some(said) = std::env::var_os("SUDO_UID") else { return Ok(None) };
    let uid = said.to_str().and_then(|text| text.parse().ok());
    uid.map(Some).context("SUDO_UID is no number: start this with `wool up`")
}

/// The process that has started this warden, and will become its worker.
struct Starter {
    process: Option<Pid>,
    since: Instant,
}

/// How long a starter may take to become a worker that listens.
const STARTER_TIMEOUT: Duration = Duration::from_secs(60);

impl Starter {
    fn note() -> Self {
        Self { process: getppid(), since: Instant::now() }
    }

    fn waits(&self) -> bool {
        self.since.elapsed() < STARTER_TIMEOUT
    }

    fn has_ended(&self) -> bool {
        getppid() != self.process
    }
}

/// Retries while the starter is not the worker yet; tries once if there is no starter. None: the
/// starter has ended.
fn until<T>(
    starter: Option<&Starter>,
    mut step: impl FnMut() -> Result<T, StateError>,
) -> Result<Option<T>, StateError> {
    loop {
        match step() {
            Ok(done) => return Ok(Some(done)),
            Err(error) if !error.may_pass() => return Err(error),
            Err(_) if starter.is_some_and(Starter::has_ended) => return Ok(None),
            Err(_) if starter.is_some_and(Starter::waits) => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Makes mounts of this process invisible outside, and mounts outside invisible here.
fn own_mount_namespace() -> std::io::Result<()> {
    use rustix::mount::{MountPropagationFlags, mount_change};
    sys::namespace::unshare(libc::CLONE_NEWNS)?;
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}
