//! The real parts of a worker: containers by way of the warden, and layers on disk. `assembly` puts use cases on them; tests
//! give it other parts.
//!
//! ```text
//!   wool up ──starts, with sudo when not root──► wool-warden        goes when the worker's socket closes
//!      └── Containers (Provider) ──socket──────────┘
//! ```

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use container::{
    Client, ContainerOptions, Containers, Isolation, Layout, WardenOptions, WardenProcess,
};
use layers::Store;
use layers::python::PythonRequest;
use sandbox::Provider;
use tokio::task::JoinHandle;

use crate::config::{BuildFromSource, Config};
use crate::state_directory::State;
use crate::worker::providers::Providers;
use crate::worker::unenforced::{self, Enforcement};
use platform::deploy::builder::BuildSandboxes;
use platform::deploy::installer::Installer;
use platform::deploy::pipeline::Layered;
use platform::deploy::workshop::Workshop;
use platform::limits::Unenforced;
use store_sqlite::FileBundles;

/// What a worker is given: who makes sandboxes, and who makes what they are made of.
#[derive(Debug)]
pub struct Parts {
    /// Who makes sandboxes.
    pub provider: Arc<dyn Provider>,
    /// Who makes versions of bundles.
    pub workshop: Arc<dyn Workshop>,
    /// Who builds packages that have no wheel, when that is wanted.
    pub builds: Option<Arc<BuildSandboxes>>,
    /// The process that the provider depends on, when there is one.
    pub warden: Option<Warden>,
    /// What sandboxes lack here.
    pub unenforced: Vec<Unenforced>,
}

/// The privileged process, as the worker sees it.
#[derive(Debug)]
pub struct Warden {
    /// How many sandboxes it can hold at once.
    pub(crate) sandboxes: u64,
    process: WardenProcess,
    containers: Containers,
    counting: JoinHandle<()>,
}

/// How long a warden may take to remove everything.
const PATIENCE: Duration = Duration::from_secs(15);

/// The parts of a real worker. Starts the warden, unless one waits already: its process.
///
/// # Errors
/// When the layers cannot be opened, or no sandbox can be made on this host.
pub async fn real(config: &Config, state: &State, waiting: Option<i32>) -> Result<Parts> {
    let python = config.python.as_deref().map(PythonRequest::parse).transpose()?;
    let store = Store::open(state.root())?;
    if let Some(python) = &python {
        check_python(&store, python)?;
    }
    let guest = guest_files();
    let options = WardenOptions {
        program: warden_program()?,
        state: state.root().to_owned(),
        isolation: config.internals.container_recipe,
        waiting,
    };
    if config.internals.container_recipe != Isolation::default() {
        let weaker = config.internals.container_recipe.weaker();
        let weaker = if weaker.is_empty() { "nothing".to_owned() } else { weaker.join("; ") };
        tracing::warn!(isolation = %config.internals.container_recipe, weaker, "not the default isolation: for measurements");
    }
    let (socket, process) = container::launch(&options).await?;
    let client = Client::new(socket).await.context("the warden does not answer")?;
    say_which_cgroups(client.host().cgroups);
    let unenforced = unenforced(client.host(), config)?;
    let sandboxes = client.host().sandboxes;
    let options = ContainerOptions {
        slots: config.internals.slots,
        spares: config.internals.spares,
        cpu: config.cpu_bounds(),
    };
    let containers = Containers::bounded(client, options, config.egress_rules());
    let counting = tokio::spawn(count(containers.clone()));
    let provider: Arc<dyn Provider> =
        Arc::new(Providers::new(containers.clone(), state.root(), config));
    let builds = (config.build_from_source == BuildFromSource::Sandbox).then(|| {
        let (memory, timeout) = (config.build_memory(), config.build_timeout.0);
        let (store, spool, guest) = (store.clone(), state.run(), guest.clone());
        Arc::new(BuildSandboxes::new(&provider, store, spool, guest, memory, timeout))
    });
    let bundles = Arc::new(FileBundles::open(&state.bundles())?);
    let (bounds, indexes) = (config.package_bounds(), config.indexes()?);
    let installer = Installer::new(store.clone(), builds.clone(), bounds, indexes);
    Ok(Parts {
        provider,
        workshop: Arc::new(
            Layered::new(store, bundles, guest, python, installer).with_cpu(config.cpu_bounds()),
        ),
        builds,
        warden: Some(Warden { sandboxes, process, containers, counting }),
        unenforced,
    })
}

