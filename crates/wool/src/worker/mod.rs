//! The worker: the one place where all parts come together.
//!
//! ```text
//!   open state ► hold it ► registry ► logs ► engine ► bind TCP + Unix socket ► announce ► serve
//!                                                                                       │ SIGTERM, SIGINT, /v1/stop
//!   release state ◄ warden gone ◄ engine stopped, connections closed (at most `drain`) ◄┘
//! ```
//!
//! Nothing of a request depends on a clean end: after `kill -9` the next start finds every acknowledged deploy, and
//! removes the socket and address that the dead one left.

mod assembly;
pub mod capacity;
pub(crate) mod learnt;
pub mod pressure;
pub(crate) mod providers;
pub mod unenforced;
pub mod wiring;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use aws::Service;
use engine::{Engine, EngineConfig, Handler, ZygoteTree};
use futures_util::future;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use sandbox::Provider;
use sys::probe::Host;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::assembly::{Access, Kept, UseCases};
use self::capacity::{Doors, Means};
use crate::config::Config;
use crate::state_directory::{Address, Hold, State};
use crate::worker::learnt::Learnt;
use crate::worker::wiring::{Parts, Warden};
use doors::door::listen::{self, Behind};
use doors::door::tls::{self, Certificates, Front};
use doors::{App, Budgets, Listener};
use platform::access::{Admitted, Issuer, Peer, Remote};
use platform::control::Control;
use platform::deploy::Deployer;
use platform::deploy::builder::BuildSandboxes;
use platform::functions::{Attachments, Function, FunctionReader, LayerVersions, Registry};
use platform::objects::Objects;

/// A worker that listens and does not serve yet.
#[derive(Debug)]
pub struct Worker {
    app: Arc<App>,
    registry: Arc<Registry>,
    engine: Arc<Engine>,
    metrics: PrometheusHandle,
    stop: CancellationToken,
    config: Config,
    state: State,
    doors: Doors,
    provider: Arc<dyn Provider>,
    builds: Option<Arc<BuildSandboxes>>,
    warden: Option<Warden>,
    tcp: TcpListener,
    certificates: Option<Arc<Certificates>>,
    unix: UnixListener,
    hold: Hold,
    /// The tree of zygotes that was given.
    seed: Option<ZygoteTree>,
}

/// Fresh interpreters that are there when the worker starts: one for each tenant, Python and network, of those that deployed
/// functions without packages last.
const INTERPRETERS: usize = 8;

