//! Puts the worker's parts together: stores, then the engine, then the use cases on both.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use aws::Service;
use engine::{Engine, EngineConfig, LogSink, PackageStore, Packages, SecretStore, ZygoteTree};
use function::quantity::Bytes;
use platform::access::Tokens;
use platform::audit::{AUDIT, Audit};
use platform::deploy::builder::BuildSandboxes;
use platform::deploy::installer::Installer;
use platform::deploy::workshop::Workshop;
use platform::deploy::{Deployer, guest};
use platform::events::Events;
use platform::functions::{Handlers, Registry, Releases};
use platform::invoke::Invoker;
use platform::limits::bucket::Rate;
use platform::limits::quotas::Quotas;
use platform::logs::{Logs, Rotation};
use platform::packages::maintenance::{self as stock, Stock};
use platform::packages::retention::Usage;
use platform::packages::store::Shelf;
use platform::provisioned::Provisioner;
use platform::secrets::{SecretEditor, SecretKey, Vault};
use platform::sources::Sources;
use sandbox::Provider;
use store_sqlite::{FileBundles, SqliteActions, SqliteFunctions, SqliteSecrets, SqliteTokens};

use super::pressure::Memory;
use super::{capacity, wiring};
use crate::config::Config;
use crate::state_directory::State;

/// The tokens, the secrets and the audit log.
pub(super) struct Access {
    pub(super) tokens: Arc<Tokens>,
    vault: Arc<Vault>,
    pub(super) audit: Arc<Audit>,
}

impl Access {
    /// Opens the stores of a state directory.
    ///
    /// # Errors
    /// When one cannot be opened, or the secrets were sealed with another key.
    pub(super) fn open(config: &Config, state: &State) -> Result<Self> {
        let tokens = Arc::new(Tokens::open(Box::new(SqliteTokens::open(&state.access())?))?);
        let named = config.secret_key_file.as_deref();
        let key = SecretKey::find(named, &state.secret_key(), state.has_secrets())?;
        let secrets = Box::new(SqliteSecrets::open(&state.secrets())?);
        let vault = Arc::new(Vault::open(secrets, &key)?);
        let audit = Audit::new(Box::new(SqliteActions::open(&state.audit())?), AUDIT);
        Ok(Self { tokens, vault, audit: Arc::new(audit) })
    }
}

/// All that a state directory holds, opened.
pub(super) struct Kept {
    pub(super) access: Access,
    layers: layers::Store,
    pub(super) registry: Arc<Registry>,
    pub(super) logs: Arc<Logs>,
}

impl Kept {
    /// Opens the layers, functions and logs of a state directory, and puts them in order.
    ///
    /// # Errors
    /// When one cannot be read or changed.
    pub(super) async fn open(config: &Config, state: &State, access: Access) -> Result<Self> {
        let layers = layers::Store::open(state.root())?;
        let registry = Arc::new(functions(state, &layers)?);
        let logs = Arc::new(start_logs(config, state, &registry)?);
        // Before there is a warden: nothing runs from these directories yet.
        guest::renew(&layers, &registry, &wiring::guest_files());
        stock::tidy(&layers, &registry, config.install_cache_bytes.0)?;
        Ok(Self { access, layers, registry, logs })
    }

    /// An engine that takes packages, secrets and logs from here.
    pub(super) fn engine(
        &self,
        provider: &Arc<dyn Provider>,
        settings: EngineConfig,
        seed: Option<ZygoteTree>,
    ) -> Arc<Engine> {
        let logs = Arc::clone(&self.logs) as Arc<dyn LogSink>;
        let shelf = Arc::new(Shelf::new(self.layers.clone())) as Arc<dyn PackageStore>;
        let packages = Packages { store: Some(shelf), seed };
        let secrets = Arc::clone(&self.access.vault) as Arc<dyn SecretStore>;
        Engine::with_stores(Arc::clone(provider), settings, logs, packages, secrets)
    }
}

/// The use cases that doors are given.
pub(super) struct UseCases {
    pub(super) deployer: Arc<Deployer>,
    pub(super) invoker: Arc<Invoker>,
    pub(super) events: Arc<Events>,
    pub(super) secrets: SecretEditor,
    pub(super) releases: Releases,
    pub(super) stock: Stock,
    pub(super) provisioner: Arc<Provisioner>,
    pub(super) sources: Arc<Sources>,
}