/// The guest's files, its native extensions included.
#[must_use]
pub fn guest_files() -> Vec<(&'static str, &'static [u8])> {
    [sandbox::guest::FILES, container::NATIVE].concat()
}

/// Refuses a Python that no function could run on: none that fits is here, neither as a base nor to make one of.
fn check_python(store: &Store, python: &PythonRequest) -> Result<()> {
    if layers::base::find(store, python)?.is_none() {
        layers::python::find(python).context("the setting `python` names none that can be used")?;
    }
    Ok(())
}

/// What is not enforced here; with `strict`, an error that names it.
fn unenforced(host: &container::Host, config: &Config) -> Result<Vec<Unenforced>> {
    let probed = sys::probe::Host::probe();
    let enforcement = Enforcement::of_warden(host.cgroups, host.cpu, &probed, host.isolation);
    let missing = enforcement.unenforced();
    if missing.is_empty() {
        return Ok(missing);
    }
    let listed = unenforced::listed(&missing);
    if config.strict {
        bail!(
            "this host does not enforce {listed}; put that right, or leave `strict` out to start without"
        );
    }
    tracing::warn!(missing = listed, "not everything is enforced on this host");
    Ok(missing)
}

fn say_which_cgroups(layout: Layout) {
    match layout {
        Layout::V1 => tracing::info!("cgroups: version 1"),
        Layout::V2 => tracing::info!("cgroups: version 2, at the top of the hierarchy"),
        Layout::V2Delegated => tracing::info!("cgroups: version 2, below the delegated group"),
        Layout::None => tracing::warn!(
            "no cgroups: no limit of memory or processes is enforced and nothing is paused; `wool doctor` says why"
        ),
    }
}

impl Warden {
    /// Waits until the warden ends while it is still needed; for ever when there is none.
    pub(crate) async fn lost(warden: &mut Option<Self>) -> String {
        match warden {
            Some(warden) => {
                format!("the warden is gone{}", describe(warden.process.ended().await))
            }
            None => std::future::pending().await,
        }
    }

    /// Waits until the warden has removed everything and gone, though the provider may still be held: a connection that was cut,
    /// a deploy that goes on.
    pub(crate) async fn gone(mut self) {
        self.counting.abort();
        self.containers.close();
        match tokio::time::timeout(PATIENCE, self.process.ended()).await {
            Ok(Ok(status)) if status.is_none_or(|status| status.success()) => {}
            Ok(status) => tracing::warn!("the warden ended badly{}", describe(status)),
            Err(_) => tracing::warn!("the warden is still at work; it ends by itself"),
        }
    }
}

/// How it ended, in brackets, where that is known.
fn describe(status: std::io::Result<Option<ExitStatus>>) -> String {
    match status {
        Ok(Some(status)) => format!(" ({status})"),
        Ok(None) => String::new(),
        Err(error) => format!(" ({error})"),
    }
}

/// Keeps the provider's count of sandboxes that are going fresh, for status and metrics.
async fn count(containers: Containers) {
    let mut every = tokio::time::interval(Duration::from_secs(2));
    loop {
        every.tick().await;
        if containers.count_reaping().await.is_err() {
            return;
        }
    }
}

/// The privileged program: it lies beside this one.
///
/// # Errors
/// When this program cannot find itself.
pub fn warden_program() -> Result<PathBuf> {
    beside_us("wool-warden")
}

/// The proxy of functions that may reach something: it lies there, too.
///
/// # Errors
/// When this program cannot find itself.
pub fn proxy_program() -> Result<PathBuf> {
    beside_us("wool-egress")
}

/// The micro-VMs' monitor: it lies there, too.
///
/// # Errors
/// When this program cannot find itself.
pub fn monitor_program() -> Result<PathBuf> {
    beside_us("wool-vmm")
}

fn beside_us(program: &str) -> Result<PathBuf> {
    let us = std::env::current_exe().context("cannot find this program")?;
    Ok(us.parent().unwrap_or(Path::new("/")).join(program))
}