impl Worker {
    /// Takes the state directory, opens what it holds and binds both listeners. `parts` is called once the directory
    /// is this process's.
    ///
    /// # Errors
    /// When another worker is there, the port is taken, or a part does not come up.
    pub async fn bind(
        config: Config,
        parts: impl AsyncFnOnce(&Config, &State) -> Result<Parts>,
    ) -> Result<Self> {
        let state = State::open(&config.state)?;
        let hold = state.hold()?;
        hold.check_databases()?;
        let descriptors = sys::descriptors::raise(0);
        let access = Access::open(&config, &state)?;
        let listening = Listening::bind(config, &state)?;
        let Listening { config, url, tcp, unix, certificates, admitted } = listening;
        let metrics = recorder()?;
        // Later than the listeners: a taken port is the commonest failure, and an upgrade takes its time.
        hold.upgrade(&access.audit)?;
        let kept = Kept::open(&config, &state, access).await?;
        let Parts { provider, workshop, builds, warden, unenforced } =
            parts(&config, &state).await?;
        let seed = assembly::seed(&config)?;
        let held = warden.as_ref().map(|warden| warden.sandboxes);
        let means = Means::of(&Host::probe(), descriptors, held);
        let capacity = capacity::chosen(means.capacity(), &config);
        let settings = EngineConfig {
            sandboxes: capacity.sandboxes,
            queue: capacity::queue(&config, descriptors),
            ..assembly::engine_config(&config)
        };
        let engine = kept.engine(&provider, settings, seed.clone());
        let stop = CancellationToken::new();
        let control = Control::new(
            Arc::clone(&engine),
            Arc::clone(&kept.registry),
            Arc::clone(&kept.logs),
            metrics.clone(),
            state.root().to_owned(),
            stop.clone(),
        );
        let cases = UseCases::of(&config, &kept, &engine, workshop, builds.clone())?;
        let doors = Doors::of(&config, descriptors);
        let (run, deploy) = (config.run_bodies(), config.deploy_bodies());
        let (own_run, own_deploy) = config.own_bodies();
        let Kept { access: Access { tokens, audit, .. }, registry, logs, .. } = kept;
        let app = Arc::new(App {
            tcp_budgets: Budgets::new(run, deploy, doors.tcp_bundles, doors.tcp),
            unix_budgets: Budgets::new(own_run, own_deploy, doors.unix_bundles, doors.unix),
            settings: config.doors(),
            spool: state.run(),
            admitted,
            issuer: Issuer::new(Arc::clone(&tokens)),
            tokens,
            audit,
            attachments: Attachments::new(Arc::clone(&registry)),
            layers: LayerVersions::new(Arc::clone(&registry)),
            functions: FunctionReader::new(Arc::clone(&registry), Arc::clone(&engine)),
            deployer: cases.deployer,
            invoker: cases.invoker,
            events: cases.events,
            secrets: cases.secrets,
            releases: cases.releases,
            stock: Arc::new(cases.stock),
            objects: Objects::new(config.service(Service::S3)),
            provisioner: cases.provisioner,
            sources: cases.sources,
            logs,
            control,
            url,
            capacity,
            unenforced,
        });
        Ok(Self {
            app,
            registry,
            engine,
            metrics,
            stop,
            config,
            state,
            doors,
            provider,
            builds,
            warden,
            tcp,
            certificates,
            unix,
            hold,
            seed,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.app.url
    }

    /// Cancel it to stop the worker.
    #[must_use]
    pub fn stopper(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Serves until it is told to stop, then drains and lets go of everything.
    ///
    /// # Errors
    /// When serving itself fails.
    pub async fn serve(self) -> Result<()> {
        let Self { app, registry, engine, config, state, doors, provider, builds, .. } = self;
        let (metrics, stop, mut warden) = (self.metrics, self.stop, self.warden);
        let (tcp, certificates, unix, hold, seed) =
            (self.tcp, self.certificates, self.unix, self.hold, self.seed);
        hold.announce(&Address { pid: std::process::id(), url: app.url.clone() })
            .context("cannot write worker.json into the state directory")?;
        let learnt = Arc::new(Learnt::of(&config, &state));
        let prepared = config.internals.prepared;
        let prepared = tokio::spawn({
            let (deployer, stop) = (Arc::clone(&app.deployer), stop.clone());
            let (registry, engine) = (Arc::clone(&registry), Arc::clone(&engine));
            let learnt = Arc::clone(&learnt);
            async move {
                let given = seed.or_else(|| learnt.read());
                let prepared = async {
                    // Side by side: what waits for an index holds up no zygote.
                    let again = make_again(&registry, &deployer);
                    future::join(again, prepare(&registry, &engine, prepared, given)).await;
                };
                let prepared = stop.run_until_cancelled(prepared).await.is_some();
                if prepared {
                    stop.run_until_cancelled(learnt.keep(&engine)).await;
                }
                prepared
            }
        });
        tokio::spawn(upkeep(metrics, stop.clone()));
        tokio::spawn(keep_a_thread(stop.clone()));
        let proc = config.internals.proc.clone();
        tokio::spawn(pressure::watch(Arc::clone(&engine), builds.clone(), proc, stop.clone()));
        tokio::spawn(Arc::clone(&app.stock).keep_to_budget(stop.clone()));
        tokio::spawn(Arc::clone(&app.provisioner).keep(stop.clone()));
        tokio::spawn(Arc::clone(&app.sources).poll(stop.clone()));
        let tls = certificates.as_ref().map(Certificates::acceptor).transpose()?;
        if let Some(certificates) = certificates {
            tls::reread_at_sighup(certificates, stop.clone())?;
        }
        let tcp = Front { listener: tcp, tls };
        let behind = |door, most| {
            let router = doors::router(&app, door);
            Behind { router, most, spare: doors.spare, patience: config.client_timeout.0 }
        };
        let door =
            if config.listen.ip().is_loopback() { Listener::Loopback } else { Listener::Network };
        let (of_tcp, of_unix) = (behind(door, doors.tcp), behind(Listener::Unix, doors.unix));
        let serving = tokio::spawn(future::join(
            listen::serve(tcp, of_tcp, stop.clone(), |_, address| Remote::Tcp(*address)),
            listen::serve(unix, of_unix, stop.clone(), |stream, _| Remote::Unix(Peer::of(stream))),
        ));
        let serving = AbortOnDropHandle::new(serving);
        let outcome = tokio::select! {
            words = Warden::lost(&mut warden) => Err(anyhow!("{words}: nothing can be run any more; start the worker again")),
            () = stop.cancelled() => Ok(()),
        };
        stop.cancel();
        if prepared.await.unwrap_or(false) && outcome.is_ok() {
            learnt.write(&engine);
        }
        app.events.stop();
        app.deployer.stop();
        if let Some(builds) = builds {
            builds.stop();
        }
        let drain = config.drain.0;
        tracing::info!(seconds = drain.as_secs_f64(), "stopping: running calls may end");
        // Both at once: the last replies go out while the engine waits for their calls.
        let end = async { tokio::join!(engine.stop(drain), serving) };
        if tokio::time::timeout(drain + Duration::from_secs(2), end).await.is_err() {
            tracing::warn!("some connections did not end in time and were cut");
        }
        app.logs.flush().await;
        // The warden takes every sandbox with it. Before the hold is released: the next worker's warden must not find this
        // one's leftovers.
        drop((app, registry, engine, provider));
        if let Some(warden) = warden {
            warden.gone().await;
        }
        drop(hold);
        tracing::info!("stopped");
        outcome
    }
}

/// Cancels the token at SIGTERM or SIGINT; a second one ends the process at once.
///
/// # Errors
/// When the process cannot have signal handlers.
pub fn stop_on_signals(stop: CancellationToken) -> Result<()> {
    let mut term = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut int = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    tokio::spawn(async move {
        loop {
            tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
            if stop.is_cancelled() {
                tracing::warn!("told to stop twice: going at once");
                std::process::exit(1);
            }
            stop.cancel();
        }
    });
    Ok(())
}

/// Where a worker listens, bound and not served yet.
struct Listening {
    /// The settings, in which `listen` says which port it is.
    config: Config,
    url: String,
    tcp: TcpListener,
    unix: UnixListener,
    certificates: Option<Arc<Certificates>>,
    admitted: Admitted,
}

impl Listening {
    fn bind(config: Config, state: &State) -> Result<Self> {
        let certificates =
            tls::certificates(config.tls_certificate.as_deref(), config.tls_key.as_deref())?;
        let tcp = listen::bind_tcp(config.listen)?;
        let scheme = if certificates.is_some() { "https" } else { "http" };
        let address = tcp.local_addr().context("cannot read the listener's address")?;
        let url = format!("{scheme}://{address}");
        let admitted = Admitted::of_this_worker(config.admin_group.as_deref())?;
        state.close(admitted.group.is_some())?;
        let unix = listen::bind_unix(&state.socket(), admitted.group)?;
        let config = Config { listen: address, ..config };
        Ok(Self { config, url, tcp, unix, certificates, admitted })
    }
}

/// The process's one metrics recorder.
fn recorder() -> Result<PrometheusHandle> {
    static RECORDER: Mutex<Option<PrometheusHandle>> = Mutex::new(None);
    // Held throughout: it can be installed once, and two workers of one process may start together.
    let mut recorder = RECORDER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = &*recorder {
        return Ok(handle.clone());
    }
    // From a resumed call's tens of microseconds to a first import's seconds.
    let buckets: Vec<f64> = (0..22).map(|step| 1e-5 * 2f64.powi(step)).collect();
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full("lambswool_stage_seconds".to_owned()), &buckets)
        .context("cannot set up metrics")?;
    let handle = builder.install_recorder().context("cannot set up metrics")?;
    Ok(recorder.insert(handle).clone())
}

/// Moves finished samples into their buckets: between two scrapes they would otherwise pile up in memory.
async fn upkeep(metrics: PrometheusHandle, stop: CancellationToken) {
    let mut every = tokio::time::interval(Duration::from_secs(5));
    while stop.run_until_cancelled(every.tick()).await.is_some() {
        metrics.run_upkeep();
    }
}

/// Keeps one of the runtime's threads for blocking work alive, which would end after ten idle seconds: without any,
/// where no thread can be made at that moment, `spawn_blocking` panics. Work that waits for
/// one of them because no other could be made runs here, too: otherwise it would wait for the next such work.
async fn keep_a_thread(stop: CancellationToken) {
    let mut every = tokio::time::interval(Duration::from_secs(2));
    while stop.run_until_cancelled(every.tick()).await.is_some() {
        drop(tokio::task::spawn_blocking(|| ()));
    }
}

/// Makes zygotes before anybody calls: those of the tree that was given or is left from the last run, as far as there is a
/// function for them, and those of what was deployed last, so that the first calls after a start find them.
async fn prepare(registry: &Registry, engine: &Engine, sets: usize, given: Option<ZygoteTree>) {
    let (packed, bare): (Vec<_>, Vec<_>) =
        distinct(registry.all()).into_iter().partition(|handler| handler.packages.is_some());
    // These need nothing but a fresh interpreter, which all others are made from, and take no place from them.
    for handler in bare.iter().take(INTERPRETERS) {
        engine.prepare(handler).await;
    }
    if let Some(tree) = given {
        engine.plant(&tree, &packed).await;
    }
    for handler in packed.iter().take(sets) {
        engine.prepare(handler).await;
    }
}

/// Makes again what of functions' versions is gone from the disk, or was never made on this machine.
async fn make_again(registry: &Registry, deployer: &Arc<Deployer>) {
    for function in registry.all() {
        if deployer.is_whole(&function) {
            continue;
        }
        let name = function.whole_name();
        if let Err(error) = deployer.remake(&name, &function.current().id).await {
            let error = sandbox::chain(&error);
            tracing::warn!(function = %name, error, "cannot be made on this machine");
        }
    }
}

/// Of all functions that one zygote serves, the one deployed last; the last of these first.
fn distinct(mut functions: Vec<Arc<Function>>) -> Vec<Arc<Handler>> {
    functions.sort_by_key(|function| std::cmp::Reverse(function.stored.updated));
    let mut seen = HashSet::new();
    let handlers = functions.iter().filter_map(|function| function.handler.as_ref());
    let new = |handler: &&Arc<Handler>| {
        let Handler { kind, python, network, tenant, packages, .. } = &***handler;
        seen.insert((*kind, python.clone(), *network, tenant.clone(), packages.clone()))
    };
    handlers.filter(new).cloned().collect()
}