impl UseCases {
    /// The use cases of one engine. Versions are made by `workshop`, and packages without a wheel in `builds`.
    ///
    /// # Errors
    /// When the settings of indexes are not valid.
    pub(super) fn of(
        config: &Config,
        kept: &Kept,
        engine: &Arc<Engine>,
        workshop: Arc<dyn Workshop>,
        builds: Option<Arc<BuildSandboxes>>,
    ) -> Result<Self> {
        let Kept { access: Access { vault, .. }, layers, registry, logs } = kept;
        let registry = || Arc::clone(registry);
        let usage = Arc::new(Usage::new(registry(), Arc::clone(engine)));
        let networks = Arc::new(config.networks());
        let quotas = Arc::new(Quotas::new(config.tenants.clone()));
        let deployer = Deployer::new(
            workshop,
            registry(),
            Arc::clone(engine),
            Arc::clone(&usage),
            Arc::clone(&networks),
            Arc::clone(&quotas),
            Arc::clone(vault),
        );
        let deployer = deployer.waiting(config.index_timeout.0).tidying(Arc::clone(logs));
        let deployer = Arc::new(deployer);
        let invoker = Arc::new(Invoker::new(
            registry(),
            Arc::clone(&deployer),
            Arc::clone(&networks),
            Arc::clone(&quotas),
            Arc::clone(engine),
        ));
        let (promised_on, quotas_of) = (Arc::clone(engine), Arc::clone(&quotas));
        let provisioner = Arc::new(Provisioner::new(registry(), promised_on, networks, quotas_of));
        let tokens = Arc::clone(&kept.access.tokens);
        let queues = config.service(Service::Sqs);
        let sources = Arc::new(Sources::new(registry(), Arc::clone(&invoker), queues));
        let events = Arc::new(Events::new(Arc::clone(&invoker), tokens));
        let releases = Releases::new(registry(), Arc::clone(engine), Arc::clone(&usage));
        let (bounds, indexes) = (config.package_bounds(), config.indexes()?);
        let installer = Installer::new(layers.clone(), builds, bounds, indexes);
        let stock = Stock::new(
            layers.clone(),
            registry(),
            usage,
            Arc::clone(&deployer),
            Arc::clone(engine),
            installer,
            config.install_cache_bytes.0,
        );
        let secrets = SecretEditor::new(Arc::clone(vault), registry(), Arc::clone(engine), quotas);
        Ok(Self { deployer, invoker, events, secrets, releases, stock, provisioner, sources })
    }
}

fn functions(state: &State, store: &layers::Store) -> Result<Registry> {
    let handlers = Handlers::open(store.clone(), &state.handlers())?;
    let bundles = Arc::new(FileBundles::open(&state.bundles())?);
    let kept = Box::new(SqliteFunctions::open(&state.functions())?);
    Ok(Registry::open(kept, bundles, handlers)?)
}

fn start_logs(config: &Config, state: &State, registry: &Arc<Registry>) -> Result<Logs> {
    let rotation = Rotation { bytes: config.log_bytes.0, files: config.internals.log_files.max(1) };
    let (each_second, burst) = (config.log_rate.0 as f64, config.log_bytes.0 as f64);
    let rate = Rate { each_second, burst };
    let logs = Logs::start(&state.logs(), rotation, rate, Arc::clone(registry));
    logs.context("cannot start writing logs")
}

/// The engine's part of the settings.
pub(super) fn engine_config(config: &Config) -> EngineConfig {
    let defaults = EngineConfig::default();
    let cap = |bytes: Option<Bytes>| bytes.map_or(u64::MAX, |bytes| bytes.0);
    EngineConfig {
        handler_cache: config.handler_cache,
        memory_bytes: config
            .cache_memory
            .map_or_else(|| Memory::look(&config.internals.proc).available / 2, |bytes| bytes.0),
        handler_cache_bytes: cap(config.internals.handler_cache_bytes),
        zygote_bytes: cap(config.internals.zygote_bytes),
        idle: config.idle.0,
        zygote_idle: config.internals.zygote_idle.0,
        zygotes: config.zygotes(),
        creations: config.internals.creations.unwrap_or(defaults.creations),
        zygote_sandboxes: capacity::of_a_zygote(config),
        reply_bytes: usize::try_from(config.reply_body.0).unwrap_or(usize::MAX),
        ..defaults
    }
}

/// The tree of zygotes to start from.
pub(super) fn seed(config: &Config) -> Result<Option<ZygoteTree>> {
    let Some(file) = &config.internals.zygote_seed else { return Ok(None) };
    let text = std::fs::read(file)
        .with_context(|| format!("cannot read the tree of zygotes {}", file.display()))?;
    let tree = doors::native::read_tree(&text).with_context(|| {
        format!("{} is no tree of zygotes as `wool zygotes --json` prints it", file.display())
    })?;
    Ok(Some(tree))
}
